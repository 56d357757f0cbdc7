"""Studies of terms of any width: what training rows hold and show, and many and very long terms that a run writes."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import errors, flags
from apformer.decoding.bind import bind
from apformer.tasks.progressions import text_file
from apformer.tokenizers.digits import encode
from apformer_lab import digits, sparse

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
fewest_rows, least_width, proof = map(importlib.import_module, ("fewest_rows", "least_width", "_proof"))
long_terms, many_terms = map(importlib.import_module, ("long_terms", "many_terms"))
sys.path.pop(0)


@pytest.mark.parametrize("width", [1, 2])
def test_what_rows_hold_is_what_stands_before_the_tokens_to_be_predicted(width):
    """Every row of three or four terms as text: before each token from the third term on, the six that are read."""
    P, found = width + 1, set()
    for first, second in np.ndindex(10**width, 10**width):
        terms = [first + n * (second - first) for n in range(4)]
        fitting = next((n for n, term in enumerate(terms) if not 0 <= term < 10**width), 4)
        tokens = encode(" ".join(f"{term:0{width}}"[::-1] for term in terms[:fitting])).tolist() if fitting > 2 else []
        for t in range(2 * P - 1, len(tokens)):
            places = [t - 1 - back for back in (0, P, P + 1, P - 1, 2 * P - 1, 2 * P)]
            found.add(sum((tokens[at] if at >= 0 else 11) * 12**o for o, at in enumerate(places)))
    assert sorted(found) == least_width.strings_in_rows(width).tolist()


def test_the_strings_of_the_proof_that_rows_hold():
    asked = least_width.coverage(2, least_width.settings_of(2, least_width.LeastWidth()))
    assert asked == [[200_000, 0], [10_000, 5_000], [2_000, 1_934], [2_150, 1_392]]


def test_rows_of_a_file_are_different_and_show_facts():
    shown = fewest_rows.facts("700 010 310")  # 7, 10, 13: 2 * 0 - 7 is 3 and a borrow, 2 * 1 - 0 - 1 is 1
    assert shown >= {("width", 3), ("lowest", 0, 7), ("carry", 0, 7, 3), ("digit", 1, 0, -1), ("carry", 1, 0, 1)}
    assert shown >= {("digit", 0, 0, 0), ("last", 0), ("beside", 0, 0, 2, 3), ("beside", 1, 1, 0, 7)}
    assert len(shown) == 7 + 2 * 6
    lines = fewest_rows.random_rows(1, 2, 60)
    assert len({*lines}) == 60 and lines == fewest_rows.random_rows(1, 2, 60) != fewest_rows.random_rows(2, 2, 60)
    batch = fewest_rows.encode_lines(lines, 11, 120)
    assert batch.tokens_BT.shape == (120, 11) and batch.weights_BT.any(1).all()
    written = [" ".join(term[::-1] for term in line.split(" ")) for line in lines]
    assert all(text_file.read_line(line, "x", line.index(" "))[2] in (3, 4) for line in written)


def test_more_rows_than_there_are_end_in_a_sentence(monkeypatch, capsys, tmp_path):
    with pytest.raises(errors.UserError, match="only 50 rows of 1 digits were found: give more --digits"):
        fewest_rows.random_rows(0, 1, 1000)
    monkeypatch.setattr("sys.argv", ["fewest_rows.py", "--chosen", "5000", "--run_dir", str(tmp_path / "run")])
    assert flags.script("fewest_rows.py", fewest_rows.FewestRows, fewest_rows.run) == errors.USAGE
    assert "give at most 4096 rows" in capsys.readouterr().err


def test_a_model_is_trained_on_rows_and_judged_by_the_proof():
    args = fewest_rows.FewestRows(random=(8,), chosen=(4,), digits=2, members=1, flags="--d_model 8 --d_ff 8 --steps 2")
    found = fewest_rows.measure("chosen", 4, 0, args)
    assert 0 < found["wrong"] <= 214_150 and found["margin"] < 0 and found["characters"] > 20
    settings = fewest_rows.settings_of(args)
    assert len(np.unique(proof.strings(settings)[0])) == 214_150


def main(monkeypatch, script, config, *args):
    """The exit code of a script."""
    monkeypatch.setattr("sys.argv", [f"{script.__name__}.py", *map(str, args)])
    return flags.script(f"{script.__name__}.py", config, script.run)


def of_digits(order):
    """Settings of a run of the task digits, as far as a study asks."""
    return SimpleNamespace(task="digits", data=digits.Config(2, order), model=AHEAD, architecture="sparse")


AHEAD = sparse.Config(d_model=6, n_heads=3, n_layers=3, d_ff=5, pattern="ahead")
GIVEN = 5  # characters of two terms of two digits


@pytest.fixture
def bound(random_params):
    """A model that knows nothing."""
    return bind(sparse, random_params(AHEAD), AHEAD)


@pytest.fixture
def small_passes(monkeypatch):
    """Four rows of terms of two digits a pass: all shapes below are alike, and compiled once."""
    monkeypatch.setattr(many_terms, "TOKENS", 4 * 4 * 3)


def test_progressions_of_very_long_terms_fit_and_carry():
    for kind in long_terms.KINDS:
        for width in (2, 9, 300):
            first, difference = long_terms.progression(kind, width, 2)
            assert 0 <= min(first, first + 3 * difference) <= max(first, first + 3 * difference) < 10**width
    assert [sum(long_terms.progression(kind, 5, 2)) for kind in ("carry", "borrow")] == [9999, 10000]


@pytest.mark.parametrize("order, text", [("msb", "12 13"), ("lsb", "21 31")])
def test_terms_that_a_run_writes_are_compared_with_those_of_whole_numbers(monkeypatch, order, text):
    """From 10 11 on, as the true next terms, and as others of which two characters differ."""
    settings = of_digits(order)
    monkeypatch.setattr(long_terms, "progression", lambda *_: (10, 1))
    asked = []
    for said, wrong in ((text, 0), ("92 19", 4 if order == "lsb" else 2)):
        monkeypatch.setattr(long_terms.continuation, "predict", lambda *args, s=said: asked.append(args[2]) or [(s, 2)])
        found = long_terms.measure(SimpleNamespace(model=None, settings=settings), "runs", long_terms.LongTerms(), 2)
        assert (found["characters"], found["wrong"]) == (5, wrong)
    assert asked == 2 * [["10 11" if order == "msb" else "01 11"]]


def test_a_row_is_right_in_one_pass_if_and_only_if_it_is_written_so(bound):
    """Rows that a model wrote itself, and the same with one character changed that it did not choose."""
    rows_BT = np.stack([encode(text + " 00 00") for text in ("27 81", "31 41", "16 61", "00 99")])
    for place in range(GIVEN, 11):  # by passes over a row, not by `generate`
        rows_BT[:, place] = jnp.argmax(jax.jit(bound.apply)(rows_BT)[:, place - 1], axis=-1)
    for b, place in ((1, 5), (3, 8)):
        rows_BT[b, place] = (rows_BT[b, place] + 1) % 11
    right_BT = np.asarray(many_terms.read(bound, rows_BT, GIVEN) > 0)
    written_BT = np.asarray(many_terms.write(bound, rows_BT, GIVEN))
    for found_BT in (right_BT, written_BT):
        assert found_BT.all(1).tolist() == [True, False, True, False]
        assert np.argmin(found_BT, axis=1)[[1, 3]].tolist() == [0, 3]  # the first wrong place


def test_terms_of_a_model_that_knows_nothing_are_counted_as_wrong(small_passes, bound, monkeypatch, tmp_path, capsys):
    loaded = SimpleNamespace(model=bound, settings=of_digits("msb"), path=tmp_path)
    monkeypatch.setattr(many_terms.runs, "load", lambda path: loaded)
    args = ("a/the one", "b/two", "--digits", 2, "--terms", 8, "--written", 4, "--run_dir", tmp_path / "run")
    assert main(monkeypatch, many_terms, many_terms.ManyTerms, *args) == 0
    assert (tmp_path / "run" / "figures" / "many_terms.png").stat().st_size > 5000
    numbers, table = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("evaluation", "table"))
    assert (numbers["terms"], numbers["runs"], numbers["written"]) == (32, 2, 16)
    assert numbers["written_wrong"] == 16 and numbers["wrong"] > 26 and numbers["least_margin"] < 0
    assert [row[:4] for row in table[1:]] == [
        [run, "2", kind, "8"] for run in ("the one", "two") for kind in ("random", "runs")
    ]
    assert main(monkeypatch, many_terms, many_terms.ManyTerms, "a/one", "b/one") == errors.USAGE
    assert "each of another name" in capsys.readouterr().err
