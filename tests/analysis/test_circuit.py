"""The weights written by hand foretell every token of a progression but the digits of its first two terms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.analysis import circuit
from apformer.decoding import generate
from apformer.tokenizers import digits as tokenizer

apply = jax.jit(model.apply, static_argnames="cfg")
extend = jax.jit(model.extend, static_argnames="cfg")


def encode_rows(rows, digits):
    """Rows of terms as tokens, a space after every term: (B, T) int32."""
    return np.stack([tokenizer.encode("".join(f"{term:0{digits}d} " for term in terms)) for terms in rows])


def steps(pairs):
    """The terms y, x and 2x - y of each pair."""
    return [(y, x, 2 * x - y) for y, x in pairs]


def every_step(digits):
    end = 10**digits
    return steps((y, x) for x in range(end) for y in range(max(0, 2 * x - end + 1), min(end, 2 * x + 1)))


def draw_number(rng, digits, alphabet="0123456789"):
    return int("".join(rng.choice(list(alphabet), digits)))


def random_rows(digits, terms, count, seed=0):
    """Progressions of differences of every size and sign, 0 too, up to the steepest that fit."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(count):
        last = 10**digits - 1
        size = draw_number(rng, rng.integers(1, digits + 1)) % (last // (terms - 1) + 1)
        first = draw_number(rng, digits) % (last - size * (terms - 1) + 1)
        row = [first + n * size for n in range(terms)]
        rows.append(row if rng.random() < 0.5 else row[::-1])
    return rows


def run_of_zeros(rng, digits, low, length, sign):
    """A step in which e is 0 at `length` places from `low` up, and sign at the place below them.

    x is drawn, which gives 2x; y is 2x without e, which is drawn everywhere else.
    """
    while True:
        x = draw_number(rng, digits)
        double = f"{2 * x % 10**digits:0{digits}d}"
        above, run, below = np.split(list(double), [digits - low - length, digits - low])
        y_C = [*rng.integers(10, size=len(above)), *map(int, run), *rng.integers(10, size=len(below))]
        if low:
            y_C[digits - low] = int(below[0]) - sign
        y = sum(int(y_c) * 10**place for place, y_c in enumerate(reversed(y_C)))
        if 0 <= min(y_C) and max(y_C) <= 9 and 0 <= 2 * x - y < 10**digits:
            return y, x, 2 * x - y


def runs_of_zeros(digits, seed=0):
    """One such step for every length, place and sign."""
    rng = np.random.default_rng(seed)
    runs = [(low, length) for low in range(digits) for length in range(1, digits - low + 1)]
    return [run_of_zeros(rng, digits, *run, sign) for run in runs for sign in (-1, 1)]


def runs_of_nines(digits, count, seed=0):
    """Steps between terms of few digits, 0 and 9 among them, that carry and borrow over many places at once."""
    rng, pairs = np.random.default_rng(seed), []
    while len(pairs) < count:
        alphabet = rng.choice(["09", "059", "0459", "019"])
        y, x = draw_number(rng, digits, alphabet), draw_number(rng, digits, alphabet)
        pairs += [(y, x)] if 0 <= 2 * x - y < 10**digits else []
    return steps(pairs)


def foretold(tokens_BT, digits):
    """Which tokens but the first follow from those before: the spaces, and all from the third term on: (T - 1)."""
    place_T = np.arange(1, tokens_BT.shape[1])
    return (place_T % (digits + 1) == digits) | (place_T >= 2 * (digits + 1))


def margins(logits_BTV, tokens_BT, digits):
    """By how much the logit of every token that can be foretold leads the next best."""
    logits_BTV, next_BT1 = np.array(logits_BTV[:, :-1]), tokens_BT[:, 1:, None]
    of_next_BT1 = np.take_along_axis(logits_BTV, next_BT1, -1)
    np.put_along_axis(logits_BTV, next_BT1, -np.inf, -1)
    return (of_next_BT1[..., 0] - logits_BTV.max(-1))[:, foretold(tokens_BT, digits)]


def check(rows, digits):
    tokens_BT = encode_rows(rows, digits)
    logits_BTV = apply(circuit.params(digits), tokens_BT, circuit.config(digits))
    assert margins(logits_BTV, tokens_BT, digits).min() == circuit.SURE


def test_it_continues_the_example():
    prompt_BT, cfg, params = tokenizer.encode("007 010 013")[None], circuit.config(3), circuit.params(3)
    cache = model.init_cache(cfg, 1, prompt_BT.shape[1] + 12)
    grow = partial(extend, params, cfg=cfg)
    tokens_BN = generate.generate(grow, cache, prompt_BT, np.array([prompt_BT.shape[1]], np.int32), 12)
    assert tokenizer.decode(tokens_BN[0]) == " 016 019 022"


@pytest.mark.parametrize("digits", [1, 3, 40])
def test_its_tree_is_the_models(digits, key):
    fresh = jax.eval_shape(lambda key: model.init(key, circuit.config(digits)), key)
    params = circuit.params(digits)
    assert jax.tree.structure(params) == jax.tree.structure(fresh)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), params, fresh)))


@pytest.mark.parametrize("digits", [1, 2])
def test_every_step_is_right(digits):
    """Of every size and sign: 50 at one digit, 5000 at two."""
    rows = every_step(digits)
    assert len(rows) == 10 ** (2 * digits) // 2
    check(rows, digits)


@pytest.mark.parametrize("digits", [1, 2, 5, 40])
def test_longer_rows_are_right(digits):
    check(random_rows(digits, 7, 100), digits)


@pytest.mark.parametrize("digits", [3, 5, 12, 40])
def test_borrows_over_any_run_are_right(digits):
    check(runs_of_zeros(digits) + runs_of_nines(digits, 100), digits)


def test_nothing_before_the_last_two_terms_counts():
    """So what holds for steps holds for rows of any length."""
    digits = 3
    tokens_BT, period = encode_rows(random_rows(digits, 4, 50), digits), digits + 1
    other_BT = np.random.default_rng(1).integers(0, 11, tokens_BT.shape).astype(np.int32)
    other_BT[:, period - 1 :] = tokens_BT[:, period - 1 :]
    params, cfg = circuit.params(digits), circuit.config(digits)
    first = 3 * period - 1  # the space before the fourth term
    logits_BTV, others_BTV = apply(params, tokens_BT, cfg), apply(params, other_BT, cfg)
    np.testing.assert_array_equal(logits_BTV[:, first:], others_BTV[:, first:])


@pytest.mark.parametrize("sizes", [[1] * 28, [28]], ids=["by token", "at once"])
def test_the_cache_gives_the_very_same_logits(sizes):
    digits = 3
    tokens_BT = encode_rows(random_rows(digits, 7, 50), digits)
    params, cfg = circuit.params(digits), circuit.config(digits)
    cache, pieces = model.init_cache(cfg, len(tokens_BT), 28), []
    for piece_BT in np.split(tokens_BT, np.cumsum(sizes)[:-1], axis=1):
        logits_BTV, cache = extend(params, piece_BT, cache, cfg)
        pieces.append(logits_BTV)
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), apply(params, tokens_BT, cfg))


def test_half_precision_is_enough():
    """Every weight and every sum is a number that bfloat16 has."""
    digits = 12
    tokens_BT = encode_rows(runs_of_zeros(digits), digits)
    params, cfg = circuit.params(digits), circuit.config(digits)
    logits_BTV = apply(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params), tokens_BT, cfg)
    assert margins(logits_BTV.astype(jnp.float32), tokens_BT, digits).min() == circuit.SURE


def test_any_weight_of_the_other_sign_breaks_it():
    digits = 3
    params, cfg = circuit.params(digits), circuit.config(digits)
    tokens_BT = encode_rows(runs_of_zeros(digits) + random_rows(digits, 3, 300), digits)

    @jax.jit
    def errors(params):
        wrong_BT = jnp.argmax(model.apply(params, tokens_BT, cfg), -1)[:, :-1] != tokens_BT[:, 1:]
        return wrong_BT[:, foretold(tokens_BT, digits)].sum()

    assert errors(params) == 0
    params = jax.tree.map(np.array, params)
    for leaf in jax.tree.leaves(params):
        for index in map(tuple, np.argwhere(leaf)):
            leaf[index] *= -1
            assert errors(params), f"weight {index} of {leaf.shape} is idle"
            leaf[index] *= -1


@pytest.mark.parametrize("digits", [0, -1])
def test_a_term_has_a_digit(digits):
    with pytest.raises(ValueError, match=f"not {digits}"):
        circuit.params(digits)
