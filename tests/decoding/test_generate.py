"""What generation promises: the cache changes nothing, rows do not meet, samplers keep to their distribution."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.decoding.generate import Sampling, choose, generate, pad_prompts, sampling_of, scores
from apformer.errors import UserError
from tests.helpers.small_models import apply

V = 11
LOGITS = np.array([0.1, 2.0, -1.0, 1.5, 0.0, 1.0, -3.0], np.float32)  # most likely first: 1 3 5 0 4 2 6


def softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


@pytest.mark.parametrize(
    "sampling, kept, t",
    [
        (Sampling(), range(7), 1.0),
        (Sampling(2.0, min_p=0.5), [1, 3, 5], 2.0),  # the square roots of 1, 0.61, 0.37, 0.15 ...
        (Sampling(top_k=3, top_p=0.75), [1, 3], 1.0),  # of the three: 0.51 + 0.31 are more than 0.75
    ],
)
def test_tokens_are_drawn_from_the_truncated_softmax(sampling, kept, t):
    draws = 20_000
    keys_B = jax.random.split(jax.random.key(5), draws)
    tokens_B = jax.jit(choose)(jnp.broadcast_to(LOGITS, (draws, 7)), sampling, keys_B)
    count_V = np.bincount(tokens_B, minlength=7)
    kept = list(kept)
    expected_V = np.zeros(7)
    expected_V[kept] = softmax(LOGITS[kept] / t)
    assert count_V[expected_V == 0].sum() == 0
    deviation_V = np.sqrt(expected_V * (1 - expected_V) / draws)
    assert (abs(count_V / draws - expected_V) <= 5 * deviation_V).all()


def test_among_equals_the_lowest_ids_are_kept():
    logits_BV = jnp.array([[0, 3, 1, 3, 3], [2, 2, 2, 2, 2]], jnp.float32)
    assert choose(logits_BV).tolist() == [1, 0]
    for sampling in (Sampling(top_k=2), Sampling(top_p=0.39)):
        kept = [np.flatnonzero(np.isfinite(row_V)).tolist() for row_V in scores(logits_BV, sampling)]
        assert kept == [[1, 3], [0, 1]]


def test_each_row_has_numbers_of_its_own():
    """Greedy beside drawn ones; a row draws the same whatever filters are for the others."""
    logits_BV, keys_B = jax.random.normal(jax.random.key(0), (4, 50)), jax.random.split(jax.random.key(1), 4)
    alone = choose(logits_BV, Sampling(1.5), keys_B)
    mixed = Sampling(np.array([0, 1.5, 1.5, 1.5]), np.array([0, 1, 0, 5]), np.array([1, 1, 1, 0.5]))
    found = jax.jit(choose)(logits_BV, mixed, keys_B)
    assert found[:2].tolist() == logits_BV.argmax(-1)[:2].tolist() and found[2] == alone[2]


def test_a_literal_penalty_is_for_the_tokens_of_the_row():
    logits_BV = jnp.array([[4.0, -1.0, 2.0, 0.0, -3.0]])
    seen_BV = jnp.array([[False, True, True, True, False]])
    assert scores(logits_BV, Sampling(repetition_penalty=2.0), seen_BV).tolist() == [[0, -6, -3, -4, -7]]


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1.0}, {"temperature": float("inf")}, {"top_k": -1}, {"top_k": 0.9}, {"top_p": 1.5},
     {"min_p": float("nan")}, {"repetition_penalty": [1, 0]}],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(UserError, match="is out of range: give"):
        sampling_of(2, Sampling(**settings))


def test_prompts_are_padded_to_a_bucket():
    prompt_BT, lengths_B = pad_prompts([np.array([1, 2, 3]), np.array([4])], multiple=2)
    assert prompt_BT.tolist() == [[1, 2, 3, 0], [4, 0, 0, 0]]
    assert lengths_B.tolist() == [3, 1]
    assert prompt_BT.dtype == lengths_B.dtype == np.int32
    assert [pad_prompts([[1] * n], multiple=3)[0].shape[1] for n in (3, 4, 7)] == [3, 6, 12]
    for prompts in ([], [[1, 2], []]):
        with pytest.raises(ValueError, match="at least one"):
            pad_prompts(prompts)


def markov(table_VV):
    """A model whose next token depends on the last alone; its cache counts tokens."""

    def extend(tokens_BT, cache, lengths_B=None):
        return table_VV[tokens_BT], cache + tokens_BT.shape[1]

    return extend


def test_a_row_generates_the_same_samples_beside_other_rows(key):
    extend = markov(jax.random.normal(key, (V, V)))
    run = jax.jit(lambda *batch: generate(extend, jnp.int32(0), *batch, 9, key=key, sampling=Sampling(1.5, top_p=0.9)))
    ours_BN, theirs_BN = (run(*pad_prompts(prompts)) for prompts in ([[1, 2], [3], [4]], [[5, 6, 7, 8], [3], [4]]))
    assert ours_BN[1:].tolist() == theirs_BN[1:].tolist()
    assert len({tuple(row_N) for row_N in ours_BN.tolist()}) == 3


def test_generation_without_steps_or_without_a_key_is_refused():
    start = (markov(jnp.zeros((V, V))), jnp.int32(0), jnp.array([[1]]), jnp.array([1], jnp.int32))
    with pytest.raises(ValueError, match="at least 1"):
        generate(*start, 0)
    with pytest.raises(ValueError, match="needs a key"):
        generate(*start, 3, sampling=Sampling(top_k=2))


PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5]]
STEPS = 13


def small(**changes):
    """Without biases on the logits greedy text is less monotonous."""
    return model.Config(**{"d_model": 12, "n_heads": 3, "d_ff": 5, "max_len": 29, "head_bias": False} | changes)


@partial(jax.jit, static_argnames="cfg")
def run(params, prompt_BT, lengths_B, cfg):
    def extend(tokens_BT, cache, lengths_B=None):
        return model.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

    B, T = prompt_BT.shape
    return generate(extend, model.init_cache(cfg, B, T + STEPS), prompt_BT, lengths_B, STEPS)


@pytest.mark.parametrize("position, window", [("learned", None), ("relative", 5)])
def test_cached_generation_is_the_argmax_of_the_uncached_model(position, window, random_params):
    cfg = small(position=position, window=window)
    params = random_params(cfg, seed=1)
    tokens_BN = np.asarray(run(params, *pad_prompts(PROMPTS, 7), cfg))
    assert len(set(tokens_BN.ravel().tolist())) > 2  # else the cache would hardly matter
    whole_BT = np.zeros((3, 7 + STEPS), np.int32)
    for row_T, prompt, tokens_N in zip(whole_BT, PROMPTS, tokens_BN, strict=True):
        row_T[: len(prompt) + STEPS] = [*prompt, *tokens_N]
    likeliest_BT = np.asarray(apply(params, whole_BT, cfg).argmax(-1))
    for row_T, prompt, tokens_N in zip(likeliest_BT, PROMPTS, tokens_BN, strict=True):
        assert row_T[len(prompt) - 1 :][:STEPS].tolist() == tokens_N.tolist()
