"""`experiments/finetune_gpt2.py`: what is trained and what stays, what is kept, bad input in one sentence."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import errors, model, optimizer
from apformer.formats import gpt2
from apformer.tasks.text import corpus, finetune
from apformer.tokenizers import pretrained as tokenizer_file
from apformer.tokenizers import text as text_tokenizer

SCRIPT = Path(__file__).parents[3] / "experiments" / "finetune_gpt2.py"
spec = importlib.util.spec_from_file_location("experiments_finetune_gpt2", SCRIPT)
script = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = script  # where --help looks for what a flag means
spec.loader.exec_module(script)

TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(120))
CONTEXT = 11
CFG = dataclasses.replace(
    gpt2.SIZES["gpt2"], vocab_size=257, d_model=6, n_heads=2, n_layers=2, max_len=13, dropout=0.25
)
FEW = f"--steps 10 --batch_size 4 --evaluate_every 20 --context {CONTEXT}".split()
SMALL = [*FEW, *"--pretrain_steps 60 --vocab_size 257 --d_model 16 --n_heads 2 --n_layers 2".split()]


def settings(**changes):
    way = finetune.Way(**{"steps": 3, "batch_size": 3, "rank": 2} | changes)
    cfg = dataclasses.replace(CFG, dropout=0.0)
    return finetune.Settings(way, cfg, corpus.Config(context=CONTEXT), optimizer.Config(warmup_steps=1))


@pytest.fixture(scope="module")
def rows():
    tokens_N = np.random.default_rng(0).integers(0, CFG.vocab_size, 150).astype(np.uint16)
    return {"train": tokens_N, "validation": tokens_N[:60]}


def fit(params, rows, **changes):
    return finetune.fit(params, rows, settings(**changes), 0, 3, lambda *_: None)


apply = jax.jit(model.apply, static_argnums=2)


def equal(ours, theirs):
    return jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), ours, theirs)


def test_low_rank_changes_the_matrices_of_the_blocks_alone(rows, random_params):
    params = random_params(CFG)
    result = fit(params, rows, method="low_rank")
    assert result.step == 3 and result.loss < result.curve[0][1]
    same = equal(result.params, params)
    attention, feedforward = same["blocks"].pop("attention"), same["blocks"].pop("feedforward")
    changed = [attention.pop(name) for name in ("query", "key", "value", "output")]
    changed += [feedforward[name].pop("weight") for name in ("expand", "contract")]
    assert not any(changed) and jax.tree.all([same, attention, feedforward])


def test_full_changes_everything_and_not_what_it_was_given(rows, random_params):
    params = random_params(CFG)
    before = jax.tree.map(np.array, params)
    result = fit(params, rows)
    assert jax.tree.all(equal(params, before))
    assert not any(jax.tree.leaves(equal(result.params, before)))
    batches = corpus.consecutive(rows["validation"], corpus.Config(context=CONTEXT), 2**14)
    assert float(finetune.validate(result.params, batches, settings().model, "float32")) == result.loss


def test_parts_and_rematerialised_blocks_make_the_same_steps(rows, random_params):
    params = random_params(CFG)
    plain = fit(params, rows, method="low_rank")
    other = fit(params, rows, method="low_rank", batch_size=1, accumulate=3, remat=True)
    np.testing.assert_allclose([nats for _, nats in other.curve], [nats for _, nats in plain.curve], rtol=1e-4)
    for ours, theirs in zip(jax.tree.leaves(other.params), jax.tree.leaves(plain.params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)  # where a gradient is next to 0, Adam follows its rounding


def test_bfloat16_computes_in_it_and_keeps_float32(rows, random_params):
    params = random_params(CFG)
    half, full = (fit(params, rows, compute_dtype=dtype) for dtype in ("bfloat16", "float32"))
    assert {leaf.dtype for leaf in jax.tree.leaves(half.params)} == {np.dtype(np.float32)}
    assert half.loss != full.loss and abs(half.loss - full.loss) < 0.05 * full.loss


def test_the_best_parameters_are_kept(rows, random_params):
    """At a rate that spoils the model, those that were given."""
    params = random_params(CFG)
    spoiling = dataclasses.replace(settings(), optimizer=optimizer.Config(learning_rate=5.0, warmup_steps=1))
    result = finetune.fit(params, rows, spoiling, 0, 1, lambda *_: None)
    assert (result.step, result.loss) == result.curve[0] and len(result.curve) == 4
    assert jax.tree.all(equal(result.params, params))


def test_the_validation_loss_is_that_of_every_token(rows, random_params):
    params = random_params(CFG)
    nats = []
    for start in range(0, 59, CONTEXT):
        row = rows["validation"][start : start + CONTEXT + 1].astype(np.int32)
        logits_TV = np.asarray(apply(params, row[None, :-1], CFG)[0], np.float64)
        nats += (np.log(np.exp(logits_TV).sum(-1)) - logits_TV[np.arange(len(row) - 1), row[1:]]).tolist()
    assert len(nats) == 59
    np.testing.assert_allclose(fit(params, rows).curve[0][1], np.mean(nats), rtol=1e-5)


# The script


def main(monkeypatch, *args):
    monkeypatch.setattr("sys.argv", ["finetune_gpt2.py", *map(str, args)])
    return script.main()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "bottles.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 with a tokenizer of its own."""
    path = tmp_path_factory.mktemp("gpt2") / "folder"
    tokenizer = text_tokenizer.train_byte_pairs(TEXT, CFG.vocab_size)
    script.export(path, jax.jit(model.init, static_argnums=1)(jax.random.key(0), CFG), CFG, tokenizer)
    return path


def test_without_a_folder_a_small_one_is_pretrained_and_all_ways_are_compared(file, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    assert main(monkeypatch, file, *SMALL, "--method", "low_rank", "--run_dir", path) == 0
    out, err = capsys.readouterr()
    assert "no --gpt2: pretraining one of" in err and "on the first half of the text" in err
    assert [line.split("  ")[0] for line in out.splitlines()[:3]] == ["full", "low_rank", "from scratch"]
    records = [json.loads(line) for line in (path / "loss.jsonl").read_text().splitlines()]
    runs = ["pretraining", "full", "low_rank", "from scratch"]
    steps = [("pretraining", step) for step in (20, 40, 60)] + [(name, 10) for name in runs[1:]]
    assert [(record["run"], record["step"]) for record in records] == steps
    said = json.loads((path / "finetune.json").read_text())
    assert said["flags"]["way"]["method"] == "low_rank" and said["found"].keys() == set(runs[1:])
    found = {name: result["loss"] for name, result in said["found"].items()}
    assert max(found["full"], found["low_rank"]) < found["from scratch"] - 0.5
    assert said["data"]["validation_characters"] == len(TEXT) - len(TEXT) // 2 - int(0.9 * (len(TEXT) // 2))
    assert (path / "loss.png").stat().st_size > 5000
    cfg, params = gpt2.load(path / "model")
    pretrained_cfg, pretrained = gpt2.load(path / "pretrained")
    assert cfg == pretrained_cfg and cfg.max_len == CONTEXT and cfg.dropout == 0.0
    np.testing.assert_array_equal(params["embedding"]["table"], pretrained["embedding"]["table"])
    tokenizer = tokenizer_file.load(path / "model")
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT and tokenizer.vocab_size == cfg.vocab_size
    assert main(monkeypatch, file, *SMALL, "--run_dir", path) == errors.USAGE
    assert "holds other files: give a new or an empty directory" in capsys.readouterr().err


def test_a_folder_is_fine_tuned_and_given_back(file, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [*FEW, "--learning_rate", "0.01", "--accumulate", "2", "--remat", "--compute_dtype", "bfloat16"]
    assert main(monkeypatch, file, "--gpt2", folder, *flags) == 0
    (path,) = (tmp_path / "runs").iterdir()
    assert path.name.endswith("-finetune") and not (path / "pretrained").exists()
    cfg, params = gpt2.load(path / "model")
    assert cfg == CFG
    assert not np.array_equal(params["embedding"]["table"], gpt2.load(folder)[1]["embedding"]["table"])
    assert (path / "model" / "tokenizer.json").read_text() == (folder / "tokenizer.json").read_text()
    (line,) = capsys.readouterr().out.split("\n\n")[0].splitlines()
    before, after = (float(word) for word in (line.split()[1], line.split()[3]))
    assert line.startswith("full") and after < before


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--steps", "0"], errors.USAGE, "--steps 0 is out of range: give 1 to 2147483647"),
        (["--rank", "0"], errors.USAGE, "--rank 0 is out of range"),
        (["--rank", "17"], errors.USAGE, "--rank 17 is out of range: give at most 16, the width of the model"),
        (["--accumulate", "0"], errors.USAGE, "--accumulate 0 is out of range"),
        (["--alpha", "nan"], errors.USAGE, "--alpha nan is out of range"),
        (["--learning_rate", "0"], errors.USAGE, "--learning_rate 0.0 is out of range: give more than 0"),
        (["--context", "0"], errors.USAGE, "--context 0 is out of range"),
        (["--validation_share", "1"], errors.USAGE, "--validation_share 1.0 is out of range"),
        (["--seed", "-1"], errors.USAGE, "--seed -1 is out of range"),
        (["--d_model", "7"], errors.USAGE, "--d_model 7 is out of range: give a multiple of --n_heads 2"),
        (["--vocab_size", "255"], errors.USAGE, "--vocab_size 255 is under 256"),
        (["--tokenizer", "x"], errors.USAGE, "--tokenizer x is of no --gpt2: give that too, or drop it"),
        (["--method", "prefix"], errors.USAGE, "--method"),
        (["--stesp", "3"], errors.USAGE, "did you mean --steps?"),
        (["--context", "4000"], errors.DATA, "a smaller --context"),
        (["--gpt2", "nowhere"], errors.CHECKPOINT, "give a folder with config.json and model.safetensors"),
    ],
)
def test_a_wrong_flag_is_one_sentence_before_anything_is_made(
    flags, code, sentence, file, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, file, *SMALL, *flags) == code
    said = capsys.readouterr().err
    assert sentence in said and said.startswith("finetune_gpt2.py: ") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_does_not_go_with_a_folder_is_refused(file, folder, tmp_path, monkeypatch, capsys):
    def refused(code, sentence, *flags, text=file):
        assert main(monkeypatch, text, "--gpt2", folder, *FEW, *flags) == code
        said = capsys.readouterr().err
        assert sentence in said and said.count("\n") == 1, said

    monkeypatch.chdir(tmp_path)
    tokenizer_file.save(text_tokenizer.train_byte_pairs(TEXT, 270), tmp_path / "other.json")
    other = "has a vocabulary of 257 tokens and the tokenizer one of 270: give the tokenizer"
    refused(errors.DATA, other, "--tokenizer", tmp_path / "other.json")
    refused(errors.USAGE, "--context 14 is out of range: give at most 13, the positions", "--context", "14")
    bad = tmp_path / "bad.txt"
    for content, sentence in ((b"ab\xff", "no UTF-8 at byte offset 2"), (b"short", "the training part of")):
        bad.write_bytes(content)
        refused(errors.DATA, sentence, text=bad)
    bare = tmp_path / "bare"
    gpt2.save(bare, gpt2.load(folder)[1], CFG)
    assert main(monkeypatch, file, "--gpt2", bare, *FEW) == errors.DATA
    assert "holds no tokenizer" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_stops_it(file, folder, tmp_path, monkeypatch, capsys):
    nan = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), gpt2.load(folder)[1])
    monkeypatch.setattr(script.gpt2, "load", lambda _: (CFG, nan))
    assert main(monkeypatch, file, "--gpt2", folder, *FEW, "--run_dir", tmp_path / "run") == errors.NON_FINITE
    assert "the loss is not finite at step 0: lower --learning_rate" in capsys.readouterr().err
