"""apformer tokenize: learns, encodes, decodes, and shows how a text is cut; bad input is one sentence."""

import json

import pytest

from apformer import cli, tasks
from apformer.errors import DATA, DISK, USAGE
from apformer.files import read_json, write_json
from apformer.tasks import settings_file
from apformer.tokenizers import pretrained
from tests.helpers.small_texts import TEXTS
from tests.tokenizers.test_pretrained import write_gpt2

pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "book.txt"
    path.write_text(TEXTS["english"], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(book):
    path = book.parent / "tokenizer.json"
    assert cli.main(["tokenize", "--train", str(book), "--vocab_size", "300", "--out", str(path)]) == 0
    return path


def test_a_tokenizer_is_learned_and_saved(book, trained, says):
    assert pretrained.load(trained).vocab_size == 300
    assert says("tokenize", trained) == f"{trained}: 300 tokens, byte pairs\n"
    out = book.parent / "characters.json"
    size = len(set(TEXTS["english"]))
    assert (
        says("tokenize", "--train", book, "--by", "characters", "--out", out) == f"{out}: {size} tokens, characters\n"
    )
    assert json.loads(says("tokenize", out, "--text", "old", "--json"))["pieces"] == ['"o"', '"l"', '"d"']


def test_ids_and_pieces_of_a_text_of_gpt2(tmp_path, says):
    folder = write_gpt2(tmp_path)
    assert says("tokenize", folder, "--text", "the the") == 't|he| the\n\n    83  "t"\n   257  "he"\n   258  " the"\n'
    assert json.loads(says("tokenize", folder, "--text", "é", "--json"))["pieces"] == ['"\\xc3"', '"\\xa9"']


def test_the_merges_that_led_to_a_text(tmp_path, says):
    shown = says("tokenize", write_gpt2(tmp_path), "--text", "the the", "--merges").splitlines()
    assert shown[-2:] == [
        '"t" "h" "e" -> "t" "he"',
        '" " "t" "h" "e" -> " t" "h" "e" -> " t" "he" -> " the"',
    ]


def test_decode_inverts_encode(book, trained, says):
    ids = says("tokenize", trained, "--file", book).split()
    assert says("tokenize", trained, "--decode", *ids) == TEXTS["english"] + "\n"
    beginning = json.loads(says("tokenize", trained, "--decode", *ids[:5], "--json"))["text"]
    assert beginning and TEXTS["english"].startswith(beginning)


def test_a_file_is_shown_cut(book, trained, says):
    shown = says("tokenize", trained, "--file", book, "--cut")
    assert shown.replace("|", "") == TEXTS["english"] + "\n"
    assert shown.count("|") == len(says("tokenize", trained, "--file", book).split()) - 1
    assert json.loads(says("tokenize", trained, "--file", book, "--cut", "--json"))["pieces"]


def test_a_terminal_shows_colours_unless_no_color_is_set(tmp_path, says, monkeypatch):
    folder = write_gpt2(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[38;5;16;48;5;222mhe\x1b[0m" in says("tokenize", folder, "--text", "the the").splitlines()[0]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert says("tokenize", folder, "--text", "the the").splitlines()[0] == "t|he| the"


def test_special_tokens_are_read_if_allowed(tmp_path, says):
    folder = write_gpt2(tmp_path)
    assert json.loads(says("tokenize", folder, "--text", "he<|endoftext|>", "--special_tokens", "--json"))[
        "tokens"
    ] == [257, 259]


@pytest.mark.parametrize(
    ("args", "sentence", "exit_code"),
    [
        ((), "no tokenizer is named", USAGE),
        (("TOKENIZER", "--text", "a", "--decode", "1"), "--text and --decode exclude each other", USAGE),
        (("TOKENIZER", "--train", "BOOK", "--out", "new"), "--train makes a new tokenizer: drop", USAGE),
        (("--train", "BOOK"), "--out is missing", USAGE),
        (("--train", "BOOK", "--out", "new.tiktoken"), "new.tiktoken has the ending of another format", USAGE),
        (("--train", "BOOK", "--out", "TOKENIZER"), "is there already and is not overwritten", USAGE),
        (("--train", "BOOK", "--out", "new", "--vocab_size", "9"), "--vocab_size 9 is under 256", USAGE),
        (("--train", "missing.txt", "--out", "new"), "missing.txt cannot be read", DATA),
        (("--train", "BOOK", "--out", "no/such/new"), "cannot write no/such (No such file", DISK),
        (("TOKENIZER", "--out", "new"), "--out is for --train: give --train, or drop it", USAGE),
        (("TOKENIZER", "--text", "a", "--cut"), "--cut is for --file", USAGE),
        (("TOKENIZER", "--merges"), "--merges is for --text", USAGE),
        (("TOKENIZER", "--special_tokens"), "--special_tokens is for --text or --file", USAGE),
        (("TOKENIZER", "--decode", "300"), "token 1 is 300, which the vocabulary lacks", DATA),
        (("missing", "--text", "a"), "missing cannot be read", DATA),
    ],
)
def test_bad_input_is_one_sentence(book, trained, tmp_path, monkeypatch, fails, args, sentence, exit_code):
    monkeypatch.chdir(tmp_path)
    known = {"TOKENIZER": trained, "BOOK": book}
    fails(sentence, exit_code, "tokenize", *(known.get(arg, arg) for arg in args))
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_tokenizer_says_so(tmp_path, fails):
    write_json(tmp_path / "config.json", settings_file.to_dict(tasks.load("progressions").RECIPES["exact"]()))
    sentence = "is a run of progressions, which has no tokenizer: name a run"
    fails(sentence, USAGE, "tokenize", tmp_path, "--text", "007")


def test_pieces_that_no_merges_make_are_shown_without_them(trained, tmp_path, says, fails):
    content = read_json(trained)
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [[piece, -1.0] for piece in content["model"]["vocab"]]}
    file = tmp_path / "tokenizer.json"
    write_json(file, content)
    assert says("tokenize", file, "--text", "old")
    said = "this tokenizer cuts in another way: drop it"
    fails(said, USAGE, "tokenize", file, "--text", "old", "--merges")
