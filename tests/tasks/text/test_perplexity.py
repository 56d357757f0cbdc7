"""The cost of a text: each token counts once in one window; a run on its own text and on another; bad input."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from apformer.errors import DATA, USAGE
from apformer.tasks.text import corpus, perplexity, training

TOKENS = np.arange(100, 111)  # eleven


def counted(window, stride):
    """The rows as text: tokens, and in brackets those that count after them."""
    _, _, rows = perplexity.cuts(len(TOKENS), window, stride)
    lines = []
    for tokens_T, weights_T in zip(*perplexity.windows(TOKENS, window, stride, np.arange(rows)), strict=True):
        pairs = zip(tokens_T[:-1] - 100, tokens_T[1:] - 100, weights_T[1:], strict=True)
        lines.append(" ".join(f"{a}({b})" if counts else f"{a}" for a, b, counts in pairs))
    return lines


def test_windows_by_hand():
    assert counted(4, None) == ["0(1) 1(2) 2(3) 3(4)", "4(5) 5(6) 6(7) 7(8)", "8(9) 9(10) 10 -100"]
    assert counted(4, 4) == ["0(1) 1(2) 2(3)", "4(5) 5(6) 6(7)", "8(9) 9(10) 10"]
    assert counted(4, 2)[:2] == ["0(1) 1(2) 2(3)", "2 3(4) 4(5)"]


def test_the_validation_part_is_predicted_whole_in_batches(monkeypatch):
    monkeypatch.setattr(perplexity, "MOST_TOKENS", 8)
    settings = SimpleNamespace(data=corpus.Config("some file", context=4))
    tokens_NRT, weights_NRT = training.validation(settings, SimpleNamespace(validation=TOKENS))
    assert tokens_NRT.shape == (2, 2, 5) and tokens_NRT.dtype == np.int32
    np.testing.assert_array_equal(tokens_NRT[weights_NRT > 0], TOKENS[1:])


@pytest.fixture(scope="module")
def run(made_run):
    return str(made_run("text"))


def test_a_run_on_another_text(run, tmp_path, says):
    (tmp_path / "text.txt").write_text("the bottles stand on the wall\n" * 3)
    words = ["evaluate", run, "--text", str(tmp_path / "text.txt")]
    figures = []
    for flags in ([], ["--window", "1"], ["--window", "9", "--stride", "4"]):
        figures.append(json.loads(says(*words, "--json", *flags)))
    for found, window, stride in zip(figures, (24, 1, 9), (None, None, 4), strict=True):
        assert (found["tokens"], found["predicted"], found["bytes"]) == (90, 89, 89)
        assert (found["window"], found["stride"]) == (window, stride)
        assert found["perplexity"] == pytest.approx(math.exp(found["nats_per_token"]))
        assert found["bits_per_byte"] == pytest.approx(found["nats_per_token"] / math.log(2))
    assert len({found["nats_per_token"] for found in figures}) == 3
    assert "89 of 90 tokens predicted (89 bytes), in windows of 24: " in says(*words)


@pytest.mark.parametrize(
    ("content", "flags", "exit_code", "sentence"),
    [
        ("the", ["--window", "25"], USAGE, "--window 25 is out of range: give 1 to 24"),
        ("the", ["--stride", "25"], USAGE, "--stride 25 is out of range: give 1 to 24"),
        ("t", [], DATA, "the text has 1 tokens, and at least two are needed"),
        ("the \U0001f642", [], DATA, "text.txt: character 5 is"),
        (None, [], DATA, "text.txt cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, fails, content, flags, exit_code, sentence):
    if content is not None:
        (tmp_path / "text.txt").write_text(content, encoding="utf-8")
    fails(sentence, exit_code, "evaluate", run, "--text", tmp_path / "text.txt", *flags)


def test_flags_of_a_text_need_one(run, fails):
    for flags in (["--stride", "3"], ["--window", "0"], ["--special_tokens"]):
        fails(f"{flags[0]} belongs to --text", USAGE, "evaluate", run, *flags)
