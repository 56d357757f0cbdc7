import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.errors import USAGE, UserError
from apformer.tokenizers import text as text_tokenizer
from apformer.tokenizers.byte_pairs import BYTES, GPT4_PATTERN, decode, encode, split, train
from tests.helpers.small_texts import TEXTS, any_text, every_pair_of_kinds, few_letters, kinds

pytest.importorskip("tokenizers", reason='the library comes with the text extra: pip install -e ".[text]"')

A, B, C, D, SPACE = (BYTES.index(ord(character)) for character in "abcd ")
each_text = pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))


def library_merges(tokenizer):
    """The pairs of ids that the library merges, the first merge first."""
    token_of = tokenizer.tokenizer.get_vocab()
    return [(token_of[a], token_of[b]) for a, b in json.loads(tokenizer.to_json())["model"]["merges"]]


def test_merges_worked_by_hand():
    # abab | abc with a space before: `a b` occurs three times; all that is left then occurs once, and the lowest ids go
    # first: (220, 256), then (256, 256), then (257, 66).
    assert (A, B, C, SPACE) == (64, 65, 66, 220)
    merges = train("abab abc", 1000)
    assert merges == [(A, B), (SPACE, 256), (256, 256), (257, C)]
    assert encode("abab abc", merges) == [258, 259]
    assert encode("ab abab", merges) == [256, 257, 256]
    assert decode([258, 259, 257, A], merges) == "abab abc aba"


def test_of_equally_frequent_pairs_the_one_with_the_lowest_ids_goes_first():
    assert train("cd ab", 257) == [(A, B)]  # not the one that occurs first
    assert train("ac ab", 257) == [(A, B)]
    assert train("cd ab cd", 257) == [(C, D)]
    assert train("é!?", 257) == [(0, BYTES.index(ord("?")))]  # `!` is token 0, although é stands before it


def test_pairs_that_overlap():
    assert train("aaaaa", 257) == [(A, A)]
    assert encode("aaaaa", [(A, A)]) == [256, 256, A]  # from left to right
    assert train("aaa", 1000) == [(A, A), (256, A)]
    # `a a` counts twice in aaa, as in the library.
    assert train("aaa bc", 257) == [(A, A)]


def test_nothing_is_merged_from_one_chunk_to_the_next():
    assert split("two words, 12345\n\n x") == ["two", " words", ",", " ", "123", "45", "\n\n", " x"]
    assert split("don't HE'LL'S 'n' a,b") == ["don", "'t", " HE", "'LL", "'S", " '", "n", "'", " a", ",b"]
    assert split("x = y;\n\n\t  if") == ["x", " =", " y", ";\n\n", "\t ", " if"]
    assert train("a b a b a b", 1000) == [(SPACE, B), (SPACE, A)]


def test_a_vocabulary_of_bytes_alone():
    assert train(TEXTS["english"], 256) == train("", 300) == []
    assert encode("é", []) == [BYTES.index(0xC3), BYTES.index(0xA9)]
    assert sorted(BYTES) == list(range(256))


@each_text
def test_merges_and_tokens_are_those_of_the_library(text):
    merges = train(text, 256 + 150)
    in_library = text_tokenizer.train_byte_pairs(text, 256 + 150)
    assert len(merges) == 150
    assert merges == library_merges(in_library)
    for other in TEXTS.values():
        tokens = encode(other, merges)
        assert tokens == in_library.encode(other).tolist()
        assert decode(tokens, merges) == other


@settings(max_examples=200)
@given(few_letters, st.integers(256, 280))
def test_merges_of_small_texts_with_many_ties_are_those_of_the_library(text, vocab_size):
    if text:
        in_library = text_tokenizer.train_byte_pairs(text, vocab_size)
        assert train(text, vocab_size) == library_merges(in_library)


def test_merges_of_shakespeare_are_those_of_the_library():
    path = os.environ.get("TINY_SHAKESPEARE")
    if path is None:
        pytest.skip("set TINY_SHAKESPEARE to the file data/tinyshakespeare/input.txt of karpathy/char-rnn")
    text = Path(path).read_text("utf-8")
    merges = train(text, 256 + 100)
    in_library = text_tokenizer.train_byte_pairs(text, 256 + 100)
    assert merges == library_merges(in_library)
    assert encode(text, merges) == in_library.encode(text).tolist()


@settings(max_examples=1000)
@given(any_text)
def test_any_text_comes_back(text):
    merges = [(SPACE, A), (BYTES.index(0xC3), BYTES.index(0xA9)), (256, 257), (BYTES.index(0xF0), BYTES.index(0x9F))]
    assert decode(encode(text, merges), merges) == text


def test_tokens_that_are_no_text():
    assert decode([A, BYTES.index(0xC3), B], []) == "a\ufffdb"
    for token in (256, -1):
        with pytest.raises(KeyError):
            decode([token], [])


# Later versions of `tiktoken` write it so, and try no shorter match where a longer one fails.
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize("pattern", [GPT4_PATTERN, POSSESSIVE], ids=["as here", "possessive"])
def test_chunks_are_those_of_the_regex_package(pattern):
    regex = pytest.importorskip("regex", reason="the package comes with the parity extra: pip install -e '.[parity]'")
    chunks = regex.compile(pattern).findall

    @settings(max_examples=500)
    @given(kinds | any_text)
    def equal(text):
        assert split(text) == chunks(text)

    equal()
    for text in (*TEXTS.values(), *every_pair_of_kinds, *(f"a{pair}b" for pair in every_pair_of_kinds)):
        assert split(text) == chunks(text)


@given(any_text)
def test_chunks_joined_are_the_text(text):
    assert "".join(split(text)) == text


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r'byte pairs need the text extra: pip install -e "\.\[text\]"') as error:
        split("a")
    assert error.value.exit_code == USAGE
