"""What a repetition penalty promises: its equation, for every way to generate, whatever stands beside a row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import recurrent
from apformer.decoding.bind import Model, bind
from apformer.decoding.generate import generate, pad_prompts, sampler
from apformer.decoding.repetition import penalized
from apformer.decoding.stream import write

V, STEPS, PENALTY = 11, 13, 1.7
PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5]]


@pytest.fixture(scope="module")
def bound():
    cfg = recurrent.Config(vocab_size=V, d_model=7)
    params = jax.tree.map(lambda leaf: 2 * leaf, recurrent.init(jax.random.key(4), cfg))
    return bind(recurrent, params, cfg)


@jax.jit
def run(extend, cache, prompt_BT, lengths_B):
    sample = sampler(1.5, top_k=6, top_p=0.95, min_p=0.01)
    return generate(extend, cache, prompt_BT, lengths_B, STEPS, key=jax.random.key(2), sample=sample)


def written(bound, prompts):
    return np.asarray(run(bound.extend, bound.init_cache(len(prompts), 20), *pad_prompts(prompts, 7)))


def penalized_by_hand(logits_V, row, penalty):
    logits_V = np.array(logits_V)
    for token in set(row):
        logits_V[token] = logits_V[token] / penalty if logits_V[token] > 0 else logits_V[token] * penalty
    return logits_V


def test_a_literal_penalty_reaches_the_tokens_of_the_row_and_none_of_its_padding():
    logits_V = jnp.array([4.0, -1.0, 2.0, 0.0, -3.0])

    def extend(tokens_BT, cache, lengths_B=None):
        return jnp.broadcast_to(logits_V, (*tokens_BT.shape, 5)), cache

    class Cfg:
        vocab_size = 5

    bare = Model(Partial(lambda tokens_BT: extend(tokens_BT, 0)[0]), Partial(extend), Partial(lambda *_: 0), cfg=Cfg)
    found = penalized(bare, 2.0)
    tokens_BT = jnp.array([[2, 1, 2], [4, 0, 0]])
    logits_BTV, kept = found.extend(tokens_BT, found.init_cache(2, 9), lengths_B=jnp.array([3, 1]))
    row = [[4, -1, 1, 0, -3], [4, -2, 1, 0, -3], [4, -2, 1, 0, -3]]
    assert logits_BTV[0].tolist() == row and logits_BTV[1, 0].tolist() == [4, -1, 2, 0, -6]
    assert found.apply(tokens_BT)[0].tolist() == row
    logits_BTV, _ = found.extend(jnp.array([[0], [1]]), kept)
    assert logits_BTV[:, 0].tolist() == [[2, -2, 1, 0, -3], [4, -2, 2, 0, -6]]


def test_cached_generation_is_that_of_the_uncached_model_penalized_by_hand(bound):
    penalty, apply = PENALTY, jax.jit(bound.apply)
    sample = jax.jit(sampler(1.5, top_k=6, top_p=0.95, min_p=0.01))
    tokens_BN = written(penalized(bound, penalty), PROMPTS)
    rows = [[*prompt] for prompt in PROMPTS]
    for n in range(STEPS):
        padded_BT, _ = pad_prompts(rows, 20)
        logits_BTV = np.asarray(apply(padded_BT))
        last = [penalized_by_hand(logits_BTV[b, len(row) - 1], row, penalty) for b, row in enumerate(rows)]
        drawn_B = sample(jax.random.fold_in(jax.random.key(2), n), jnp.asarray(last))
        assert drawn_B.tolist() == tokens_BN[:, n].tolist()
        for row, token in zip(rows, drawn_B.tolist(), strict=True):
            row.append(token)
    assert (tokens_BN != written(bound, PROMPTS)).any()  # else the penalty would not matter


def test_what_is_written_in_chunks_is_what_is_generated_at_once(bound):
    found, key, sample = penalized(bound, PENALTY), jax.random.key(2), sampler(1.5, top_k=6, top_p=0.95, min_p=0.01)
    chunks_BN = np.concatenate([*write(PROMPTS[0], STEPS, 2, 20, found, key=key, sample=sample)], axis=1)
    assert chunks_BN.tolist() == written(found, [PROMPTS[0]] * 2).tolist()


def test_a_penalty_that_is_no_positive_number_is_refused():
    with pytest.raises(ValueError, match="use 1 for none"):
        penalized(None, float("nan"))
