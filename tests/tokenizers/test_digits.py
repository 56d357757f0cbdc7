import json
import re
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.errors import DATA
from apformer.tokenizers import digits
from tests.helpers.refusals import refused


def test_vocabulary_is_the_json_file_beside_the_module():
    stored = json.loads(resources.files("apformer.tokenizers").joinpath("vocabulary.json").read_text("utf-8"))
    assert stored == {**{str(digit): digit for digit in range(10)}, " ": 10}


def test_a_literal_line():
    tokens_T = digits.encode("007 010")
    assert tokens_T.dtype == np.int32
    assert tokens_T.tolist() == [0, 0, 7, 10, 0, 1, 0]
    assert digits.decode(tokens_T) == "007 010"
    assert digits.decode([]) == ""


@settings(deadline=None)
@given(st.text("0123456789 ", max_size=50))
def test_decode_inverts_encode(text):
    assert digits.decode(digits.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "position", "shown"),
    [
        ("007 x10", 5, "'x'"),
        ("0٣", 2, r"'\u0663'"),  # a digit, but of another script
        ("0\udcff", 2, r"'\udcff'"),  # an undecodable byte of the command line
    ],
)
def test_encode_names_the_foreign_character(text, position, shown):
    with refused(DATA, f"^character {position} is {re.escape(shown)},"):
        digits.encode(text)


@pytest.mark.parametrize(("tokens", "position", "shown"), [([0, 11], 2, "11"), ([-1, 0], 1, "-1")])
def test_decode_names_the_foreign_id(tokens, position, shown):
    with refused(DATA, f"^token {position} is {shown},"):
        digits.decode(tokens)
