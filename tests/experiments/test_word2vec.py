"""`experiments/word2vec.py`: what is printed is kept, bad input is one sentence."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from apformer import errors, runs, word2vec
from apformer.runs import recipes
from apformer.tasks.words import corpus, evaluation

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "experiments" / "word2vec.py"
CLUSTERS, SIZE = 5, 7
FEW = ("--steps", "3", "--batch_size", "8", "--d_model", "4", "--min_count", "1")


def planted(passages=400, length=9):
    """Passages that each draw their words from one cluster: c0w0 to c0w6, c1w0 ..."""
    rng = np.random.default_rng(0)
    cluster_B, word_BT = rng.integers(0, CLUSTERS, passages), rng.integers(0, SIZE, (passages, length))
    return [[f"c{c}w{w}" for w in row] for c, row in zip(cluster_B, word_BT, strict=True)]


def main(monkeypatch, *args):
    """The exit code of the script."""
    monkeypatch.setattr("sys.argv", ["word2vec.py", *map(str, args)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return done.value.code


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(" ".join(row) for row in planted(40)))
    return path


def test_what_is_learned_is_kept_and_printed(text, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    assert main(monkeypatch, text, *FEW, "--words", "c0w0, C3W6", "--neighbours", "2", "--run_dir", path) == 0
    out = capsys.readouterr().out
    lines = [line.split("\t") for line in (path / corpus.FILE).read_text().splitlines()]
    vocabulary, loaded = [word for word, _ in lines], runs.load(path)
    assert sorted(vocabulary) == [f"c{c}w{w}" for c in range(CLUSTERS) for w in range(SIZE)]
    assert sum(int(count) for _, count in lines) == 360
    assert loaded.params["input"].shape == loaded.params["output"].shape == (35, 4)
    row = vocabulary.index("c3w6")
    nearest_BK, cosine_BK = word2vec.nearest(loaded.params, [row], 2)
    names = [f"{vocabulary[v]} {c:.2f}" for v, c in zip(nearest_BK[0], cosine_BK[0], strict=True)]
    assert f"c3w6  {', '.join(names)}\n" in out and out.startswith((path / "neighbours.txt").read_text())
    assert [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()] == [3]
    said = json.loads((path / "config.json").read_text())
    assert said["flags"]["options"]["words"] == "c0w0, C3W6" and said["data"]["vocabulary"] == 35
    assert said["data"]["words"] == {"train": 324, "validation": 36}
    assert (path / "figures" / "words.png").stat().st_size > 5000
    assert main(monkeypatch, text, *FEW, "--run_dir", path) == errors.USAGE
    assert "already holds a run" in capsys.readouterr().err


def test_without_a_file_the_words_are_the_characters_of_progressions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, *FEW, "--digits", "2") == 0
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert sorted(line[0] for line in table) == [*"0123456789", "␣"]
    assert all(len(line.split(", ")) == 8 for line in table)
    (run,) = (tmp_path / "runs").glob("*-words")
    assert (run / "figures" / "words.png").is_file()


def settings_of(*flags):
    return recipes.parse(["--recipe", "words", *map(str, flags)])


def test_frequent_words_are_thinned_out_of_a_text_and_not_of_progressions(text):
    assert settings_of("--text", text).data.subsample == 3e-4 and settings_of().data.subsample == 1
    assert settings_of("--text", text, "--subsample", 0.5).data.subsample == 0.5


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--words", "c0w0,c9w3"], errors.USAGE, "--words c9w3 is none of the 35 words that occur 1 times or more"),
        (["--words", "king,C3W66"], errors.USAGE, "--words king is none"),
        (["--words", "c3w66"], errors.USAGE, "or ask for a word such as c3w6"),
        (["--min_count", "1000"], errors.DATA, "has 0 words that occur 1000 times or more, too few"),
        (["--d_model", "1"], errors.USAGE, "--d_model 1 is out of range: give at least 2"),
        (["--window", "0"], errors.USAGE, "--window 0 is out of range: give 1 to 2147483647"),
        (["--subsample", "0"], errors.USAGE, "--subsample 0.0 is out of range: give more than 0 and at most 1"),
        (["--learning_rate", "nan"], errors.USAGE, "--learning_rate nan is out of range"),
        (["--seed", "-1"], errors.USAGE, "--seed -1 is out of range"),
        (["--variant", "glove"], errors.USAGE, "--variant"),
        (["--widnow", "3"], errors.USAGE, "did you mean --window?"),
    ],
)
def test_a_wrong_flag_is_one_sentence_before_anything_is_made(
    flags, code, sentence, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, text, *FEW, *flags) == code
    said = capsys.readouterr().err
    assert sentence in said and said.startswith("apformer: ") and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(("word", "near"), [("king", "crown"), ("crowns", "crown"), ("throns", "throne")])
def test_a_word_that_is_missing_is_no_reason_to_ask_for_a_frequent_one(word, near, tmp_path):
    """`in` is spelled like `king` more than any other word here, and its neighbours say nothing."""
    (tmp_path / "text.txt").write_text("in in in in the the the crown crown throne sword")
    settings = settings_of("--text", tmp_path / "text.txt", "--min_count", 1, "--words", word)
    vocabulary = corpus.read(settings.data).vocabulary
    with pytest.raises(
        errors.UserError, match=f"--words {word} is none of the 5 .*lower --min_count, .* such as {near}$"
    ):
        evaluation.asked(settings, vocabulary)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"to be \xe9 or", "text.txt is no UTF-8 at byte offset 6"),
        (b"", "text.txt has 0 words"),
        (b"to be to be", "has 2 words that occur 1 times or more, too few to have neighbours: give a longer text"),
        (b"to\n\nbe\n\nor", "too few to have neighbours"),
        (b"to be or not\n\nto", "the validation part of {path} has no two words of one passage: give a longer text"),
    ],
)
def test_a_bad_text_is_one_sentence(content, sentence, tmp_path, monkeypatch, capsys):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, path, *FEW) == errors.DATA
    assert sentence.format(path=path) in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_help_names_the_file(monkeypatch, capsys):
    assert main(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith("Vectors of words: `python experiments/word2vec.py FILE") and "--negatives" in out
