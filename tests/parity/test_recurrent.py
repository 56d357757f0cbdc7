"""In float64 each recurrent model is the one of PyTorch: logits and every gradient to 1e-12, on the same weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import recurrent
from apformer.loss import cross_entropy
from tests.helpers.small_models import V, draw_params, draw_tokens

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
from tests.parity import reference  # noqa: E402

pytestmark = pytest.mark.parity

B, T, D = 3, 8, 5

# The order in which PyTorch stacks the rows of its weights.
PARTS = {
    "rnn": ("candidate",),
    "gru": ("reset_gate", "update_gate", "candidate"),
    "lstm": ("input_gate", "forget_gate", "candidate", "output_gate"),
}
NETWORKS = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}


def theirs(params, tokens, cfg):
    """Logits of PyTorch with our weights.

    It has two biases for each part where one is enough; only the second of the GRU's candidate is not redundant.
    """
    weights = []
    none = torch.zeros(D, dtype=torch.float64)
    for layer in range(cfg.n_layers):
        cells = reference.one_layer(params["cells"], layer)
        sides = [[cells[part][side] for part in PARTS[cfg.cell]] for side in ("input", "hidden")]
        weights += [torch.cat([each["weight"].T for each in maps]) for maps in sides]
        weights += [torch.cat([each.get("bias", none) for each in maps]) for maps in sides]
    x = torch.nn.functional.embedding(torch.tensor(tokens).long(), params["embedding"]["table"]) * D**0.5
    state = torch.zeros(cfg.n_layers, B, D, dtype=torch.float64)
    state = (state, state) if cfg.cell == "lstm" else state
    hidden, *_ = NETWORKS[cfg.cell](x, state, weights, True, cfg.n_layers, 0.0, False, False, True)
    return reference.linear(params["head"]["output"], hidden)


@pytest.mark.parametrize("cell", PARTS)
def test_logits_loss_and_gradients(cell):
    cfg = recurrent.Config(vocab_size=V, cell=cell, d_model=D, n_layers=2)
    params, tokens = draw_params(cfg, dtype=np.float64), draw_tokens(B, T)
    rng = np.random.default_rng(1)
    weights = rng.random((B, T)) * (np.arange(T)[None] < np.array([8, 3, 5])[:, None])  # ragged rows

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def ours(params):
        logits = recurrent.apply(params, tokens[:, :-1], cfg)
        return cross_entropy(logits, tokens[:, 1:], weights[:, 1:]), logits

    (our_loss, our_logits), gradients = ours(params)
    tensors = reference.tensors(params)
    logits = theirs(tensors, tokens[:, :-1], cfg)
    loss = reference.mean_nats(logits, tokens[:, 1:], weights[:, 1:])
    loss.backward()
    assert our_logits.dtype == jnp.float64
    np.testing.assert_allclose(our_logits, logits.detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(our_loss, loss.item(), rtol=1e-12)
    reference.assert_same_gradients(gradients, tensors, 1e-12)
    assert min(np.abs(leaf).max() for leaf in jax.tree.leaves(gradients)) > 1e-4
