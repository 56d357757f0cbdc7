"""Fine-tuning is a run: what is trained and what stays, a stop and its resumption, bad input in one sentence."""

import dataclasses
import io
import json
import re
import shutil
import signal
from contextlib import redirect_stderr

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, model
from apformer.commands import export, train
from apformer.formats import gpt2
from apformer.runs import fit, language_model, recipes, restore, selection
from apformer.tasks.text import training
from apformer.tokenizers import pretrained, text

pytestmark = pytest.mark.long

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("safetensors", reason='GPT-2 folders need the text extra: pip install -e ".[text]"')

TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(120))
CONTEXT = 11
SHAPE = {"vocab_size": 257, "d_model": 6, "n_heads": 2, "n_layers": 2, "max_len": 13}
CFG = dataclasses.replace(gpt2.SIZES["gpt2"], **SHAPE, dropout=0.0, attention_dropout=0.0)
FEW = f"--recipe text --context {CONTEXT} --steps 12 --batch_size 4 --log_every 2 --save_every 4".split()
LOW_RANK = ["--lora_rank", "2", "--learning_rate", "0.01"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "bottles.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory, random_params):
    """A GPT-2 folder with a tokenizer."""
    path = tmp_path_factory.mktemp("gpt2") / "folder"
    export.write_gpt2(path, random_params(CFG), CFG, text.train_byte_pairs(TEXT, CFG.vocab_size))
    return path


@pytest.fixture
def only_train(monkeypatch):
    """`finish` without the evaluation; keeps the last state."""
    ended = []
    monkeypatch.setattr(train, "finish", lambda *args: ended.append(fit.fit(*args)))
    return ended


def words(file, *flags):
    return [str(word) for word in (*FEW, "--text", file, *flags)]


def settings_of(file, *flags):
    """(settings, rows) as a run has them."""
    return training.load(recipes.parse(words(file, *flags)))


def trained(file, folder, *flags, steps=3):
    """The parameters of the model after some steps, and their losses."""
    settings, rows = settings_of(file, "--init_from", folder, "--warmup_steps", 1, *flags)
    state = fit.initial_state(settings, gpt2.load(folder)[1])
    state, metrics = fit.run_steps(state, jnp.asarray(rows["train"]), settings, steps)
    return training.whole(state.params, settings), np.asarray(metrics["loss"])


def equal(ours, theirs):
    return jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), ours, theirs)


def test_the_model_is_that_of_the_folder(file, folder):
    settings, rows = settings_of(file, "--init_from", folder, *LOW_RANK)
    assert settings.model == CFG and rows["tokenizer"].vocab_size == CFG.vocab_size
    params = gpt2.load(folder)[1]
    state = fit.initial_state(settings, params)
    assert jax.tree.all(equal(training.whole(state.params, settings), params))


def test_low_rank_changes_the_matrices_of_the_blocks_alone(run, folder):
    same = equal(language_model.load(run).model.params, gpt2.load(folder)[1])
    attention, feedforward = same["blocks"].pop("attention"), same["blocks"].pop("feedforward")
    changed = [attention.pop(name) for name in ("query", "key", "value", "output")]
    changed += [feedforward[name].pop("weight") for name in ("expand", "contract")]
    assert not any(changed) and jax.tree.all([same, attention, feedforward])


def test_all_weights_change_without_adapters(file, folder):
    params = gpt2.load(folder)[1]
    assert not any(jax.tree.leaves(equal(trained(file, folder)[0], params)))


def test_bfloat16_computes_in_it_and_keeps_float32(file, folder):
    half, full = (trained(file, folder, "--compute_dtype", dtype) for dtype in ("bfloat16", "float32"))
    assert {leaf.dtype for leaf in jax.tree.leaves(half[0])} == {np.dtype(np.float32)}
    assert (half[1] != full[1]).any()
    np.testing.assert_allclose(half[1], full[1], rtol=0.05)


def bits(state):
    """The bytes of every leaf: parameters, optimizer state, key, step."""
    return [
        np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        .tobytes()
        for leaf in jax.tree.leaves(state)
    ]  # fmt: skip


def test_a_stopped_run_ends_as_the_uninterrupted_and_needs_no_folder(
    file, folder, only_train, tmp_path, monkeypatch, capsys
):
    """Ctrl-C while a chunk of steps runs: it is finished and saved, and the user is told how to go on."""
    source = shutil.copytree(folder, tmp_path / "source")
    flags = words(file, "--init_from", source, *LOW_RANK, "--dropout", 0.1)
    assert cli.main(["train", *flags, "--run_dir", str(tmp_path / "whole")]) == 0
    steps, stop = fit.run_steps, 2  # before the first checkpoint

    def stopped(state, *args):
        if int(state.step) == stop - 2:
            signal.raise_signal(signal.SIGINT)
        return steps(state, *args)

    monkeypatch.setattr(fit, "run_steps", stopped)
    path = tmp_path / "stopped"
    assert cli.main(["train", *flags, "--run_dir", str(path)]) == 130
    assert f"stopped at step {stop} and saved: `apformer resume {path}` goes on" in capsys.readouterr().err
    assert selection.steps(path / "checkpoints")[-1] == stop
    monkeypatch.setattr(fit, "run_steps", steps)
    shutil.rmtree(source)
    assert cli.main(["resume", str(path)]) == 0
    assert bits(only_train[-1]) == bits(only_train[0])


@pytest.fixture(scope="module")
def run(file, folder, tmp_path_factory):
    """A whole run of adapters."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with redirect_stderr(said := io.StringIO()):
        assert cli.main(["train", *words(file, "--init_from", folder, *LOW_RANK), "--run_dir", str(path)]) == 0
    (before,) = re.findall(r"^validation loss before the first step: (\d\.\d{4})$", said.getvalue(), re.MULTILINE)
    settings, rows = settings_of(file, "--init_from", folder)
    expected = training.make_loss(settings)(gpt2.load(folder)[1], training.validation(settings, rows), None)[0]
    assert abs(float(before) - float(expected)) < 2e-4
    assert "--warmup_steps 50 is not less than --steps 12: the learning rate rises until the end" in said.getvalue()
    return path


def test_a_run_is_evaluated_has_a_page_and_writes(run, folder, capsys):
    result = json.loads((run / "evaluation.json").read_text())
    assert result["step"] in (4, 8, 12) and (run / "report.html").exists()
    assert len(json.loads((run / "config.json").read_text())["init_from_sha256"]) == 64
    assert (run / "tokenizer.json").read_text() == (folder / "tokenizer.json").read_text()
    for place in (run, folder):
        assert cli.main(["generate", str(place), "--prompt", "the ", "--tokens", "5"]) == 0
        assert capsys.readouterr().out.startswith("the ")


def test_the_latest_run_is_kept_by_its_own_name(run, file, tmp_path):
    """It is another as soon as the run begins that is trained further."""
    (tmp_path / "latest").symlink_to(run)
    settings, _ = settings_of(file, "--init_from", tmp_path / "latest")
    assert settings.options.init_from == settings.data.tokenizer == str(run)


def test_a_run_that_begins_anew_begins_with_the_same_model(run, folder, tmp_path, capsys):
    begun = tmp_path / "begun"  # as it is after a stop before the first checkpoint
    shutil.copytree(run, begun, ignore=shutil.ignore_patterns("checkpoints"))
    config = json.loads((begun / "config.json").read_text())
    (begun / "config.json").write_text(json.dumps(config | {"init_from_sha256": "0" * 64}))
    assert cli.main(["resume", str(begun)]) == errors.DATA
    assert f"the model that {begun} began with, --init_from, has changed since: restore it" in capsys.readouterr().err


def test_the_end_of_a_text_is_the_special_token_of_the_tokenizer(folder, random_params, tmp_path):
    others = ["[PAD]"]
    ends = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ends.add_special_tokens(["<|endoftext|>", *others])
    cfg = dataclasses.replace(CFG, vocab_size=ends.get_vocab_size())
    for tokenizer, end in ((text.BytePairs(ends), cfg.vocab_size - 1 - len(others)), (None, None)):
        export.write_gpt2(tmp_path / str(end), random_params(cfg), cfg, tokenizer)
        said = json.loads((tmp_path / str(end) / "config.json").read_text())
        assert said["bos_token_id"] == said["eos_token_id"] == end
        if tokenizer is not None:
            told = json.loads((tmp_path / str(end) / "tokenizer_config.json").read_text())
            assert told["eos_token"] == told["bos_token"] == "<|endoftext|>"


def test_what_is_exported_is_the_merged_model(run, tmp_path, capsys):
    assert cli.main(["export", str(run), "--to", "gpt2", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'out'}: the model of {run} at step ")
    found, expected = language_model.load(tmp_path / "out"), language_model.load(run)
    assert found.model.cfg == CFG
    assert found.tokenizer.encode(TEXT).tolist() == expected.tokenizer.encode(TEXT).tolist()
    assert jax.tree.all(equal(found.model.params, expected.model.params))


def test_adapters_are_saved_alone(run, folder, file, tmp_path, capsys):
    """On their base they are the merged model; on another they are refused."""
    adapter = tmp_path / "adapter"
    assert cli.main(["export", str(run), "--to", "lora", "--out", str(adapter)]) == 0
    assert cli.main(["export", str(run), "--to", "gpt2", "--out", str(tmp_path / "merged")]) == 0
    params = language_model.load(folder, adapter=adapter).model.params
    for ours, theirs in zip(
        jax.tree.leaves(params), jax.tree.leaves(language_model.load(run).model.params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    greedy = ["--prompt", "the ", "--tokens", "9", "--temperature", "0"]
    costs = ["--text", str(file), "--json"]
    for words in (["generate", *greedy], ["evaluate", *costs]):
        said = []
        for place in ([str(folder), "--adapter", str(adapter)], [str(tmp_path / "merged")], [str(run)]):
            capsys.readouterr()
            assert cli.main([words[0], *place, *words[1:]]) == 0
            said.append(capsys.readouterr().out)
        if words[0] == "evaluate":
            said = [f"{json.loads(line)['nats_per_token']:.5f}" for line in said]
        assert said[0] == said[1] == said[2]
    other = ["generate", tmp_path / "merged", "--adapter", adapter]
    fails(capsys, "was trained on another base", errors.CHECKPOINT, *other)
    fails(capsys, "adapter_config.json (No such file", errors.CHECKPOINT, "generate", folder, "--adapter", folder)
    fails(capsys, "is a GPT-2 folder, which other", errors.USAGE, "export", folder, "--to", "lora")
    fails(capsys, "holds files", errors.USAGE, "export", run, "--to", "lora", "--out", adapter)
    fails(capsys, "--adapter belongs to --text", errors.USAGE, "evaluate", run, "--adapter", adapter)


def test_an_option_of_the_positions_that_contradicts_the_run_is_refused_by_name(file, tmp_path, capsys):
    path = tmp_path / "run"
    shape = ["--d_model", 16, "--n_heads", 2, "--n_layers", 1, "--position", "fire", "--bias_width", 4]
    settings, rows = settings_of(file, *shape, "--run_dir", path)
    train.keep(settings, fit.initial_state(settings).params, rows)
    given = ["train", *words(file, "--init_from", path), "--bias_width", 8, "--run_dir", tmp_path / "further"]
    sentence = f"--bias_width 8 contradicts --init_from {path}, whose bias_width is 4: drop the flag"
    fails(capsys, sentence, errors.USAGE, *given)


def test_a_model_trained_from_scratch_without_biases_is_exported_as_a_gpt2(file, tmp_path, capsys):
    path = tmp_path / "run"
    shape = ["--d_model", 16, "--n_heads", 2, "--n_layers", 2]
    settings, rows = settings_of(file, *shape, "--run_dir", path)
    assert not settings.model.attention_bias
    train.keep(settings, jax.jit(model.init, static_argnums=1)(jax.random.key(0), settings.model), rows)
    assert cli.main(["export", str(path), "--to", "gpt2"]) == 0
    exported, _, tokenizer, _ = language_model.load(path / "gpt2")
    tokens_BT = tokenizer.encode(TEXT[:CONTEXT])[None]
    expected, _, _ = restore.load_params(path, settings)
    apply = jax.jit(model.apply, static_argnums=2)
    ours, theirs = apply(expected, tokens_BT, settings.model), apply(exported.params, tokens_BT, exported.cfg)
    np.testing.assert_array_equal(theirs, ours)


def fails(capsys, sentence, exit_code, *args):
    capsys.readouterr()
    assert cli.main([str(arg) for arg in args]) == exit_code
    out, err = capsys.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1, err


def test_what_gpt2_cannot_say_is_not_exported(file, tmp_path, capsys):
    for name, flag, sentence in (
        (
            "rotary",
            "--position rotary",
            "GPT-2 has position learned, and this model was trained with --position rotary",
        ),
        ("lstm", "--architecture recurrent --d_model 8", "is no decoder-only transformer"),
    ):
        settings, rows = settings_of(file, *flag.split(), "--run_dir", tmp_path / name)
        train.keep(settings, fit.initial_state(settings).params, rows)
        fails(capsys, sentence, errors.USAGE, "export", tmp_path / name, "--to", "gpt2", "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--lora_rank", "7"], "--lora_rank 7 is out of range: give 0 to 6, the width of the model"),
        (["--lora_on", "heads"], "--lora_on heads is none of all, attention"),
        (["--lora_alpha", "nan"], "--lora_alpha nan is out of range"),
        (["--accumulate", "0"], "--accumulate 0 is out of range"),
        (["--context", "14"], "--context 14 is out of range: give at most 13, the positions of"),
        (["--n_layers", "3"], "--n_layers 3 contradicts --init_from {folder}, whose n_layers is 2: drop the flag"),
        (["--position", "alibi"], "--position alibi contradicts --init_from"),
        (
            ["--tokenizer", "byte_pairs"],
            "--tokenizer byte_pairs contradicts --init_from {folder}, which has",
        ),
        (["--architecture", "recurrent"], "--architecture recurrent contradicts"),
        (["--cell", "lstm"], "--cell"),
    ],
)
def test_what_contradicts_the_model_is_refused_by_name(flags, sentence, file, folder, tmp_path, capsys):
    run_dir = tmp_path / "run"
    given = ["train", *words(file, "--init_from", folder), *flags, "--run_dir", run_dir]
    fails(capsys, sentence.format(folder=folder), errors.USAGE, *given)
    assert not run_dir.exists()


def test_places_that_hold_no_model_are_told_apart(file, folder, run, tmp_path, capsys):
    get = "`hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2` fetches the published GPT-2"
    bare, empty, stopped = (tmp_path / name for name in ("bare", "empty", "stopped"))
    gpt2.save(bare, gpt2.load(folder)[1], CFG)
    empty.mkdir()
    shutil.copytree(run, stopped)
    shutil.rmtree(stopped / "checkpoints")
    cases = [
        (tmp_path / "nowhere", get, errors.USAGE),
        (empty, get, errors.USAGE),
        (bare, "holds no tokenizer: put its tokenizer.json there", errors.DATA),
        (stopped, "stopped before its first checkpoint", errors.CHECKPOINT),
    ]
    for place, sentence, code in cases:
        fails(capsys, sentence, code, "generate", place)
        given = ["train", *words(file, "--init_from", place), "--run_dir", tmp_path / "run"]
        fails(capsys, sentence, code, *given)
        assert not (tmp_path / "run").exists()
    fails(capsys, "--member 1 is of a population", errors.USAGE, "generate", folder, "--member", 1)
    pretrained.save(text.train_byte_pairs(TEXT, 270), bare / "tokenizer.json")
    other = "has a vocabulary of 257 tokens and the tokenizer one of 270: give the tokenizer"
    fails(capsys, other, errors.DATA, "train", *words(file, "--init_from", bare), "--run_dir", tmp_path / "run")
