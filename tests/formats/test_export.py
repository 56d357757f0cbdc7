"""What is exported computes what the run computes, needs no files of ours, and overwrites nothing."""

import json
import re
import sys

import jax
import numpy as np
import pytest

from apformer import cli, errors, model, recurrent, seq2seq
from apformer.errors import USAGE
from apformer.formats import stablehlo, weights
from apformer.runs import restore
from apformer.settings import model_from
from apformer.tasks.progressions import generator
from tests.helpers.own_process import python
from tests.helpers.refusals import refused
from tests.helpers.small_models import circuit_run, draw_tokens, names, small

safetensors = pytest.importorskip("safetensors", reason='export needs the text extra: pip install -e ".[text]"')

CONFIGS = {
    "learned": small(position="learned", max_len=13, tie_embeddings=True, n_layers=5),
    "recurrent": recurrent.Config(d_model=5, cell="gru", n_layers=2),
}
PAIR = seq2seq.Config(7, 9, d_model=6, n_heads=3, share_embeddings=False, tie_embeddings=False)
MODULES = {model.Config: model, recurrent.Config: recurrent, seq2seq.Config: seq2seq}
each_config = pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose model is the circuit for two digits."""
    path = tmp_path_factory.mktemp("runs") / "circuit"
    circuit_run(path, generator.Config(digits=2, max_difference=30, max_terms=6))
    return path


def architecture_of(cfg):
    return MODULES[type(cfg)].__name__.rpartition(".")[2]


def logits_of(run, tokens_BT):
    return jax.jit(restore.load(run).model.apply)(tokens_BT)


@pytest.mark.parametrize("cfg", [*CONFIGS.values(), PAIR], ids=[*CONFIGS, "pair"])
def test_safetensors_gives_every_parameter_back(tmp_path, random_params, cfg):
    params = random_params(cfg)
    weights.write_safetensors(tmp_path / "model", architecture_of(cfg), params, cfg)
    with safetensors.safe_open(tmp_path / "model", framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        assert model_from(config.pop("architecture"), config) == cfg
        assert {*file.keys()} == {name.replace("/", ".") for name in names(params)}
        for name, leaf in weights.named(params).items():
            np.testing.assert_array_equal(file.get_tensor(name), leaf)


@each_config
def test_stablehlo_computes_the_same_for_any_batch_and_length(tmp_path, random_params, cfg):
    pytest.importorskip("flatbuffers", reason='stablehlo needs the export extra: pip install -e ".[export]"')
    params = random_params(cfg)
    stablehlo.write_stablehlo(tmp_path / "model", architecture_of(cfg), params, cfg)
    function = jax.export.deserialize((tmp_path / "model").read_bytes())
    assert function.platforms == ("cpu", "cuda", "tpu")
    tokens_BT = draw_tokens(3, 13)
    logits_BTV = MODULES[type(cfg)].apply(params, tokens_BT, cfg)
    np.testing.assert_allclose(function.call(tokens_BT), logits_BTV, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(function.call(tokens_BT[:1, :1]), logits_BTV[:1, :1], rtol=1e-5, atol=1e-5)
    if cfg == CONFIGS["learned"]:
        with pytest.raises(ValueError):
            function.call(draw_tokens(1, 14))


def test_a_function_runs_without_apformer(run, tmp_path, says):
    pytest.importorskip("flatbuffers", reason='stablehlo needs the export extra: pip install -e ".[export]"')
    tokens_BT = draw_tokens(3, 7)
    np.save(tmp_path / "tokens.npy", tokens_BT)
    said = says("export", run, "--to", "stablehlo", "--out", tmp_path / "function")
    assert said.startswith(f"{tmp_path / 'function'}: the model of {run} at step 1, ")
    program = """if True:
        import sys, numpy as np
        from jax import export
        function = export.deserialize(open("function", "rb").read())
        np.save("logits.npy", function.call(np.load("tokens.npy")))
        assert "apformer" not in sys.modules and "flax" not in sys.modules"""
    python("-c", program, cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), logits_of(run, tokens_BT), rtol=1e-5, atol=1e-4)


def test_what_cannot_be_exported(run, tmp_path, capsys):
    for exit_code, pattern, *args in (
        (USAGE, f"{tmp_path} is there already and is not overwritten: give", run, "--out", tmp_path),
        (USAGE, "--member 1 is out of range", run, "--member", "1", "--out", tmp_path / "file"),
        (errors.DISK, "cannot write .*file .No such file or directory", run, "--out", tmp_path / "nowhere" / "file"),
    ):
        assert cli.main(["export", *map(str, args)]) == exit_code
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert re.search(pattern, err), err


@pytest.mark.parametrize(
    ("module", "write", "extra"),
    [("safetensors", weights.write_safetensors, "text"), ("flatbuffers", stablehlo.write_stablehlo, "export")],
)
def test_an_extra_is_asked_for(tmp_path, random_params, monkeypatch, module, write, extra):
    cfg = CONFIGS["learned"]
    params = random_params(cfg)
    for name in [
        name for name in sys.modules if name.split(".")[0] == module or name == "jax._src.export.serialization"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with refused(USAGE, rf"needs the {extra} extra: pip install"):
        write(tmp_path / "model", "model", params, cfg)
    assert not list(tmp_path.iterdir())
