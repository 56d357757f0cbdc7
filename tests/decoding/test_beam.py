"""Beam search against greedy search, against the model's own log-probabilities, and against every text there is."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import seq2seq
from apformer.decoding import beam, generate
from tests.helpers.small_models import draw_params
from tests.test_seq2seq import SOURCE_LENGTHS, B, S, small

V, STEPS, END, START = 4, 4, 3, 0
CFG = small(source_vocab_size=5, target_vocab_size=V, n_encoder_layers=1)
SOURCE = np.random.default_rng(0).integers(0, 5, (B, S)).astype(np.int32)


@pytest.fixture(scope="module")
def params():
    """One whose likeliest text is never the greedy one, and not the same for every length penalty."""
    return draw_params(CFG, seed=12)


def _extend(params, tokens_BT, cache, lengths_B=None):
    return seq2seq.extend(params, tokens_BT, cache, CFG, lengths_B=lengths_B)


@partial(jax.jit, static_argnames=("beams", "alpha", "shared"))
def search(params, source_BS, lengths_B, beams, alpha, shared=("source", "source_mask")):
    cache = seq2seq.init_cache(params, source_BS, CFG, STEPS + 1, lengths_B)
    start_B = jnp.full(len(source_BS), START, jnp.int32)
    return beam.search(partial(_extend, params), cache, start_B, END, STEPS, beams=beams, alpha=alpha, shared=shared)


@pytest.fixture(scope="module")
def every_text(params):
    """Each text that ends, or is cut off at STEPS: its tokens, its length and its log-probability in each row."""
    apply = jax.jit(seq2seq.apply, static_argnames="cfg")
    tokens = np.array(list(itertools.product(range(V), repeat=STEPS)), np.int32)
    inputs = np.concatenate([np.full((len(tokens), 1), START, np.int32), tokens[:, :-1]], 1)
    found = [{} for _ in range(B)]
    for b in range(B):
        source = np.broadcast_to(SOURCE[b], (len(tokens), S))
        logits = apply(params, source, inputs, CFG, source_lengths_B=np.full(len(tokens), SOURCE_LENGTHS[b], np.int32))
        logp = np.asarray(jax.nn.log_softmax(logits))
        for row, text in enumerate(tokens):
            length = list(text).index(END) + 1 if END in text else STEPS
            found[b][tuple(text[:length])] = logp[row, np.arange(length), text[:length]].sum()
    return found


def scored(texts, alpha):
    return {text: logp / ((5 + len(text)) / 6) ** alpha for text, logp in texts.items()}


def test_one_beam_is_what_generate_writes(params, every_text):
    """Up to the end token, at which generation goes on and a beam does not; and there are better texts."""

    @jax.jit
    def write(params):
        cache = seq2seq.init_cache(params, SOURCE, CFG, STEPS + 1, SOURCE_LENGTHS)
        extend = partial(_extend, params)
        return generate.generate(extend, cache, jnp.full((B, 1), START, jnp.int32), jnp.ones(B, jnp.int32), STEPS)

    written, (tokens, lengths, _) = write(params), search(params, SOURCE, SOURCE_LENGTHS, 1, 0.6)
    for b in range(B):
        np.testing.assert_array_equal(tokens[b, 0, : lengths[b, 0]], written[b, : lengths[b, 0]])
        assert lengths[b, 0] == STEPS or tokens[b, 0, lengths[b, 0] - 1] == END
        assert every_text[b][tuple(tokens[b, 0, : lengths[b, 0]].tolist())] < max(every_text[b].values())


def test_a_beam_as_wide_as_all_beginnings_finds_the_best_text(params, every_text):
    alpha = 2.0
    tokens, lengths, scores = search(params, SOURCE, SOURCE_LENGTHS, len(every_text[0]), alpha)
    for b in range(B):
        expected = scored(every_text[b], alpha)
        best = max(expected, key=expected.get)
        assert expected[best] < -0.1
        assert tuple(tokens[b, 0, : lengths[b, 0]].tolist()) == best
        np.testing.assert_allclose(scores[b, 0], expected[best], atol=1e-5)


def test_scores_are_the_models_own_in_order_and_beyond_the_end_stands_the_end(params, every_text):
    tokens, lengths, scores = search(params, SOURCE, SOURCE_LENGTHS, 3, 0.6)
    assert tokens.shape == (B, 3, STEPS) and (scores[:, 1:] <= scores[:, :-1]).all()
    for b, k in itertools.product(range(B), range(3)):
        if np.isfinite(scores[b, k]):
            text = tuple(tokens[b, k, : lengths[b, k]].tolist())
            np.testing.assert_allclose(scores[b, k], scored(every_text[b], 0.6)[text], atol=1e-5)
            assert (np.asarray(tokens)[b, k, lengths[b, k] :] == END).all()
        texts = {tuple(row) for row, score in zip(tokens[b].tolist(), scores[b], strict=True) if np.isfinite(score)}
        assert len(texts) == np.isfinite(scores[b]).sum() >= 1


def test_what_beams_share_need_not_be_repeated(params):
    shared, repeated = (
        search(params, SOURCE, SOURCE_LENGTHS, 3, 0.6, names) for names in (("source", "source_mask"), ())
    )
    for leaf, other in zip(shared, repeated, strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-5)


def test_the_rows_beside_a_row_change_nothing(params):
    order = np.array([2, 0, 1])
    once = search(params, SOURCE, SOURCE_LENGTHS, 3, 0.6)
    again = search(params, SOURCE[order], SOURCE_LENGTHS[order], 3, 0.6)
    for leaf, other in zip(once, again, strict=True):
        np.testing.assert_allclose(other, np.asarray(leaf)[order], atol=1e-5)


@pytest.mark.parametrize("beams, steps, alpha", [(0, 1, 0.0), (1, 0, 0.0), (1, 1, -1.0)])
def test_what_searches_nothing_is_refused(beams, steps, alpha):
    with pytest.raises(ValueError, match=f"beams {beams} and steps {steps}"):
        beam.search(None, None, np.zeros(1, np.int32), END, steps, beams=beams, alpha=alpha)
