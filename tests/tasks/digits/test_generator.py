"""Progressions digit by digit are what Python's whole numbers say, at any width."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.errors import DATA, UserError
from apformer.tasks.digits import generator
from apformer.tasks.progressions import text_file
from apformer.tokenizers.digits import decode

C = 23  # places: more than 64 bits hold
draw = jax.jit(generator.draw, static_argnums=(2, 3, 4))
add = jax.jit(generator.add, static_argnums=2)
numbers = st.integers(0, 10**C - 1)


def places(number):
    return np.array([[int(digit) for digit in f"{number:0{C}d}"[::-1]]], np.int32)


@given(a=numbers, b=numbers, sign=st.sampled_from([1, -1]))
def test_sums_and_differences(a, b, sign):
    sum_BC, carry_B = add(places(a), places(b), sign)
    assert generator.value(sum_BC[0]) + int(carry_B[0]) * 10**C == a + sign * b


@pytest.mark.parametrize("hard", [False, True])
def test_rows_are_progressions_of_their_width(hard):
    width_B = np.arange(300, dtype=np.int32) % C + 1
    rows = jax.device_get(draw(jax.random.key(3), width_B, C, 5, hard))
    differences = set()
    for digits_NC, width, fits_N in zip(*rows, strict=True):
        values = [generator.value(digits_C) for digits_C in digits_NC][: fits_N.sum()]
        assert len(values) in (0, 3, 4, 5) and fits_N[: len(values)].all()
        assert all(0 <= value < 10 ** int(width) for value in values)
        assert len({after - before for before, after in zip(values, values[1:], strict=False)}) <= 1
        if values:
            differences.add(values[1] - values[0])
    assert min(differences) < -(10**15) and max(differences) > 10**15 and {0} < differences


def test_runs_are_of_every_length_at_every_place():
    rows = jax.device_get(draw(jax.random.key(4), np.full(4000, 5, np.int32), 5, 3, True))
    texts = {f"{generator.value(digits_C):05d}" for digits_C in rows.digits_BNC[:, 2]}
    for length in range(1, 6):
        for start in range(6 - length):
            for digit in "09":
                assert any(text[start : start + length] == digit * length for text in texts), (length, start, digit)
    assert {"00000", "99999"} <= texts


@pytest.mark.parametrize("order", ["msb", "lsb"])
def test_text_weights_and_terms(order):
    width_B = np.arange(40, dtype=np.int32) % 7 + 1
    rows = jax.device_get(draw(jax.random.key(5), width_B, 7, 4, False))
    batch = jax.device_get(generator.encode(rows, order))
    assert batch.tokens_BT.shape == (40, 4 * 8 - 1)
    for digits_NC, width, fits_N, tokens_T, weights_T, term_T in zip(*rows, *batch, strict=True):
        length = 4 * (width + 1) - 1
        if fits_N.all():
            text = generator.render([generator.value(digits_C) for digits_C in digits_NC], width, order)
            assert decode(tokens_T[:length]) == text
        assert (tokens_T[length:] == 0).all() and (weights_T[length:] == 0).all()
        # The space is of the term after it, and the first two terms are given.
        expected = [n for n in range(4) for _ in range(width + 1)][1:]
        assert term_T[:length].tolist() == expected
        assert weights_T[:length].tolist() == [float(n >= 2 and fits_N[n]) for n in expected]


def test_test_rows_fit_and_are_the_same_for_a_key():
    rows, again = (generator.test_rows(jax.random.key(1), 12, 50, 4, generator.chains) for _ in range(2))
    assert rows.fits_BN.all() and rows.digits_BNC.shape == (50, 4, 12)
    jax.tree.map(np.testing.assert_array_equal, rows, again)


def test_lines_of_any_width_and_order():
    first, difference = 10**40 - 7, -(10**21) + 3
    values = [first + k * difference for k in range(3)]
    for order in ("msb", "lsb"):
        text = generator.render(values, 50, order)
        assert text_file.read_numbers([text], "x", 50, order) == ([(first, difference, 3)], 50)
        with pytest.raises(UserError, match="terms have 50 digits; use at most 49") as caught:
            text_file.read_numbers([text], "x", 49, order)
        assert caught.value.exit_code == DATA
    with pytest.raises(UserError, match="terms 2 and 3 differ by 2 where terms 1 and 2 differ by 1"):
        text_file.read_numbers(["10 20 40"], "x", 9, "lsb")
    with pytest.raises(UserError, match="term 2, 200, has width 3 where the first term has 2"):
        text_file.read_numbers(["10 200"], "x", 9, "lsb")
