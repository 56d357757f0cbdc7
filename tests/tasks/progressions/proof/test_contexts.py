"""The strings that check.py asks are those of every progression, and a text of each is one that a model can read."""

import numpy as np
import pytest

from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.proof import contexts
from apformer.tokenizers import digits as tokenizer


def every_string(data, reach, terms):
    """What every character after the second term depends on, of all progressions of up to so many terms, and it."""
    found, top = set(), 10**data.digits - 1
    for difference in range(data.min_difference, data.max_difference + 1):
        for first in range(top + 1):
            row = [term for n in range(terms) if 0 <= (term := first + n * difference) <= top]
            row = row[: next((n for n in range(len(row)) if row[n] != first + n * difference), len(row))]
            text = " ".join(f"{term:0{data.digits}d}" for term in row)
            tokens = [contexts.START] * (reach + 1) + [*tokenizer.encode(text)]
            for at in range(len(tokens))[reach + 1 + 2 * (data.digits + 1) - 1 :]:
                found.add((*tokens[at - 1 - reach : at], tokens[at]))
    return found


@pytest.mark.parametrize(
    ("digits", "low", "high", "reach"), [(1, -4, 4, 3), (1, 1, 4, 6), (2, -30, 30, 8), (2, 9, 20, 12)]
)
def test_the_strings_are_those_of_every_progression(digits, low, high, reach):
    config = Config(digits=digits, min_difference=low, max_difference=high)
    data, cfg = vars(config), {"n_layers": 1, "window": reach + 1}
    ours = set()
    for columns in contexts.slices(data, cfg):
        codes_NA, truth_NA = contexts.strings(columns, data, cfg)
        for code, truth in zip(codes_NA.ravel().tolist(), truth_NA.ravel().tolist(), strict=True):
            ours.add((*(code // 12**back % 12 for back in reversed(range(reach + 1))), truth))
    assert ours == every_string(config, reach, terms=9)


def test_a_context_is_shown_as_text():
    data = {"digits": 3}
    assert contexts.text(np.array([7, 3, 2]), 0, data) == ("007 010", " ")
    assert contexts.text(np.array([7, 3, 2]), 3, data) == ("007 010 01", "3")
    assert contexts.text(np.array([9, -3, 3]), 3, data) == ("009 006 003 00", "0")
