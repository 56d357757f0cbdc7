"""Adapters alone come back as they were saved, and each fault of a folder is one sentence that names it."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, recurrent
from apformer.errors import CHECKPOINT, USAGE
from apformer.files import read_json, write_json
from apformer.formats import gpt2, peft
from apformer.tasks.text import lora

pytest.importorskip("safetensors", reason='adapters need the text extra: pip install -e ".[text]"')
from safetensors.numpy import load_file, save_file  # noqa: E402

from tests.helpers.refusals import refused

V, D, H, F, L, P, R = 17, 6, 3, 5, 2, 13, 2
SHAPE = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": L, "d_ff": F, "max_len": P}
CFG = replace(gpt2.SIZES["gpt2"], **SHAPE)
A, B = (f"base_model.model.transformer.h.1.attn.c_attn.lora_{letter}.weight" for letter in "AB")


@pytest.fixture
def params(random_params):
    return random_params(CFG)


@pytest.fixture
def adapters(params):
    """Factors of which none is zero."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: lora.init(jax.random.key(0), params, R))
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(rng.standard_normal(leaf.shape), jnp.float32)), shapes)


@pytest.fixture
def folder(tmp_path, params, adapters):
    peft.save(tmp_path / "adapter", adapters, 6.0, R, params, CFG, "gpt2")
    return tmp_path / "adapter"


def test_what_is_saved_is_loaded(folder, params, adapters):
    found = peft.load(folder, model, params, CFG)
    expected = lora.merge(params, adapters, 6.0 / R)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-5), found, expected)


def refuses(pattern, folder, params, exit_code=CHECKPOINT, architecture=model, cfg=CFG):
    with refused(exit_code, pattern):
        peft.load(folder, architecture, params, cfg)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"peft_type": "IA3"}, 'peft_type is "IA3", and only "LORA" is supported'),
        ({"target_parameters": ["h"]}, r'target_parameters is \["h"\], and only \[\] is supported'),
        ({"use_dora": True}, "use_dora is true, and only false is supported"),
        ({"r": 3}, r"lora_A.weight is F32 \(2, 6\), and adapter_config.json and this model need .* shape \(3, 6\)"),
        ({"rank_pattern": {"(a+)+$": 1}}, "rank_pattern names no matrix by its name: merge"),
        ({"r": True}, "r true is not a positive number"),
        ({"alpha_pattern": [1]}, "alpha_pattern names no matrix"),
    ],
)
def test_a_config_that_is_not_followed_is_refused(folder, params, changes, pattern):
    content = read_json(folder / peft.CONFIG)
    write_json(folder / peft.CONFIG, content | changes)
    refuses(pattern, folder, params)


@pytest.mark.parametrize(
    ("name", "tensor", "pattern"),
    [
        (A, None, "h.1.attn.c_attn.lora_B.weight, which has no partner or adapts no matrix of this model"),
        (B, np.zeros((5, 6), np.float32), r"lora_B.weight is F32 \(5, 6\), and .* shape \(18, 6\)"),
        (A, np.full((6, 6), np.nan, np.float32), "lora_A.weight holds numbers that are not finite"),
        (
            A,
            np.full((6, 6), 3e38, np.float32),
            "h.1.attn.c_attn with .*lora_A.weight and .*lora_B.weight is not finite",
        ),
        (A, np.zeros((6, 6), np.int32), r"lora_A.weight is I32 \(6, 6\), and .* need floating-point numbers"),
        (A.replace("h.1", "h.7"), np.zeros((6, 6), np.float32), "h.7.* adapts no matrix of this model"),
    ],
)
def test_weights_of_another_model_are_refused(folder, params, name, tensor, pattern):
    tensors = load_file(folder / peft.WEIGHTS)
    tensors.pop(name, None)
    save_file(tensors | ({} if tensor is None else {name: tensor}), folder / peft.WEIGHTS)
    refuses(pattern, folder, params)


def test_another_base_is_refused(folder, params):
    other = jax.tree.map(lambda leaf: leaf, params)
    other["final_norm"] = {name: leaf + 1 for name, leaf in params["final_norm"].items()}
    refuses("was trained on another base: give the model that it was trained on", folder, other)
    refuses("this model is none: drop the flag", folder, params, USAGE, recurrent)
    rotary = replace(CFG, position="rotary", position_options=None)
    refuses("GPT-2 has position learned, .* rotary: an adapter is for a GPT-2", folder, params, USAGE, cfg=rotary)
