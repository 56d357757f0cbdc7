"""`experiments/word2vec.py`: planted clusters are recovered, what is printed is kept, bad input is one sentence."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from apformer import errors, word2vec
from apformer.tokenizers import words

SCRIPT = Path(__file__).parents[2] / "experiments" / "word2vec.py"
spec = importlib.util.spec_from_file_location("experiments_word2vec", SCRIPT)
script = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = script  # where --help looks for what a flag means
spec.loader.exec_module(script)

CLUSTERS, SIZE = 5, 7
FEW = ("--steps", "3", "--batch_size", "8", "--d_model", "4", "--min_count", "1")


def planted(passages=400, length=9):
    """Passages that each draw their words from one cluster: c0w0 to c0w6, c1w0 ..."""
    rng = np.random.default_rng(0)
    cluster_B, word_BT = rng.integers(0, CLUSTERS, passages), rng.integers(0, SIZE, (passages, length))
    return [[f"c{c}w{w}" for w in row] for c, row in zip(cluster_B, word_BT, strict=True)]


@pytest.mark.parametrize("architecture", ["cbow", "skip_gram"])
@pytest.mark.parametrize("loss", ["softmax", "negative"])
def test_planted_clusters_are_recovered(architecture, loss):
    """All neighbours of all words are of their cluster: the six nearest are its six other words."""
    passages = planted()
    vocabulary, counts_V = words.count(passages, 1)
    args = script.Word2vec(
        architecture=architecture, loss=loss, d_model=11, window=3, steps=300, batch_size=64, learning_rate=0.02
    )
    params = script.fit(args, words.encode(passages, vocabulary), counts_V)
    near = script.neighbours(params, vocabulary, vocabulary, SIZE - 1)
    strays = [(word, v) for word, row in near.items() for v, _ in row if v[:2] != word[:2]]
    assert len(near) == CLUSTERS * SIZE and not strays


def main(monkeypatch, *args):
    monkeypatch.setattr("sys.argv", ["word2vec.py", *map(str, args)])
    return script.main()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(" ".join(row) for row in planted(40)))
    return path


def test_what_is_learned_is_kept_and_printed(text, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    assert main(monkeypatch, text, *FEW, "--words", "c0w0, C3W6", "--neighbours", "2", "--run_dir", path) == 0
    out = capsys.readouterr().out
    kept = np.load(path / "vectors.npz")
    vocabulary = kept["words"].tolist()
    assert sorted(vocabulary) == [f"c{c}w{w}" for c in range(CLUSTERS) for w in range(SIZE)]
    assert kept["counts"].sum() == 360 and kept["input"].shape == kept["output"].shape == (35, 4)
    row = vocabulary.index("c3w6")
    nearest_BK, cosine_BK = word2vec.nearest({"input": kept["input"]}, [row], 2)
    names = [f"{vocabulary[v]} {c:.2f}" for v, c in zip(nearest_BK[0], cosine_BK[0], strict=True)]
    assert f"c3w6  {', '.join(names)}\n" in out and out.startswith((path / "neighbours.txt").read_text())
    assert [json.loads(line)["step"] for line in (path / "loss.jsonl").read_text().splitlines()] == [3]
    said = json.loads((path / "word2vec.json").read_text())
    assert said["flags"]["words"] == "c0w0, C3W6" and said["text"] == {"words": 360, "vocabulary": 35}
    assert (path / "vectors.png").stat().st_size > 5000
    assert main(monkeypatch, text, *FEW, "--run_dir", path) == errors.USAGE
    assert "holds other files: give a new or an empty directory" in capsys.readouterr().err


def test_the_same_flags_give_the_same_vectors_and_another_seed_others(text):
    args = script.Word2vec(file=str(text), d_model=4, steps=3, batch_size=8, min_count=1)
    _, counts_V, corpus = script.read(args)
    one, again = (script.fit(args, corpus, counts_V)["input"] for _ in range(2))
    other = script.fit(script.Word2vec(**(vars(args) | {"seed": 1})), corpus, counts_V)["input"]
    np.testing.assert_array_equal(one, again)
    assert (np.asarray(one) != np.asarray(other)).any()


def test_without_a_file_the_words_are_the_characters_of_progressions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, *FEW, "--digits", "2") == 0
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert sorted(line[0] for line in table) == [*"0123456789", "␣"]
    assert all(len(line.split(", ")) == 8 for line in table)
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("-word2vec") and (run / "vectors.png").is_file()


def test_words_not_named_are_those_of_doubling_rank(text):
    args = script.Word2vec(file=str(text), min_count=1)
    vocabulary, _, _ = script.read(args)
    assert script.asked(args, vocabulary) == [vocabulary[rank - 1] for rank in (1, 2, 4, 8, 16, 32)]


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--words", "c0w0,c9w3"], errors.USAGE, "--words c9w3 is none of the 35 words that occur 1 times or more"),
        (["--words", "king,C3W66"], errors.USAGE, "--words king is none"),
        (["--words", "c3w66"], errors.USAGE, r"did you mean c3w6?"),
        (["--min_count", "1000"], errors.DATA, "has 0 words that occur 1000 times or more, too few"),
        (["--d_model", "1"], errors.USAGE, "--d_model 1 is out of range: give at least 2"),
        (["--window", "0"], errors.USAGE, "--window 0 is out of range: give 1 to 2147483647"),
        (["--subsample", "0"], errors.USAGE, "--subsample 0.0 is out of range: give more than 0 and at most 1"),
        (["--learning_rate", "nan"], errors.USAGE, "--learning_rate nan is out of range"),
        (["--seed", "-1"], errors.USAGE, "--seed -1 is out of range"),
        (["--architecture", "glove"], errors.USAGE, "--architecture"),
        (["--widnow", "3"], errors.USAGE, "did you mean --window?"),
    ],
)
def test_a_wrong_flag_is_one_sentence_before_anything_is_made(
    flags, code, sentence, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, text, *FEW, *flags) == code
    said = capsys.readouterr().err
    assert sentence in said and said.startswith("word2vec.py: ") and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"to be \xe9 or", "text.txt is no UTF-8 at byte offset 6"),
        (b"", "text.txt has 0 words"),
        (b"to be to be", "has 2 words that occur 1 times or more, too few to have neighbours: give a longer text"),
        (b"to\n\nbe\n\nor", "too few to have neighbours"),
    ],
)
def test_a_bad_text_is_one_sentence(content, sentence, tmp_path, monkeypatch, capsys):
    (tmp_path / "text.txt").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, tmp_path / "text.txt", *FEW) == errors.DATA
    assert sentence in capsys.readouterr().err


def test_digits_out_of_range_are_refused(monkeypatch, capsys):
    assert main(monkeypatch, "--digits", "0") == errors.USAGE
    assert "--digits 0 does not fit: give 1 to 9 digits" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_stops_it(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        script.word2vec,
        "init",
        lambda key, cfg: dict.fromkeys(("input", "output"), np.full((35, 4), np.nan, np.float32)),
    )
    args = [text, *FEW, "--seed", "5", "--run_dir", tmp_path / "run"]
    assert main(monkeypatch, *args) == errors.NON_FINITE
    assert "the loss is not finite at step 3: lower --learning_rate" in capsys.readouterr().err
