"""GPT-2 folders are read as written down, given back bit for bit, and refused by name where anything is amiss."""

import pickle
from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import model
from apformer.errors import CHECKPOINT, USAGE
from apformer.files import read_json, write_json
from apformer.formats import gpt2, gpt2_tensors
from tests.helpers.refusals import refused
from tests.helpers.small_models import draw_params

safetensors = pytest.importorskip("safetensors", reason='GPT-2 folders need the text extra: pip install -e ".[text]"')
from safetensors.numpy import load_file, save_file  # noqa: E402

V, D, H, L, F, P = 17, 6, 3, 2, 5, 13
CONFIG = {
    "model_type": "gpt2",
    "vocab_size": V,
    "n_embd": D,
    "n_head": H,
    "n_layer": L,
    "n_inner": F,
    "n_positions": P,
    "resid_pdrop": 0.25,
    "attn_pdrop": 0.125,
}


def say(**changes):
    """A small Config that GPT-2 can say."""
    small = dict(vocab_size=V, d_model=D, n_heads=H, n_layers=L, d_ff=F, max_len=P)
    return replace(gpt2.SIZES["gpt2"], **small | changes)


def draw_tensors(untied=False):
    """Random tensors under the names of GPT-2, which tests/parity holds to those of `transformers`."""
    cfg = say(tie_embeddings=not untied)
    return {name: np.array(x) for name, x in gpt2_tensors.from_params(draw_params(cfg), cfg).items()}


def prefixed(tensors):
    return {name if name == "lm_head.weight" else f"transformer.{name}": x for name, x in tensors.items()}


def write(folder, tensors, **config):
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", CONFIG | config)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_the_published_sizes():
    counts = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
    for name, cfg in gpt2.SIZES.items():
        shapes = jax.eval_shape(lambda key, cfg=cfg: model.init(key, cfg), jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == counts[name]
        assert cfg.d_model // cfg.n_heads == 64


@pytest.mark.parametrize(("prefix", "untied"), [(False, True), (True, False)])
def test_a_folder_is_given_back_bit_for_bit(tmp_path, prefix, untied):
    """What it computes is held to `transformers` in tests/parity."""
    tensors = draw_tensors(untied)
    buffers = {
        f"h.{layer}.attn.{name}": np.ones((1, 1, P, P)) for layer in range(L) for name in ("bias", "masked_bias")
    }
    named = prefixed(tensors | buffers) if prefix else tensors | buffers
    cfg, params = gpt2.load(write(tmp_path / "in", named, tie_word_embeddings=not untied))
    assert (cfg.max_len, cfg.d_ff, cfg.tie_embeddings) == (P, F, not untied)
    assert (cfg.dropout, cfg.attention_dropout) == (0.25, 0.125)
    gpt2.save(tmp_path / "out", params, cfg)
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert again.keys() == prefixed(tensors).keys()
    for name, x in prefixed(tensors).items():
        np.testing.assert_array_equal(again[name], x, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False, "d_ff": None, "dropout": 0.0, "attention_dropout": 0.25},
        {
            "activation": "relu",
            "similarity": "dot",
            "n_layers": 5,
            "norm_epsilon": 0.1,
            "embedding_std": 0.02,
        },
    ],
)
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path, random_params, changes):
    cfg = say(**changes)
    params = random_params(cfg)
    ends = [5, 0] if "n_layers" in changes else []
    gpt2.save(tmp_path / "folder", params, cfg, ends)
    again_cfg, again = gpt2.load(tmp_path / "folder")
    assert again_cfg == replace(cfg, embedding_std=None)  # which a trained model has no use for
    jax.tree.map(np.testing.assert_array_equal, again, params)
    with safetensors.safe_open(tmp_path / "folder" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}  # transformers asks for it
    config = read_json(tmp_path / "folder" / "config.json")
    assert config["eos_token_id"] == (ends or None)
    with refused(USAGE, "holds files, and none is overwritten"):
        gpt2.save(tmp_path, params, cfg)


def test_what_config_json_leaves_out_is_as_in_the_smallest(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert gpt2.read_config(tmp_path / "config.json") == gpt2.SIZES["gpt2"]


def refuses(pattern, folder, exit_code=CHECKPOINT):
    with refused(exit_code, pattern) as error:
        gpt2.load(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_tensor_at_fault_is_named(tmp_path):
    tensors = draw_tensors()
    del tensors["h.0.ln_1.bias"], tensors["wpe.weight"]
    tensors["h.1.attn.c_attn.weight"] = tensors["h.1.attn.c_attn.weight"].T.copy()
    tensors["h.2.ln_1.bias"] = np.zeros(D, np.float32)
    tensors["h.1.mlp.c_fc.bias"] = np.zeros(F, np.int32)
    assert (
        "is not what config.json says: h.0.ln_1.bias is missing, "
        "h.1.attn.c_attn.weight has shape (18, 6) instead of (6, 18), "
        "h.1.mlp.c_fc.bias holds I32 instead of floating-point numbers, h.2.ln_1.bias is extra, wpe.weight is missing: "
        "fetch both files again"
    ) in refuses("model.safetensors", write(tmp_path / "in", tensors))


class Trap:
    """An object whose pickle makes a file when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_is_refused_and_not_opened(tmp_path, name):
    folder = write(tmp_path / "in", draw_tensors())
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(tmp_path / "executed")))
    refuses(
        "is damaged or of another format"
        if name == "model.safetensors"
        else "in holds no model.safetensors: .* a pickle is not opened",
        folder,
    )
    assert not (tmp_path / "executed").exists()


def test_a_folder_that_is_none(tmp_path):
    for nowhere in ("nowhere", "a\0b"):
        refuses("config.json cannot be read .*: give a folder", tmp_path / nowhere)


def write_shards(folder, shards, weight_map=None):
    """A folder whose tensors lie in files a.safetensors, b.safetensors ...; the index says so, or something else."""
    folder.mkdir()
    write_json(folder / "config.json", CONFIG)
    files = {f"{letter}.safetensors": tensors for letter, tensors in zip("abc", shards, strict=False)}
    for name, tensors in files.items():
        save_file(tensors, folder / name)
    truth = {tensor: name for name, tensors in files.items() for tensor in tensors}
    index = {"metadata": {"total_size": 1}, "weight_map": truth | (weight_map or {})}
    write_json(folder / "model.safetensors.index.json", index)
    return folder


@pytest.fixture
def halves():
    tensors = prefixed(draw_tensors())
    names = sorted(tensors)
    return [{name: tensors[name] for name in part} for part in (names[::3], names[1::3], names[2::3])]


@pytest.mark.parametrize(
    ("shard", "pattern"),
    [
        ("d.safetensors", "names 'd.safetensors', which is not a file beside it"),
        ("../a.safetensors", "names '../a.safetensors', which is not a file beside it"),
        ("b.safetensors", "and a.safetensors do not agree on transformer.wte.weight: fetch the folder again"),
    ],
)
def test_an_index_that_is_wrong_is_refused(tmp_path, halves, shard, pattern):
    refuses(pattern, write_shards(tmp_path / "in", halves, {"transformer.wte.weight": shard}))


def test_a_tensor_of_two_shards_and_an_index_without_a_map_are_refused(tmp_path, halves):
    twice = next(iter(halves[1]))
    folder = write_shards(tmp_path / "in", [halves[0] | {twice: halves[1][twice]}, *halves[1:]])
    refuses(f"do not agree on {twice}", folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    refuses("it has no weight_map", folder)


@pytest.mark.parametrize(
    ("config", "pattern"),
    [
        ({"model_type": "llama"}, 'model_type is "llama", and only "gpt2"'),
        ({"activation_function": "silu"}, 'is "silu", and only "gelu_new" or "gelu_pytorch_tanh" or "gelu_fast" or'),
        ({"add_cross_attention": True}, "add_cross_attention is true, and only false is supported: give a model of"),
        ({"n_head": 4}, "describes no GPT-2 .*d_model 6 is not a multiple of n_heads 4"),
        ({"n_layer": 2.0}, "n_layer is 2.0"),
        ({"layer_norm_epsilon": -1.0}, "layer_norm_epsilon -1.0 is not between 0 and 1"),
        ({"vocab_size": 10**15}, "vocab_size is 1000000000000000"),
        ({"n_layer": 10**9}, "holds no layer 999999999, and config.json has n_layer 1000000000"),
    ],
)
def test_what_is_no_gpt2_is_refused_and_told_what_is_supported(tmp_path, config, pattern):
    refuses(pattern, write(tmp_path / "in", draw_tensors(), **config))


def test_weights_that_are_not_finite_are_refused(tmp_path):
    tensors = draw_tensors()
    tensors["h.1.mlp.c_fc.weight"][2, 3] = np.inf
    refuses("h.1.mlp.c_fc.weight holds numbers that are not finite", write(tmp_path / "in", tensors))


@pytest.mark.parametrize("text", ["", "[1, 2", "\xff", "[" * 200_000])
def test_a_damaged_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    refuses("config.json is not valid JSON", tmp_path)
    (tmp_path / "config.json").write_text("[]")
    refuses("model_type is null", tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_damaged_weights_are_refused(tmp_path, keep):
    folder = write(tmp_path / "in", draw_tensors())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refuses("model.safetensors cannot be read as safetensors .* is damaged", folder)


@pytest.mark.parametrize(
    ("field", "value"), [("position", "rotary"), ("window", 4), ("similarity", "cosine"), ("head_bias", True)]
)
def test_a_model_that_gpt2_cannot_say_is_not_saved(tmp_path, field, value):
    with refused(USAGE, f"GPT-2 has .*{field}.*{value}"):
        gpt2.save(tmp_path / "out", {}, say(**{"position_options": None, field: value}))
    assert not (tmp_path / "out").exists()
