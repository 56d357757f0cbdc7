"""The counts of an evaluation are exact, by hand, in batches of any shape."""

import json
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.tree_util import Partial

from apformer.decoding.bind import Model
from apformer.layers import recompute
from apformer.tasks.batch import Batch
from apformer.tasks.progressions import evaluation
from apformer.tasks.progressions.evaluation import carries, measure
from apformer.tasks.progressions.generator import Config, Progressions, draw, encode_rows
from apformer.tasks.progressions.training import exact

V, SPACE = 11, 10


def rows_of(*texts):
    """Progressions written out, as `measure` takes them."""
    terms = [[int(term) for term in text.split()] for text in texts]
    return Progressions(*np.array([(t[0], t[1] - t[0], len(t)) for t in terms], np.int32).T)


def arithmetician(digits, slips=lambda before, terms: before < 0, space=SPACE):
    """A model that continues the last two terms exactly, but says one too much where slips(value before, number).

    Its logits are 3 for the token it means and 0 for the others; in the first two terms it means 0.
    """
    powers_C = jnp.array([10**i for i in range(digits)][::-1], jnp.int32)

    def apply(tokens_BT):
        B, T = tokens_BT.shape
        N = -(-T // (digits + 1)) + 1
        text_BNP = jnp.pad(tokens_BT, ((0, 0), (0, N * (digits + 1) - T))).reshape(B, N, digits + 1)
        value_BN = (text_BNP[:, :, :digits] * powers_C[None, None]).sum(-1, dtype=jnp.int32)
        before_BN, twice_before_BN = (jnp.pad(value_BN, ((0, 0), (n, 0)))[:, :N] for n in (1, 2))
        next_BN = 2 * before_BN - twice_before_BN + slips(before_BN, jnp.arange(1, N + 1)[None]).astype(jnp.int32)
        next_BNC = next_BN[:, :, None] // powers_C[None, None] % 10
        meant_BNP = jnp.concatenate([next_BNC, jnp.full((B, N, 1), space, jnp.int32)], axis=2)
        meant_BNP = jnp.where(jnp.arange(N)[None, :, None] < 2, 0, meant_BNP)
        meant_BNP = meant_BNP.at[:, 1, digits].set(space)
        return 3 * jax.nn.one_hot(meant_BNP.reshape(B, -1)[:, 1 : T + 1], V)

    cached = recompute.functions(
        SimpleNamespace(apply=lambda _, tokens_BT, cfg: apply(tokens_BT), max_tokens=lambda _: None)
    )

    def extend(tokens_BT, cache, lengths_B=None):
        return cached["extend"](None, tokens_BT, cache, None, lengths_B=lengths_B)

    return Model(Partial(apply), Partial(extend), Partial(cached["init_cache"], None))


def test_counts_by_hand(monkeypatch):
    monkeypatch.setattr(evaluation, "BATCH_TOKENS", 24)
    rows = rows_of("07 10 13 16 19", "50 40 30 20", "01 02", "20 25 30")
    told = []
    result = measure(
        rows,
        2,
        arithmetician(2, lambda before, _: before == 13),  # 17 for 16; then, undisturbed, 17 21
        bayes_nats=np.array([4.0, 3.0, 2.0, 1.0]),
        progress=lambda done, total: told.append((done, total)),
    )
    assert (result["sequences"], result["terms"]) == (4, 6)
    assert result["exact_teacher_forced"] == 5 / 6
    assert result["exact_free_running"] == 4 / 6
    assert result["exact_sequences"] == 2 / 3
    # 14 + 11 + 5 + 8 - 4 characters are predicted. The slip costs one; 0 for all in the first two terms costs 3 of
    # _7_10, 2 of _0_40, 3 of _1_02 and 3 of _0_25.
    wrong = 1 + 3 + 2 + 3 + 3
    assert result["nats_per_char"] == pytest.approx(np.log(np.e**3 + 10) - 3 * (1 - wrong / 34), abs=1e-6)
    assert result["bayes_nats_per_char"] == 10 / 34
    assert result["excess"] == result["nats_per_char"] - 10 / 34

    def group(count, forced, free, **label):
        return label | {"count": count, "teacher_forced": forced, "free_running": free}

    assert result["by_position"] == [group(3, 1, 1, term=3), group(2, 0.5, 0.5, term=4), group(1, 1, 0, term=5)]
    assert result["by_carries"] == [group(5, 0.8, 0.6, carries=0), group(1, 1, 1, carries=1)]
    bins = result["by_difference"]
    assert [(b["from"], b["to"]) for b in bins] == [(d, min(5, d + 1)) for d in range(-10, 5, 2)]
    assert [b["count"] for b in bins] == [2, 0, 0, 0, 0, 0, 3, 1]
    assert bins[1] == group(0, None, None, **{"from": -8, "to": -7})
    assert bins[6] == group(3, 2 / 3, 1 / 3, **{"from": 2, "to": 3})
    cells = result["by_first_and_difference"]
    assert (len(cells), {len(row) for row in cells}) == (10, {len(bins)})
    found = {(i, k): cell["count"] for i, row in enumerate(cells) for k, cell in enumerate(row) if cell["count"]}
    assert found == {(0, 6): 3, (2, 7): 1, (5, 0): 2}
    assert cells[0][6] == group(3, 2 / 3, 1 / 3)
    assert result["errors"] == [{"row": "07 10 13 16 19", "term": 4, "expected": " 16", "predicted": " 17"}]
    assert told[-1] == (4, 4)
    assert json.loads(json.dumps(result)) == result


def test_batches_of_any_size_count_the_same(monkeypatch):
    """As rows one by one."""
    cfg = Config(digits=2, min_difference=-30, max_difference=30, max_terms=9)
    rows = jax.device_get(draw(jax.random.key(8), cfg, 60))
    model = arithmetician(2, lambda before, number: (before * 7 + number) % 13 == 0)

    def of_size(tokens):
        monkeypatch.setattr(evaluation, "BATCH_TOKENS", tokens)
        return measure(rows, 2, model)

    alone, *others = map(of_size, (1, 100, 10**6))
    assert 0.5 < alone["exact_free_running"] < alone["exact_teacher_forced"] < 1
    for other in others:
        assert other.pop("nats_per_char") == pytest.approx(alone["nats_per_char"], abs=1e-6)
        assert other.items() <= alone.items()


def test_a_term_without_its_space_is_wrong():
    result = measure(rows_of("07 10 13 16", "30 40 50"), 2, arithmetician(2, space=0))
    assert result["exact_teacher_forced"] == result["exact_free_running"] == 0
    assert result["errors"][-1] == {"row": "30 40 50", "term": 3, "expected": " 50", "predicted": "050"}


def column_addition(a, b):
    carried, count = 0, 0
    while a or b:
        carried = int(a % 10 + b % 10 + carried > 9)
        count += carried
        a, b = a // 10, b // 10
    return count


@given(st.integers(1, 9).flatmap(lambda d: st.tuples(st.just(d), *[st.integers(0, 10**d - 1)] * 2)))
def test_carries_are_those_of_column_addition(case):
    digits, a, b = case
    low, step = min(a, b), abs(a - b)
    up, down = carries(np.array([low, low + step]), np.array([step, -step]), digits)
    assert up == down == column_addition(low, step)


def test_exact_counts_whole_terms_with_weight():
    batch = encode_rows(rows_of("07 10 13 16 19", "50 40 30", "01 02"), 2, 5)
    matches = jax.jit(partial(exact, digits=2))
    right_BT = batch.tokens_BT[:, 1:]
    assert matches(right_BT, batch) == 1
    assert matches(right_BT.at[:, :4].set(7), batch) == 1  # the first two terms are not predictable
    for t in (4, 5, 6):  # the space, the tens and the units of 13
        assert matches(right_BT.at[0, t].set(7), batch) == 0.75
    assert matches(right_BT.at[1, 7:].set(7), batch) == 1  # beyond the end of the second row
    unweighted = Batch(batch.tokens_BT, batch.weights_BT.at[0, 5].set(0.0))
    assert matches(right_BT.at[0, 4].set(7), unweighted) == 1
    assert matches(right_BT, Batch(batch.tokens_BT, jnp.zeros_like(batch.weights_BT))) == 0


@pytest.mark.parametrize("margin", (3, 0.09))
def test_a_row_that_is_right_each_character_clearly_is_not_generated(margin):
    """The model is never right where it goes on from a cache, which shows for unclear rows alone."""
    sound = arithmetician(2)

    def clear(tokens_BT):
        return margin / 3 * sound.apply(tokens_BT)

    def wrong(tokens_BT, cache, lengths_B=None):
        return jnp.zeros((*tokens_BT.shape, V)), cache

    def ahead(tokens_BT):  # of all tokens but the last, the next one
        copied_BTV = jax.nn.one_hot(tokens_BT[:, 1:], V)
        return jnp.concatenate([copied_BTV, sound.apply(tokens_BT)[:, -1:]], axis=1)

    rows = rows_of("07 10 13 16", "50 40 30 20", "01 02")
    for apply, causal in ((clear, True), (ahead, False)):
        result = measure(rows, 2, Model(Partial(apply), Partial(wrong), sound.init_cache))
        assert result["exact_teacher_forced"] == 1 and result["exact_free_running"] == (margin > 1 and causal)
        assert (evaluation.AHEAD in evaluation.table(result)) != causal
