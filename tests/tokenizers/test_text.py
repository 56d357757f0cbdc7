import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from apformer.errors import DATA, USAGE, UserError
from apformer.tokenizers.text import Characters, train_byte_pairs, train_characters
from tests.helpers.refusals import refused
from tests.helpers.small_texts import ALL, any_text, kinds


@pytest.fixture(scope="module")
def byte_pairs():
    pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')
    return train_byte_pairs(ALL, 400)


@pytest.fixture(params=["characters", "byte pairs"])
def tokenizer(request):
    return train_characters(ALL) if request.param == "characters" else request.getfixturevalue("byte_pairs")


def test_a_literal_text_of_characters():
    tokenizer = train_characters("hello, world")
    assert tokenizer == Characters(" ,dehlorw")  # in the order of code points, as nanoGPT's
    assert tokenizer.vocab_size == 9
    tokens_T = tokenizer.encode("held")
    assert tokens_T.dtype == np.int32
    assert tokens_T.tolist() == [4, 3, 5, 2]
    assert tokenizer.decode(tokens_T) == "held"


def test_decode_inverts_encode(tokenizer):
    tokens_T = tokenizer.encode(ALL)
    assert (tokens_T.dtype, tokens_T.ndim) == (np.int32, 1)
    assert tokenizer.decode(tokens_T) == tokenizer.decode(jnp.asarray(tokens_T)) == ALL
    assert b"".join(map(tokenizer.bytes_of, tokens_T)).decode() == ALL


@settings(max_examples=200)
@given(text=any_text | kinds)
def test_any_text_comes_back_from_byte_pairs(byte_pairs, text):
    tokens_T = byte_pairs.encode(text)
    assert tokens_T.dtype == np.int32
    assert byte_pairs.decode(tokens_T) == text


def test_the_vocabulary_is_as_large_as_asked_or_as_the_text_allows(byte_pairs):
    assert byte_pairs.vocab_size == 400
    assert train_byte_pairs("abab abc", 1000).vocab_size == 260
    assert train_byte_pairs("abab abc", 256).vocab_size == 256


@pytest.mark.parametrize(
    ("text", "position", "shown"),
    [("he\n", 3, r"'\n'"), ("h\udcff", 2, r"'\udcff'")],
)
def test_a_character_outside_the_vocabulary_is_named(text, position, shown):
    with refused(DATA, f"^character {position} is {re.escape(shown)}, which the vocabulary lacks; use the 9 "):
        train_characters("hello, world").encode(text)


def test_an_id_outside_the_vocabulary_is_named_and_never_clamped(tokenizer):
    size = tokenizer.vocab_size
    for read in (tokenizer.decode, lambda tokens: tokenizer.bytes_of(tokens[1])):
        for token in (size, -1, 2**40):
            with refused(DATA, rf"is {token}, which the .*; ids run from 0 to {size - 1}$"):
                read([0, token])
    with pytest.raises(UserError, match=f"^token 2 is {size},"):
        tokenizer.decode(np.array([0, size]))


def test_what_no_vocabulary_can_be_made_from():
    with refused(USAGE, "--vocab_size 255 is under 256, the number of bytes: give 256 or more"):
        train_byte_pairs("abc", 255)
    for refuse in (train_characters, lambda text: train_byte_pairs(text, 300)):
        with refused(DATA, "the text is empty: give one"):
            refuse("")
