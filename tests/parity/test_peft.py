"""Adapters saved alone: `peft` opens ours and we open those of `peft`; both then compute the same logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.formats import gpt2, peft
from apformer.tasks.text import lora
from tests.parity import published
from tests.parity.published import torch, transformers

theirs_peft = pytest.importorskip("peft", reason="parity needs peft: pip install -e '.[parity]'")

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # peft of transformers 5
]

V, D, H, L, F, P, R = 53, 12, 3, 2, 11, 17, 2
CFG = dataclasses.replace(gpt2.SIZES["gpt2"], vocab_size=V, d_model=D, n_heads=H, n_layers=L, d_ff=F, max_len=P)
TOKENS_BT = np.random.default_rng(0).integers(0, V, (3, 7)).astype(np.int32)


def drawn(tree, seed):
    """The same tree, every leaf drawn."""
    leaves, structure = jax.tree.flatten(tree)
    rng = np.random.default_rng(seed)
    return structure.unflatten([jnp.asarray(0.3 * rng.standard_normal(leaf.shape)) for leaf in leaves])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """(a GPT-2 folder in float64, its parameters)."""
    params = drawn(jax.eval_shape(lambda key: model.init(key, CFG), jax.random.key(0)), 1)
    folder = tmp_path_factory.mktemp("base") / "gpt2"
    gpt2.save(folder, params, CFG)
    return folder, params


def opened(folder):
    return transformers.GPT2LMHeadModel.from_pretrained(folder).eval()


def our_logits(params):
    return jax.jit(model.apply, static_argnums=2)(params, TOKENS_BT, CFG)


@pytest.mark.parametrize("on", ["all", "attention"])
def test_peft_opens_what_we_save(base, tmp_path, on):
    folder, params = base
    adapters = drawn(jax.eval_shape(lambda: lora.init(jax.random.key(0), params, R, on)), 2)
    peft.save(tmp_path / "adapter", adapters, 3.0, R, params, CFG, str(folder))
    theirs = theirs_peft.PeftModel.from_pretrained(opened(folder), tmp_path / "adapter").eval()
    expected = our_logits(lora.merge(params, adapters, 3.0 / R))
    assert np.abs(expected - our_logits(params)).max() > 0.1
    found = published.logits_of(theirs, TOKENS_BT)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # factors of peft are in float32


@pytest.mark.parametrize(
    "options",
    [
        {},  # queries, keys and values, which share A
        {"target_modules": ["c_attn", "c_proj", "c_fc"], "rank_pattern": {"c_fc": 3}, "alpha_pattern": {"c_proj": 5}},
        {"target_modules": ["attn.c_proj"], "use_rslora": True, "layers_to_transform": [1]},
    ],
)
def test_we_open_what_peft_saves(base, tmp_path, options):
    folder, params = base
    config = theirs_peft.LoraConfig(r=R, lora_alpha=7, fan_in_fan_out=True, **options)
    theirs = theirs_peft.get_peft_model(opened(folder), config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, leaf in theirs.named_parameters():
            if "lora_" in name:
                leaf.copy_(0.3 * torch.randn_like(leaf))
    theirs.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    found = peft.load(tmp_path / "adapter", model, params, CFG)
    expected = published.logits_of(theirs, TOKENS_BT)
    assert np.abs(expected - our_logits(params)).max() > 0.1
    np.testing.assert_allclose(our_logits(found), expected, rtol=0, atol=1e-6)
