"""Chunks are those that the `regex` package finds by the published patterns."""

import pytest
from hypothesis import given, settings

from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN, split
from tests.helpers.small_texts import TEXTS, any_text, every_pair_of_kinds, kinds

pytest.importorskip("tokenizers", reason='the library comes with the text extra: pip install -e ".[text]"')

# Later versions of `tiktoken` write them so, and try no shorter match where a longer one fails.
POSSESSIVE_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s"
POSSESSIVE_GPT4 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (GPT2_PATTERN, GPT2_PATTERN),
        (GPT2_PATTERN, POSSESSIVE_GPT2),
        (GPT4_PATTERN, GPT4_PATTERN),
        (GPT4_PATTERN, POSSESSIVE_GPT4),
    ],
    ids=["GPT-2", "GPT-2, possessive", "GPT-4", "GPT-4, possessive"],
)
def test_chunks_are_those_of_the_regex_package(ours, theirs):
    regex = pytest.importorskip("regex", reason="the package comes with the test extra: pip install -e '.[test]'")
    chunks = regex.compile(theirs).findall

    @settings(max_examples=100)
    @given(kinds | any_text)
    def equal(text):
        assert split(text, ours) == chunks(text)

    equal()
    for text in (*TEXTS.values(), *every_pair_of_kinds, *(f"a{pair}b" for pair in every_pair_of_kinds)):
        assert split(text, ours) == chunks(text)


def test_each_byte_has_one_token():
    assert sorted(BYTES) == list(range(256))
    assert [BYTES.index(ord(letter)) for letter in "!?2t "] == [0, 30, 17, 83, 220]  # as published
