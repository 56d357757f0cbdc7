"""Tokens in files: windows across files, and runs that end with the bits of a text in memory."""

import json
import os
import shutil

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer import cli
from apformer.commands import train as command
from apformer.errors import DATA, USAGE
from apformer.files import read_json, write_json
from apformer.runs import checkpoint, feed, fit, recipes, restore
from apformer.tasks.text import corpus, shards, training
from apformer.tokenizers.text import Characters, train_characters
from tests.helpers.own_process import python
from tests.helpers.refusals import refused
from tests.helpers.small_runs import TEXT

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe baby_gpt_cpu --d_model 16 --n_heads 2 --n_layers 1 --rule adamw --steps 30 --log_every 7 --save_every 14 "
    "--batch_size 4 --context 12"
).split()


def write(folder, tokenizer, train_N, validation_N, shard_tokens, characters=7):
    """A folder of tokens, handed to the Writer in some parts."""
    folder.mkdir()
    writer = shards.Writer(folder, tokenizer, shard_tokens)
    for part_N in np.array_split(train_N, 3):
        writer.add(part_N)
    writer.close(validation_N, characters)
    return folder


class Wide(Characters):
    """A tokenizer of 70,000 characters, most of which no token of a test needs."""


WIDE = Wide("".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0xE000 + 70_000 - 0xD800 + 0x20)])))


@settings(max_examples=8)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 12), st.sampled_from([WIDE, Characters("ab")]), st.data())
def test_windows_are_those_of_one_row_of_tokens(tmp_path_factory, length, shard_tokens, window, tokenizer, data):
    window = min(window, length)
    tokens_N = np.random.default_rng(length).integers(0, tokenizer.vocab_size, length)
    folder = write(tmp_path_factory.mktemp("data") / "tokens", tokenizer, tokens_N, tokens_N[:1], shard_tokens)
    found = shards.read(folder)
    assert len(found.train) == length and len(found.train.paths) == -(-length // shard_tokens)
    assert found.train.dtype == (np.uint32 if tokenizer is WIDE else np.uint16)
    assert found.tokenizer.vocab_size == tokenizer.vocab_size and found.validation.tolist() == [tokens_N[0]]
    start_R = np.array(data.draw(st.lists(st.integers(0, length - window), max_size=6)), np.int64)
    expected = [tokens_N[start : start + window].tolist() for start in start_R]
    read = found.train.windows(start_R, window)
    assert read.tolist() == expected and read.shape == (len(start_R), window)


def test_the_bytes_of_a_folder(tmp_path):
    """Little-endian, one after the other, each file full before the next; the manifest says so."""
    write(tmp_path / "d", Characters("abc"), np.array([0, 1, 2, 1, 0]), np.array([2, 2]), 2)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    assert contents["000000.bin"] == b"\0\0\1\0" and contents["000002.bin"] == b"\0\0"
    assert contents["validation.bin"] == b"\2\0\2\0" and len(contents) == 6
    manifest = json.loads(contents["manifest.json"])
    assert [shard["tokens"] for shard in manifest["train"]] == [2, 2, 1] and manifest["dtype"] == "uint16"


def test_places_beyond_32_bits():
    """Drawn with 64 bits, uniformly: the same of the same key, from all of the text."""
    places = 5 * 10**9
    drawn = np.asarray(corpus.draw(jax.random.key(0), places, 4000))
    start_B = corpus.starts(drawn, places)
    assert drawn.shape == (4000, 2) and start_B.dtype == np.int64 and 0 <= start_B.min() and start_B.max() < places
    counts = np.histogram(start_B, 10, (0, places))[0]
    assert (abs(counts - 400) < 5 * np.sqrt(400)).all()
    assert corpus.starts(np.array([[1, 2], [0, 7]], np.uint32), places).tolist() == [2**32 + 2, 7]
    few = np.asarray(corpus.draw(jax.random.key(0), 2**31 - 1, 9))
    assert few.dtype == np.int32 and (corpus.starts(few, 2**31 - 1) == few).all()


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory):
    """The tokens of the file, as one that is read at once has them."""
    rows = training.read_rows(recipes.parse([*FLAGS, "--text", str(file)]))
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    return write(path, rows.tokenizer, rows.train, rows.validation, 1000, rows.validation_characters)


def trained(path, text, *flags, step=30):
    """The state at the end of a run, which is not evaluated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "finish", fit.fit)
        assert cli.main(["train", *FLAGS, *flags, "--text", str(text), "--run_dir", str(path)]) == 0
    return state(path, step)


def state(path, step=30):
    """The parameters, and what the optimizer keeps, at a step."""
    settings = restore.load_settings(path)
    abstract = fit.abstract_state(settings)
    found = checkpoint.load(path / "checkpoints", abstract, step)[1]
    return found.params, found.opt_state


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def in_memory(file, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("memory") / "run", file)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """A run that is fed three steps at a time."""
    path = tmp_path_factory.mktemp("shards") / "run"
    steps = []
    run_steps = fit.run_steps

    def counted(state, train_rows, settings, count, *args):
        steps.append(count)
        return run_steps(state, train_rows, settings, count, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "MOST", 3 * 4 * 13 * 2)
        patch.setattr(fit, "run_steps", counted)
        trained(path, folder)
    assert steps == [3, 3, 1] * 4 + [2]
    return path


def test_a_run_from_files_and_a_resumed_one_have_the_bits_of_one_from_memory(in_memory, run, monkeypatch):
    same(state(run), in_memory)
    monkeypatch.setattr(command, "finish", fit.fit)
    assert cli.main(["resume", str(run), "--step", "14"]) == 0
    same(state(run), in_memory)


def test_so_have_members_on_several_devices(file, folder, tmp_path):
    """Devices are forced before JAX starts."""
    flags = "--members 2 --accumulate 2 --steps 14".split()
    script = f"""
from apformer import cli
from apformer.commands import train
from apformer.runs import fit
train.finish = fit.fit
for name, text in (("memory", {str(file)!r}), ("shards", {str(folder)!r})):
    words = ["--text", text, "--run_dir", {str(tmp_path)!r} + "/" + name]
    assert cli.main(["train", *{FLAGS + flags}, *words]) == 0
"""
    python("-c", script, JAX_NUM_CPU_DEVICES="2")
    same(state(tmp_path / "shards", 14), state(tmp_path / "memory", 14))


def test_commands_read_no_token_of_the_training_part(run, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shards.Shards, "windows", None)
    for words in (["evaluate"], ["report"], ["generate", "--prompt", "the ", "--tokens", "5"]):
        assert cli.main([words[0], str(run), *words[1:]]) == 0, words
    assert read_json(run / "evaluation.json")["characters"] == len(TEXT) // 10
    assert "writes text like tokens" in (run / "report.html").read_text()


def change(folder, name, old, new):
    content = (folder / name).read_text()
    assert old in content
    (folder / name).write_text(content.replace(old, new))


MANIFEST = "manifest.json is damaged or of another version of apformer ("
FAULTS = {  # what is done to a folder, and what is said
    "no manifest": (
        lambda d: (d / "manifest.json").unlink(),
        "holds tokens of texts without a manifest.json, so perhaps not all of them: make a new folder of all files",
    ),
    "missing": (
        lambda d: (d / "000001.bin").unlink(),
        "000001.bin cannot be read (No such file or directory): restore it, or make a new folder with",
    ),
    "cut": (
        lambda d: os.truncate(d / "000001.bin", 1998),
        "000001.bin has 1,998 bytes instead of 2,000: restore it, or make a new folder with",
    ),
    "foreign": (
        lambda d: (d / "000001.bin").write_bytes(b"\xff" * 2000),
        f"000001.bin has token 65535, and its tokenizer or the model to train further has {len(set(TEXT))}",
    ),
    "version": (
        lambda d: change(d, "manifest.json", '"format": 1', '"format": 2'),
        MANIFEST + "ValueError('format 2')): restore it",
    ),
    "elsewhere": (
        lambda d: change(d, "manifest.json", '"000001.bin"', '"../000001.bin"'),
        MANIFEST + "ValueError(\"a file '../000001.bin'",
    ),
    "tokenizer": (
        lambda d: (d / "tokenizer.json").write_text(train_characters("another text").to_json()),
        "tokenizer.json is not the file that was written there",
    ),
    "validation": (
        lambda d: (d / "validation.bin").write_bytes(b"\0" * (d / "validation.bin").stat().st_size),
        "validation.bin is not the file that was written there",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_folder_with_a_fault_is_refused(folder, tmp_path, capsys, kind):
    copy, (spoil, sentence) = shutil.copytree(folder, tmp_path / "copy"), FAULTS[kind]
    spoil(copy)
    assert cli.main(["train", *FLAGS, "--text", str(copy), "--run_dir", str(tmp_path / "run")]) == DATA
    said = capsys.readouterr().err.splitlines()[-1]
    assert sentence in said and str(copy) in said and "python datasets/text/prepare.py FILE... --out" in said
    assert (tmp_path / "run").exists() == (kind == "foreign")  # its tokens are looked at as they are read


@pytest.mark.parametrize("kind", ["missing", "cut"])
def test_a_file_that_is_spoilt_while_training_is_named(folder, tmp_path, kind):
    copy = shutil.copytree(folder, tmp_path / "copy")
    found = shards.read(copy).train
    FAULTS[kind][0](copy)
    with refused(DATA, "000001.bin (cannot be read|is cut short)"):
        found.windows(np.array([0, 1990]), 13)


def test_flags_that_a_folder_decides(folder, tmp_path, fails):
    other = tmp_path / "other.json"
    other.write_text(train_characters("another text").to_json())
    for flags, sentence, exit_code in (
        ("--validation_share 0.2", "--validation_share was fixed when", USAGE),
        ("--special_tokens", "--special_tokens was fixed when", USAGE),
        ("--tokenizer byte_pairs", "the tokenizer of byte_pairs is not the one that", DATA),
        (f"--tokenizer {other}", "other.json is not the one that", DATA),
        ("--context 900", f"the validation part of {folder} has 386 tokens, a row 901", DATA),
    ):
        fails(sentence, exit_code, "train", *FLAGS, "--text", folder, "--run_dir", tmp_path / "run", *flags.split())


def test_its_own_tokenizer_may_be_named_but_no_tokens_without_a_row_and_no_changed_folder(folder, run, tmp_path):
    """Equal data is an equal manifest; another text is none that a run was trained on."""
    words = [*FLAGS, "--text", str(folder), "--tokenizer", str(folder / "tokenizer.json")]
    config = read_json(run / "config.json")
    assert training.describe(*training.load(recipes.parse(words))) == config["data"]
    with refused(DATA, "has token 24, and its tokenizer or the model to train further has 9 tokens"):
        shards.read(folder, 9)
    copy = shutil.copytree(folder, tmp_path / "copy")
    config["flags"]["data"]["text"] = config["data"]["source"] = str(copy)
    write_json(tmp_path / "config.json", config)
    assert restore.load_rows(tmp_path).sha256 == config["data"]["sha256"]
    manifest = read_json(copy / "manifest.json")
    manifest["train"][0]["sha256"] = "that of other tokens"
    write_json(copy / "manifest.json", manifest)
    with refused(DATA, "has changed since"):
        restore.load_rows(tmp_path)
