"""A folder of tokens holds each document as the tokenizer cuts it, a token after each, in the order of the files."""

import json
from pathlib import Path

import numpy as np
import pytest

from apformer.errors import DATA, DISK, USAGE
from apformer.tasks.text import shards
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer
from tests.helpers.scripts import run_alone

SCRIPT = Path(__file__).parents[3] / "datasets" / "text" / "prepare.py"
DOCUMENTS = [
    "ein Haus, zwei Häuser\n" * 40,
    "日本語 no line end",
    "",
    *(f"document {k}, of a list\n\n" for k in range(40)),
]


@pytest.fixture
def prepare(monkeypatch, capsys):
    """The exit code of the script, and what it says, run in pieces of few characters."""

    def call(*words):
        monkeypatch.setattr(shards, "SHARD_TOKENS", 320)
        code = run_alone(monkeypatch, SCRIPT, *words)
        out, err = capsys.readouterr()
        return code, out + err

    return call


@pytest.fixture
def texts(tmp_path):
    """Two files, the documents in one and in two."""
    (tmp_path / "one.txt").write_bytes(DOCUMENTS[0].encode("utf-8-sig"))
    rows = [json.dumps({"text": text, "id": k}) for k, text in enumerate(DOCUMENTS[1:])]
    (tmp_path / "more.jsonl").write_text("\n\n".join(rows) + "\n")
    return tmp_path / "one.txt", tmp_path / "more.jsonl"


def tokens_of(folder):
    """(tokens of the training part, of the validation part, the tokenizer)"""
    found = shards.read(folder)
    return found.train.windows(np.array([0]), len(found.train))[0], found.validation, found.tokenizer


@pytest.mark.parametrize("flags", [[], ["--tokenizer", "byte_pairs", "--vocab_size", "270"]])
def test_documents_are_separated_by_the_end_token(prepare, texts, tmp_path, flags):
    code, said = prepare(*texts, "--out", tmp_path / "new" / "out", "--validation_tokens", 100, *flags)
    assert code == 0 and f"{len(DOCUMENTS)} documents" in said
    train_N, validation_N, tokenizer = tokens_of(tmp_path / "new" / "out")
    (end,) = tokenizer.special_tokens
    assert end == tokenizer.vocab_size - 1 and tokenizer.vocab_size <= (270 if flags else 99)
    expected = [tokenizer.encode(text).tolist() + [end] for text in DOCUMENTS]
    assert np.concatenate([train_N, validation_N]).tolist() == sum(expected, [])
    # The validation part begins with a document, since one begins in the first half of the last 100 tokens.
    assert train_N[-1] == end and 50 <= len(validation_N) < 100
    manifest = json.loads((tmp_path / "new" / "out" / "manifest.json").read_text())
    ended = tokenizer.decode(validation_N).replace(tokenizer.decode([end]), "")
    assert manifest["validation"]["characters"] == len(ended)


def test_the_ids_of_a_tokenizer_stay_as_they_are(prepare, texts, tmp_path):
    """A token for the end of a text comes last, and only if there is none."""
    first = text_tokenizer.train_characters("".join(DOCUMENTS))
    pretrained.save(first, tmp_path / "characters.json")
    assert prepare(*texts, "--out", tmp_path / "a", "--tokenizer", tmp_path / "characters.json")[0] == 0
    assert prepare(*texts, "--out", tmp_path / "b", "--tokenizer", tmp_path / "a")[0] == 0
    one, other = (tokens_of(tmp_path / name) for name in "ab")
    assert one[2] == other[2] and one[0].tolist() == other[0].tolist()
    assert one[2].encode("Haus").tolist() == first.encode("Haus").tolist()
    assert shards.read(tmp_path / "a").sha256 == shards.read(tmp_path / "b").sha256


def test_the_validation_part_of_one_long_document_is_cut_from_it(prepare, tmp_path):
    (tmp_path / "long.txt").write_text("abc\n" * 500)
    assert prepare(tmp_path / "long.txt", "--out", tmp_path / "out")[0] == 0
    train_N, validation_N, tokenizer = tokens_of(tmp_path / "out")
    assert len(validation_N) == 200 == (len(train_N) + len(validation_N)) // 10
    assert tokenizer.decode(np.concatenate([train_N, validation_N])[:-1]) == "abc\n" * 500


def test_special_tokens_are_read_if_they_are_allowed(prepare, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text.txt").write_text("a text of old\n" * 9 + "<|endoftext|>" + "another\n" * 9)
    flags = (tmp_path / "text.txt", "--tokenizer", "byte_pairs", "--vocab_size", "257", "--out")
    code, said = prepare(*flags, tmp_path / "a")
    place = "text.txt, after character 0: character 127 begins the special token <|endoftext|>: give --special_tokens"
    assert code == DATA and place in said
    assert prepare(*flags, tmp_path / "b", "--special_tokens")[0] == 0
    train_N, _, _ = tokens_of(tmp_path / "b")
    assert (train_N == 256).sum() == 1


GOOD = "good.txt --out out"


@pytest.mark.parametrize(
    ("flags", "sentence", "exit_code"),
    [
        ("", "no text is named: give text files", USAGE),
        ("good.txt", "--out is missing: name the new folder", USAGE),
        ("nowhere --out out", "nowhere is not a file: give text files", DATA),
        ("good.txt --out full", "full is not empty: give another --out", DATA),
        ("good.txt --out good.txt", "cannot write good.txt (File exists)", DISK),
        ("latin.txt --out out", "latin.txt is not UTF-8 at byte offset 1048578: convert it", DATA),
        ("bad.jsonl --out out", 'bad.jsonl, line 3: is not a JSON object with a field "text": fix', DATA),
        ("short.txt --out out", "short.txt and the texts after it are too short", DATA),
        ("empty.txt --out out", "the text is empty", DATA),
        (f"{GOOD} --tokenizer ab.json", "good.txt, after character 0: character 3 is", DATA),
        (f"{GOOD} --tokenizer byte_pairs", "--vocab_size is missing", USAGE),
        (f"{GOOD} --vocab_size 9", "--vocab_size 9 is for --tokenizer byte_pairs", USAGE),
        (f"{GOOD} --tokenizer byte_pairs --vocab_size 256", "--vocab_size 256 is out of range: give 257", USAGE),
        (f"{GOOD} --validation_tokens 1", "--validation_tokens 1 is out of range", USAGE),
    ],
)
def test_bad_input_is_named(prepare, tmp_path, monkeypatch, flags, sentence, exit_code):
    monkeypatch.chdir(tmp_path)
    contents = {
        "good.txt": b"abcde\n" * 20,
        "latin.txt": b"\n" * (2**20 - 1) + "日".encode() + b"\xff",
        "bad.jsonl": b'{"text": "a"}\n\n{"txt": "b"}\n',
        "short.txt": b"abc",
        "empty.txt": b"",
        "ab.json": text_tokenizer.train_characters("ab").to_json().encode(),
        "full/file": b"",
    }
    Path("full").mkdir()
    for name, content in contents.items():
        Path(name).write_bytes(content)
    code, said = prepare(*flags.split())
    assert code == exit_code and sentence in said.splitlines()[-1]
    assert not Path("out/manifest.json").exists()
