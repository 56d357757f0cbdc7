"""In float64 our decoder and one in PyTorch agree: logits to 1e-12, every gradient to 1e-10 of its largest entry."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.loss import cross_entropy
from tests.helpers import small_models

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
from tests.parity import reference  # noqa: E402

pytestmark = pytest.mark.parity

B, T, V = 3, 8, 11

OPTIONS = {
    "position": ("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
    "window": (None, 5),
    "n_heads": (1, 3),
    "n_layers": (1, 2),
} | small_models.OPTIONS


def pairs(options):
    """Every pair of values that a dict of options holds together."""
    return set(itertools.combinations(sorted((name, str(value)) for name, value in options.items()), 2))


def covering(count=14):
    """`count` choices of options, each the one of 50 draws that shows the most pairs of values not shown yet."""
    rng = np.random.default_rng(0)
    shown = set()
    chosen = []
    for _ in range(count):
        draws = [{name: v[rng.integers(len(v))] for name, v in OPTIONS.items()} for _ in range(50)]
        chosen.append(max(draws, key=lambda options: len(pairs(options) - shown)))
        shown |= pairs(chosen[-1])
    return chosen


def test_every_value_and_most_pairs_of_values_are_among_the_configurations():
    shown = set().union(*map(pairs, covering()))
    for name, values in OPTIONS.items():
        assert {str(options[name]) for options in covering()} == {*map(str, values)}
    products = itertools.combinations(OPTIONS.values(), 2)
    assert len(shown) > 0.8 * sum(len(these) * len(those) for these, those in products)


def ours(params, tokens_BT, weights_BT, cfg):
    """((loss, logits), gradients) of our decoder."""

    def loss(params):
        logits_BTV = model.apply(params, tokens_BT[:, :-1], cfg)
        return cross_entropy(logits_BTV, tokens_BT[:, 1:], weights_BT[:, 1:]), logits_BTV

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)


@pytest.mark.parametrize("options", covering(), ids=lambda options: "-".join(map(str, options.values())))
def test_logits_loss_and_gradients(options, random_params):
    cfg = model.Config(vocab_size=V, d_model=12, d_ff=13, max_len=17, **options)
    params = random_params(cfg, dtype=np.float64)
    rng = np.random.default_rng(1)
    tokens_BT = rng.integers(0, V, (B, T)).astype(np.int32)
    weights_BT = rng.random((B, T)) * (np.arange(T)[None] < np.array([8, 3, 5])[:, None])  # ragged rows
    (our_loss, our_logits), our_gradients = ours(params, tokens_BT, weights_BT, cfg)
    theirs = reference.tensors(params)
    loss, logits = reference.loss(theirs, torch.tensor(tokens_BT).long(), torch.tensor(weights_BT), cfg)
    loss.backward()
    assert our_logits.dtype == jnp.float64
    np.testing.assert_allclose(our_logits, logits.detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(our_loss, loss.item(), rtol=1e-12)
    reference.assert_same_gradients(our_gradients, theirs, 1e-10)
