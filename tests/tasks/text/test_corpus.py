"""A text is cut into rows: windows from anywhere to train on, and each token of its last part once to judge by."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.errors import DATA, USAGE, UserError
from apformer.tasks.text import corpus

CFG = corpus.Config("some file", context=3)


def test_windows_are_stretches_of_the_text_from_all_of_it():
    tokens_N = np.arange(100, 120, dtype=np.uint16)
    batch = jax.jit(corpus.windows, static_argnums=(2, 3))(jax.random.key(0), tokens_N, CFG, 400)
    assert batch.tokens_BT.dtype == np.int32 and batch.tokens_BT.shape == (400, 4)
    np.testing.assert_array_equal(np.diff(batch.tokens_BT, axis=1), 1)
    assert set(np.unique(batch.tokens_BT[:, 0])) == set(range(100, 117))  # the last begins where it just fits
    assert (batch.weights_BT == 1).all()


def test_the_validation_part_in_rows():
    tokens, weights = corpus.consecutive(np.array([5, 6, 7, 8, 9, 10], np.uint16), CFG, batch_tokens=3)
    assert tokens.tolist() == [[[5, 6, 7, 8]], [[8, 9, 10, 0]]]
    assert weights.tolist() == [[[1, 1, 1, 1]], [[1, 1, 1, 0]]]


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 40))
def test_every_token_but_the_first_is_predicted_once(length, context, batch_tokens):
    tokens_N = np.arange(length, dtype=np.int32)
    tokens, weights = corpus.consecutive(tokens_N, corpus.Config("", context=context), batch_tokens)
    assert tokens.shape == weights.shape and tokens.shape[-1] == context + 1
    predicted = tokens[..., 1:][weights[..., 1:] > 0]
    assert sorted(predicted.tolist()) == list(range(1, length))
    before, after = tokens[..., :-1], tokens[..., 1:]
    assert (after - before)[weights[..., 1:] > 0].tolist() == [1] * (length - 1)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_the_parts_of_a_text_make_the_whole(share):
    whole = "a text of some length, to be cut"
    first, last = corpus.split(whole, corpus.Config("", validation_share=share))
    assert first + last == whole and len(last) == pytest.approx(share * len(whole), abs=1)


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "latin").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(UserError, match="latin is no UTF-8 at byte offset 2") as fault:
        corpus.read(tmp_path / "latin")
    assert fault.value.exit_code == DATA
    with pytest.raises(UserError, match="nowhere cannot be read"):
        corpus.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": None}, "--text is missing"),
        ({"context": 0}, "--context 0 is out of range"),
        ({"validation_share": 1.0}, "--validation_share 1.0 is out of range"),
    ],
)
def test_flags_that_no_text_can_follow(changes, sentence):
    with pytest.raises(UserError, match=sentence) as fault:
        corpus.check(corpus.Config(**({"text": "file"} | changes)))
    assert fault.value.exit_code == USAGE
