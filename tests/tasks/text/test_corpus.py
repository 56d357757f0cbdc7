"""A text is cut into its training and its validation part, and what is no text is refused."""

import json
import os

import pytest

from apformer import cli
from apformer.errors import DATA, USAGE, UserError
from apformer.runs import recipes, restore
from apformer.tasks import settings_file
from apformer.tasks.text import corpus, training
from tests.helpers.refusals import refused
from tests.helpers.small_runs import TEXT


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_the_parts_of_a_text_make_the_whole(share):
    whole = "a text of some length, to be cut"
    first, last = corpus.split(whole, corpus.Config("", validation_share=share))
    assert first + last == whole and len(last) == pytest.approx(share * len(whole), abs=1)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "latin").write_bytes("naïve".encode("latin-1"))
    for name, sentence in (
        ("latin", "latin is not UTF-8 at byte offset 2"),
        ("nowhere", "nowhere cannot be read"),
        ("/dev/zero", "it is a device"),
    ):
        with refused(DATA, sentence):
            corpus.read(tmp_path / name)


@pytest.fixture
def books(tmp_path):
    """A folder with texts and other things in it."""
    folder = tmp_path / "books"
    for part in ("more", ".git", "runs/a", "tokens", "nothing"):
        (folder / part).mkdir(parents=True)
    for name in ("1.txt", "10.txt", "2.txt"):
        (folder / name).write_text(f"{name} {TEXT}")
    (folder / "more/marked.md").write_bytes(b"\xef\xbb\xbflast")
    for name, content in {"latin": b"na\xefve", "utf-16": "hi".encode("utf-16-le"), "zeros": bytes(9)}.items():
        (folder / name).write_bytes(content)
    for name in (".hidden", ".git/config", "runs/a/config.json", "runs/a/metrics.jsonl", "tokens/000000.bin"):
        (folder / name).write_text("{}")
    os.truncate(folder / "zeros", 2**40)  # which no memory holds
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to(".")
    return folder


def test_a_folder_of_texts_is_read_and_what_is_skipped_is_said(books, capsys):
    assert corpus.read(books) == "\n\n".join([*(f"{name}.txt {TEXT}" for name in (1, 10, 2)), "last"])
    skipped = ", ".join(f"{books}/{name}" for name in ("dangling", "latin", "pipe", "runs/a", "tokens"))
    why = "7 skipped, not UTF-8 text or part of a run, a model or tokens"
    assert capsys.readouterr().err == f"{books}: 4 texts read; {why}: {skipped}, ...\n"


def test_files_of_the_system_are_no_texts_and_a_path_that_no_file_can_have_is_refused(tmp_path, capsys):
    (tmp_path / "status").symlink_to("/proc/self/status")  # whose neighbours never end
    (tmp_path / "text").write_text(TEXT)
    assert corpus.read(tmp_path) == TEXT
    assert capsys.readouterr().err.startswith(f"{tmp_path}: 1 text read; 1 skipped")
    with pytest.raises(UserError, match="cannot be read .embedded null byte.: restore it, or give another"):
        corpus.read("a\0b")


@pytest.mark.parametrize("part", ["nothing", "runs", "tokens"])
def test_a_folder_without_a_text_is_refused_and_nobody_is_told_to_delete_it(books, monkeypatch, capsys, part):
    monkeypatch.chdir(books / part)
    for words in ("train --recipe text --text", "train --recipe words --text", "tokenize --out ../o --train"):
        assert cli.main([*words.split(), "."]) == DATA
        said = capsys.readouterr().err.splitlines()[-1]
        assert "delete" not in said and (".: 0 texts read" in said or ". holds tokens of texts" in said)


def test_a_run_of_a_folder_knows_it_again(books, tmp_path):
    words = "--recipe baby_gpt_cpu --d_model 16 --n_heads 2 --n_layers 1 --context 12 --text".split()
    settings, rows = training.load(recipes.parse([*words, str(books)]))
    told = training.describe(settings, rows)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(settings_file.to_dict(settings) | {"data": told}))
    (books / "another image").write_bytes(b"\xff")
    assert (restore.load_rows(run).train == rows.train).all()
    (books / "1.txt").write_text(TEXT)
    with pytest.raises(UserError, match="books has changed since .*run was trained on it"):
        restore.load_rows(run)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": None}, "--text is missing"),
        ({"context": 0}, "--context 0 is out of range"),
        ({"validation_share": 1.0}, "--validation_share 1.0 is out of range"),
    ],
)
def test_flags_that_no_text_can_follow(changes, sentence):
    with refused(USAGE, sentence):
        corpus.check(corpus.Config(**({"text": "file"} | changes)))
