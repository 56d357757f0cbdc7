"""A text that is shown as it comes: it ends before an end token and before a stop, wherever tokens are cut."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.decoding.stream import before, texts
from apformer.tokenizers.text import Characters, train_byte_pairs


def first_by_trying(stops, text):
    """The text before the first stop, from the definition: try every end, then every beginning."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return text[:start]
    return text


short = st.text("ab", max_size=4)


@given(st.lists(short, max_size=12), st.lists(short.filter(bool), max_size=3))
def test_the_end_is_the_same_wherever_a_text_is_cut(pieces, stops):
    assert "".join(before(stops, pieces)) == first_by_trying(stops, "".join(pieces))


def test_a_piece_is_shown_as_soon_as_no_stop_can_begin_in_it():
    read = []
    pieces = (read.append(piece) or piece for piece in ["one ", "two", "\n", "three", "\n\n", "four"])
    shown = before(["\n\n"], pieces)
    assert next(shown) == "one " and read == ["one "]
    assert [*shown] == ["two", "\nthree", ""] and read[-1] == "\n\n"  # and "four" is never asked for


def test_rows_end_alone_and_no_chunk_is_drawn_that_none_needs():
    tokenizer, drawn = Characters("\n.abc"), []
    rows = ["abcab.cccccc", "cc\nb.ccccccc"]  # the stop is ".", and the line end is an end token

    def chunks():
        for n in count():
            drawn.append(n)
            yield np.array([tokenizer.encode(row[2 * n : 2 * n + 2]) for row in rows])

    first, second = texts(chunks(), 2, tokenizer, frozenset({0}), ["."])
    assert "".join(first) == "abcab" and drawn == [0, 1, 2]
    assert "".join(second) == "cc" and drawn == [0, 1, 2]


def test_a_stop_is_found_across_the_bytes_of_a_character():
    pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')
    tokenizer = train_byte_pairs("a", 256)  # a token a byte
    chunks = [tokenizer.encode(text)[None] for text in ("naï", "ve é")]
    chunks = [*np.split(np.concatenate(chunks, 1), 9, axis=1)]
    assert "".join(texts(chunks, 1, tokenizer, stops=["ïv"])[0]) == "na"
    assert "".join(texts(chunks, 1, tokenizer, stops=["é"])[0]) == "naïve "
    assert "".join(texts(chunks, 1, tokenizer, stops=["è"])[0]) == "naïve é"
