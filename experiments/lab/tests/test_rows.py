"""Rows of every format are what Python's whole numbers say, written as the format says, and split as it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer_lab import bases, digits, recurrences, rows, sums

FORMS = {
    "lsb": digits.Config(4, "lsb").form,
    "msb": digits.Config(4, "msb").form,
    "bases": bases.Config(4).form,
    "sums": sums.Config(4).form,
    "recurrences": recurrences.Config(2, ("fibonacci", "alternating", "3,-7,11")).form,
}
each = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
draw = jax.jit(rows.draw, static_argnums=(1, 3, 4, 5))
B = 64


def drawn(form, kind="random", seed=0):
    rng = np.random.default_rng(seed)
    width_B = rng.integers(1, form.digits + 1, B) if form.widths else np.full(B, form.digits)
    terms = 3 if form.more else 5
    return draw(jax.random.key(seed), form, jnp.asarray(width_B, jnp.int32), form.digits, terms, kind)


def value(digits_C, base):
    return sum(int(digit) * base**place for place, digit in enumerate(digits_C))


def text(tokens_T, form):
    return "".join(form.characters[token] for token in tokens_T)


@pytest.mark.parametrize(
    ("name", "pair", "numbers", "width", "expected"),
    [
        ("lsb", 0, (7, 10), 3, "700 010 310 610"),
        ("msb", 0, (7, 10), 4, "0007 0010 0013 0016"),
        ("bases", 15, (5, 3), 4, "+1 1010 1100 0001 1101"),
        ("bases", 44, (0xA3, 0x64), 2, "*f 3a 46 8c 09"),
        ("recurrences", 1, (3, 5), 2, "2 03 05 04 06"),
        ("recurrences", 2, (3, 5), 2, "3 03 05 05 91"),  # 3 5 - 7 3 + 11, and 3 5 - 7 5 + 11 = -9
    ],
)
def test_literal_rows(name, pair, numbers, width, expected):
    assert rows.sample_text(FORMS[name], 4, width, pair, numbers) == expected


def test_a_literal_sum():
    assert rows.sample_text(FORMS["sums"], 3, 4, 0, (9995, 7)) == "5999 7000 20001"


@each
@pytest.mark.parametrize("kind", rows.KINDS)
def test_every_term_follows_and_is_written_as_the_format_says(form, kind):
    if kind == "runs" and "alternating" in form.names:
        return
    found = jax.tree.map(np.asarray, drawn(form, kind))
    batch = jax.tree.map(np.asarray, rows.encode(found, form))
    terms = found.digits_BNC.shape[1]
    for b in range(B):
        pair, width = int(found.pair_B[b]), int(found.width_B[b])
        row = [list(map(int, term[:width])) for term in found.digits_BNC[b]]
        for n in range(2, terms):
            row[n], fits = rows.next_term(form, pair, *row[n - 2 : n])
            assert found.digits_BNC[b, n, : len(row[n])].tolist() == row[n]
            assert found.fits_BN[b, n] == (found.fits_BN[b, n - 1] and fits)
        length = form.head + terms * (width + 1) - 1 + form.more
        assert text(batch.tokens_BT[b, :length], form) == rows.row_text(form, pair, row)
        ends = [form.given(width) + n * (width + 1) for n in range(terms - 1)]
        for t in range(len(batch.tokens_BT[b])):
            n = 2 + sum(t >= end for end in ends[1:])
            counts = form.given(width) <= t < length and found.fits_BN[b, min(n, terms - 1)]
            assert batch.weights_BT[b, t] == counts, (t, n)


@each
@given(st.data())
def test_after_is_arithmetic_of_whole_numbers(form, data):
    pair = data.draw(st.integers(0, len(form.pairs()) - 1))
    base, (a, b, c) = form.bases[pair % len(form.bases)], form.numbers[pair // len(form.bases)]
    width = data.draw(st.integers(1, 30))
    y, x = (data.draw(st.lists(st.integers(0, base - 1), min_size=width, max_size=width)) for _ in range(2))
    z, fits = rows.next_term(form, pair, y, x)
    exact = a * value(x, base) + b * value(y, base) + c
    assert value(z, base) == exact % base ** (width + form.more) and len(z) == width + form.more
    assert fits == (form.wraps or 0 <= exact < base**width)


@pytest.mark.parametrize("name", ["sums", "recurrences"])
def test_no_held_out_pair_stands_in_a_training_row(name):
    form = FORMS[name]
    found = drawn(form)
    training = jax.tree.map(np.asarray, rows.of_split(found, form, "train"))
    pairs = 1 if form.more else found.digits_BNC.shape[1] - 1
    splits = []
    for split in rows.SPLITS:
        terms = form.digits
        pair_BNC = np.concatenate(
            [training.digits_BNC[:, :pairs, :terms], training.digits_BNC[:, 1 : pairs + 1, :terms]], -1
        )
        flat_BC = jnp.asarray(pair_BNC.reshape(-1, pair_BNC.shape[-1]))
        splits.append((np.asarray(rows.split_of(flat_BC)) == rows.SPLITS.index(split)).reshape(B, pairs))
    train_BN = splits[0]
    for b in range(B):
        for n in range(2, training.fits_BN.shape[1]):
            assert training.fits_BN[b, n] == train_BN[b, : min(n, pairs)].all()
    shares = [split.mean() for split in splits]
    assert sum(shares) == pytest.approx(1) and shares[0] > 0.6
    held = jax.tree.map(np.asarray, rows.held_out(jax.random.key(0), form, form.digits, 5, 3, split="test"))
    pair_BC = held.digits_BNC[:, :2, : form.digits].reshape(len(held.pair_B), -1)
    assert (np.asarray(rows.split_of(jnp.asarray(pair_BC))) == 2).all() and len(held.pair_B) == 5 * len(form.pairs())


def test_splits_are_about_80_10_10_and_as_they_were():
    pair_BC = np.random.default_rng(0).integers(0, 10, (10_000, 20)).astype(np.int32)
    shares = np.bincount(np.asarray(rows.split_of(jnp.asarray(pair_BC)))) / 10_000
    np.testing.assert_allclose(shares, (0.8, 0.1, 0.1), atol=0.01)
    literal = np.asarray(rows.split_of(jnp.asarray(np.arange(60, dtype=np.int32).reshape(15, 4) * 7 // 3 % 10)))
    assert literal.tolist() == LITERAL


LITERAL = [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2]
