"""Studies of terms of any width: which strings training rows hold, and rows that show many facts."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from apformer import errors, flags
from apformer.tasks.progressions import text_file
from apformer.tokenizers.digits import encode

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
fewest_rows, least_width, proof = map(importlib.import_module, ("fewest_rows", "least_width", "_proof"))
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
    assert sorted(found) == least_width.seen(width).tolist()


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
    batch = fewest_rows.encoded(lines, 11, 120)
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
