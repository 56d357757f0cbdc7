"""A text that comes in parts has the tokens of the whole, and a token for its end that is no piece of it."""

import random
import time

import numpy as np
import pytest

from apformer.errors import DATA
from apformer.tokenizers import text as text_tokenizer
from tests.helpers import small_texts
from tests.helpers.refusals import refused


@pytest.mark.parametrize("kind", ["characters", "byte pairs"])
def test_pieces_have_the_tokens_of_the_whole(kind):
    whole = small_texts.ALL.replace("\n", ", and a line\n")
    learned = {"characters": text_tokenizer.train_characters, "byte pairs": byte_pairs}[kind](whole)
    for size in (7, 60, 900):
        parts = [whole[k : k + size] for k in range(0, len(whole), size)]
        pieces = [*text_tokenizer.pieces(iter(parts), least=400)]
        assert "".join(pieces) == whole and len(pieces) > 3
        np.testing.assert_array_equal(np.concatenate([*map(learned.encode, pieces)]), learned.encode(whole))
    assert [*text_tokenizer.pieces(["x" * 30, "y"], least=20)] == ["x" * 30, "y"]  # no line end, and not without bound
    assert [*text_tokenizer.pieces([])] == []


def byte_pairs(text):
    pytest.importorskip("tokenizers")
    return text_tokenizer.train_byte_pairs(text, 400)


def test_byte_pairs_learned_piece_by_piece_are_those_of_the_whole():
    whole = small_texts.ALL
    pieces = text_tokenizer.pieces([whole[:700], whole[700:]], least=300)
    assert byte_pairs(whole).to_json() == text_tokenizer.train_byte_pairs_on(pieces, 400).to_json()


def test_one_long_word_is_learned_in_linear_time():
    began = time.process_time()
    rng = random.Random(0)
    assert byte_pairs("".join(rng.choices("abcdefgh", k=200_000))).vocab_size == 400
    assert time.process_time() - began < 3


def test_the_end_of_a_text_is_a_special_token_that_is_made_once():
    for tokenizer in (text_tokenizer.train_characters("abc"), byte_pairs("abc")):
        ended, end = tokenizer.with_end()
        assert end == tokenizer.vocab_size == ended.vocab_size - 1 and ended.special_tokens == {end}
        assert (
            tokenizer.special_tokens == frozenset() and ended.encode("cab").tolist() == tokenizer.encode("cab").tolist()
        )
        again, same = ended.with_end()
        assert same == end and again.to_json() == ended.to_json()


def test_a_text_that_spells_the_end_of_a_text_is_refused():
    ended, end = text_tokenizer.train_characters("abc").with_end()
    with refused(DATA, "character 2 begins the special token .*: give --special_tokens"):
        ended.encode("a" + chr(0x10FFFF))
    assert ended.encode("a" + chr(0x10FFFF), allowed_special="all").tolist() == [0, end]
