"""Models that write together: the mean of their probabilities, token by token, in any order, and by beams."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import seq2seq
from apformer.decoding import beam, ensemble
from tests.test_seq2seq import CONFIGS, SOURCE_LENGTHS, B, T, U, V, draw_params

CFGS = (CONFIGS["published"], CONFIGS["rotary"], CONFIGS["cosine"])  # of different shapes, with one vocabulary
END, STEPS = V - 1, 6
SOURCE, TARGET = (np.random.default_rng(n).integers(0, size, (B, T)).astype(np.int32) for n, size in ((0, U), (1, V)))


@pytest.fixture(scope="module")
def models():
    return [(draw_params(cfg, seed=seed), cfg) for seed, cfg in enumerate(CFGS)]


def begin(models, length):
    """(extend, cache) of models together."""
    caches = [seq2seq.init_cache(params, SOURCE, cfg, length, np.minimum(SOURCE_LENGTHS, T)) for params, cfg in models]
    extends = [partial(seq2seq.extend, params, cfg=cfg) for params, cfg in models]
    return ensemble.together(extends), ensemble.join(caches)


def logits_of(models):
    """logits_BTV, read in two pieces."""
    extend, cache = begin(models, T)
    first_BTV, cache = extend(TARGET[:, :2], cache)
    return np.concatenate([first_BTV, extend(TARGET[:, 2:], cache)[0]], axis=1)


def test_probabilities_are_the_mean_of_those_of_whole_passes(models):
    lengths_B = np.minimum(SOURCE_LENGTHS, T)
    alone = [seq2seq.apply(params, SOURCE, TARGET, cfg, source_lengths_B=lengths_B) for params, cfg in models]
    mean = np.mean([jax.nn.softmax(logits_BTV) for logits_BTV in alone], axis=0)
    np.testing.assert_allclose(np.exp(logits_of(models)), mean, atol=1e-6)
    np.testing.assert_allclose(logits_of(models[::-1]), logits_of(models), atol=1e-5)


def test_a_model_with_itself_is_that_model(models):
    np.testing.assert_allclose(logits_of(models[:1] * 3), logits_of(models[:1]), atol=1e-5)


def test_two_models_by_hand():
    """One is sure of a token, the other of none: the sure one decides, and the other leaves it half its share."""
    sure, unsure = jnp.array([0.0, 50.0, 0.0]), jnp.zeros(3)
    extends = [lambda tokens, cache, lengths_B, logits=logits: (logits[None, None], cache) for logits in (sure, unsure)]
    logp_BTV, cache = ensemble.together(extends)(None, ensemble.join([{"n": 1}, {"n": 2}]))
    np.testing.assert_allclose(np.exp(logp_BTV[0, 0]), [1 / 6, 4 / 6, 1 / 6], rtol=1e-6)
    assert cache == {"n": (1, 2)}


def test_beams_share_the_sources_of_all_models(models):
    def found(shared):
        extend, cache = begin(models, STEPS)
        start_B = jnp.full(B, END, jnp.int32)
        return beam.search(extend, cache, start_B, END, STEPS, beams=3, alpha=0.6, shared=shared)

    ours, theirs = (jax.jit(partial(found, shared))() for shared in (("source", "source_mask"), ()))
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-5)
