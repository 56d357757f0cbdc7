"""Fine-tuning is a run: what is trained and what stays, a stop and its resumption, bad input in one sentence."""

import io
import re
import shutil
import signal
from contextlib import redirect_stderr
from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import cli
from apformer.commands import export, train
from apformer.errors import CHECKPOINT, DATA, USAGE
from apformer.files import read_json, write_json
from apformer.formats import gpt2
from apformer.runs import checkpoint, fit, language_model, recipes, restore, selection
from apformer.tasks.text import training
from apformer.tokenizers import pretrained, text
from tests.helpers.small_runs import TEXT

pytestmark = pytest.mark.long

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("safetensors", reason='GPT-2 folders need the text extra: pip install -e ".[text]"')

CONTEXT = 11
SHAPE = {"vocab_size": 257, "d_model": 6, "n_heads": 2, "n_layers": 2, "max_len": 13}
CFG = replace(gpt2.SIZES["gpt2"], **SHAPE, dropout=0.0, attention_dropout=0.0)
FEW = f"--recipe text --rule adamw --context {CONTEXT} --steps 12 --batch_size 4 --log_every 2 --save_every 4".split()
LOW_RANK = ["--lora_rank", "2", "--learning_rate", "0.01"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, random_params):
    """A GPT-2 folder with a tokenizer."""
    path = tmp_path_factory.mktemp("gpt2") / "folder"
    export.write_gpt2(path, random_params(CFG), CFG, text.train_byte_pairs(TEXT, CFG.vocab_size))
    return path


def words(file, *flags):
    return [str(word) for word in (*FEW, "--text", file, *flags)]


def settings_of(file, *flags):
    """(settings, rows) as a run has them."""
    return training.load(recipes.parse(words(file, *flags)))


@pytest.fixture(scope="module")
def run(file, folder, tmp_path_factory):
    """A whole run of adapters."""
    path = tmp_path_factory.mktemp("runs") / "run"
    flags = words(file, "--init_from", folder, *LOW_RANK, "--dropout", 0.1)
    with redirect_stderr(said := io.StringIO()):
        assert cli.main(["train", *flags, "--run_dir", str(path)]) == 0
    (before,) = re.findall(r"^validation loss before the first step: (\d\.\d{4})$", said.getvalue(), re.MULTILINE)
    settings, rows = settings_of(file, "--init_from", folder)
    expected = training.make_loss(settings)(gpt2.load(folder)[1], training.validation(settings, rows), None)[0]
    assert abs(float(before) - float(expected)) < 2e-4
    return path


def equal(ours, theirs):
    return jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), ours, theirs)


def test_the_model_is_that_of_the_folder(file, folder, tmp_path):
    """A link such as runs/latest is kept by the name of the folder: it is another as soon as the run begins."""
    (tmp_path / "latest").symlink_to(folder)
    settings, rows = settings_of(file, "--init_from", tmp_path / "latest", *LOW_RANK)
    assert settings.model == CFG and rows.tokenizer.vocab_size == CFG.vocab_size
    assert settings.options.init_from == settings.data.tokenizer == str(folder)
    params = gpt2.load(folder)[1]
    assert jax.tree.all(equal(training.model_params(fit.initial_state(settings, params).params, settings), params))


def test_a_stopped_run_ends_as_the_uninterrupted_and_needs_no_folder(run, file, folder, tmp_path, monkeypatch, capsys):
    """Ctrl-C while a chunk of steps runs: it is finished and saved, and the user is told how to go on."""
    source, path = shutil.copytree(folder, tmp_path / "source"), tmp_path / "stopped"
    steps, stop = fit.run_steps, 2  # before the first checkpoint

    def stopped(state, *args):
        if int(state.step) == stop - 2:
            signal.raise_signal(signal.SIGINT)
        return steps(state, *args)

    monkeypatch.setattr(train, "finish", fit.fit)
    monkeypatch.setattr(fit, "run_steps", stopped)
    flags = words(file, "--init_from", source, *LOW_RANK, "--dropout", 0.1, "--run_dir", path)
    assert cli.main(["train", *flags]) == 130
    assert f"stopped at step {stop} and saved: `apformer resume {path}` continues" in capsys.readouterr().err
    assert selection.steps(path / "checkpoints")[-1] == stop
    monkeypatch.setattr(fit, "run_steps", steps)
    shutil.rmtree(source)
    assert cli.main(["resume", str(path)]) == 0
    abstract = fit.abstract_state(restore.load_settings(run))
    ours, theirs = (checkpoint.load(each / "checkpoints", abstract, 12)[1] for each in (path, run))
    for name in ("params", "opt_state"):
        assert jax.tree.all(equal(getattr(ours, name), getattr(theirs, name)))


def test_a_run_that_begins_anew_begins_with_the_same_model(run, tmp_path, fails):
    begun = tmp_path / "begun"  # as it is after a stop before the first checkpoint
    shutil.copytree(run, begun, ignore=shutil.ignore_patterns("checkpoints"))
    config = read_json(begun / "config.json")
    write_json(begun / "config.json", config | {"init_from_sha256": "0" * 64})
    said = f"the model that {begun} started from (--init_from) has changed: restore it"
    fails(said, DATA, "resume", begun)


def test_the_end_of_a_text_is_the_special_token_of_the_tokenizer(folder, random_params, tmp_path):
    ends = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ends.add_special_tokens(["<|endoftext|>", "[PAD]"])
    cfg = replace(CFG, vocab_size=ends.get_vocab_size())
    for tokenizer, end in ((text.BytePairs(ends), cfg.vocab_size - 2), (None, None)):
        path = tmp_path / str(end)
        export.write_gpt2(path, random_params(cfg), cfg, tokenizer)
        said = read_json(path / "config.json")
        assert said["bos_token_id"] == said["eos_token_id"] == end
        if tokenizer is not None:
            told = read_json(path / "tokenizer_config.json")
            assert told["eos_token"] == told["bos_token"] == "<|endoftext|>"


def test_an_exported_folder_is_the_merged_model_as_are_adapters_on_their_base(run, folder, file, tmp_path, says, fails):
    merged, adapter = tmp_path / "merged", tmp_path / "adapter"
    said = says("export", run, "--to", "gpt2", "--out", merged)
    assert said.startswith(f"{merged}: the model of {run} at step ")
    says("export", run, "--to", "lora", "--out", adapter)
    found, expected = language_model.load(merged), language_model.load(run)
    assert replace(found.model.cfg, dropout=0.0) == CFG
    assert jax.tree.all(equal(found.model.params, expected.model.params))
    assert found.tokenizer.encode(TEXT).tolist() == expected.tokenizer.encode(TEXT).tolist()
    params = language_model.load(folder, adapter=adapter).model.params
    close = jax.tree.map(lambda ours, theirs: np.allclose(ours, theirs, rtol=0, atol=1e-6), params, found.model.params)
    assert jax.tree.all(close)
    for command, *flags in (("generate", "--prompt", "the ", "--temperature", "0"), ("evaluate", "--text", str(file))):
        assert says(command, folder, "--adapter", adapter, *flags) == says(command, merged, *flags)
    other = ["generate", merged, "--adapter", adapter]
    fails("was trained on another base", CHECKPOINT, *other)
    fails("adapter_config.json cannot be read", CHECKPOINT, "generate", folder, "--adapter", folder)
    fails("is a GPT-2 folder: name", USAGE, "export", folder, "--to", "lora")
    fails("holds files", USAGE, "export", run, "--to", "lora", "--out", adapter)
    fails("--adapter belongs to --text", USAGE, "evaluate", run, "--adapter", adapter)


def test_an_option_of_the_positions_that_contradicts_the_run_is_refused_by_name(file, tmp_path, fails):
    shape = "--d_model 16 --n_heads 2 --n_layers 1 --position fire --bias_width 4".split()
    settings, rows = settings_of(file, *shape, "--run_dir", tmp_path / "run")
    train.keep(settings, fit.initial_state(settings).params, rows)
    given = ["train", *words(file, "--init_from", tmp_path / "run"), "--bias_width", 8, "--run_dir", tmp_path / "other"]
    sentence = f"--bias_width 8 contradicts --init_from {tmp_path / 'run'}, whose bias_width is 4: drop the flag"
    fails(sentence, USAGE, *given)


def test_flags_that_contradict_the_model_are_refused_by_name(file, folder, tmp_path, fails):
    for flags, sentence in (
        ("--lora_rank 7", "--lora_rank 7 is out of range: give 0 to 6, the width of the model"),
        ("--lora_on heads", "--lora_on heads is none of all, attention"),
        ("--lora_alpha nan", "--lora_alpha nan is out of range"),
        ("--context 14", "--context 14 is out of range: give at most 13, the positions of"),
        ("--n_layers 3", f"--n_layers 3 contradicts --init_from {folder}, whose n_layers is 2: drop the flag"),
        ("--tokenizer byte_pairs", f"--tokenizer byte_pairs contradicts --init_from {folder}, which has"),
        ("--architecture recurrent", "--architecture recurrent contradicts"),
    ):
        given = ["train", *words(file, "--init_from", folder), *flags.split(), "--run_dir", tmp_path / "run"]
        fails(sentence, USAGE, *given)
        assert not (tmp_path / "run").exists()


def test_places_that_hold_no_model_are_told_apart(file, folder, run, tmp_path, fails):
    get = "`hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2` fetches the published GPT-2"
    bare, empty, stopped = (tmp_path / name for name in ("bare", "empty", "stopped"))
    gpt2.save(bare, gpt2.load(folder)[1], CFG)
    empty.mkdir()
    shutil.copytree(run, stopped, ignore=shutil.ignore_patterns("checkpoints"))
    for place, sentence, code in (
        (tmp_path / "nowhere", get, USAGE),
        (empty, get, USAGE),
        (bare, "holds no tokenizer: put its tokenizer.json there", DATA),
        (stopped, "holds no checkpoint", CHECKPOINT),
    ):
        fails(sentence, code, "generate", place)
        fails(sentence, code, "train", *words(file, "--init_from", place), "--run_dir", tmp_path / "run")
        assert not (tmp_path / "run").exists()
    fails("--member 1 is of a population", USAGE, "generate", folder, "--member", 1)
    pretrained.save(text.train_byte_pairs(TEXT, 270), bare / "tokenizer.json")
    other = "has a vocabulary of 257 tokens and the tokenizer one of 270: give the tokenizer"
    fails(other, DATA, "train", *words(file, "--init_from", bare), "--run_dir", tmp_path / "run")
