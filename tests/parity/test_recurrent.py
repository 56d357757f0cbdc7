"""In float64 each recurrent model is the one of PyTorch: logits and every gradient to 1e-12, on the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import recurrent
from apformer.loss import cross_entropy
from tests.helpers.small_models import V, draw_params, draw_tokens

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")

pytestmark = pytest.mark.parity

B, T, D = 3, 8, 5

# The order in which PyTorch stacks the rows of its weights.
PARTS = {
    "rnn": ("candidate",),
    "gru": ("reset_gate", "update_gate", "candidate"),
    "lstm": ("input_gate", "forget_gate", "candidate", "output_gate"),
}
every_model = pytest.mark.parametrize("cell, n_layers", [(cell, n) for cell in PARTS for n in (2,)])


def theirs(params, cfg):
    """(embedding, recurrent network, head) of PyTorch with our weights.

    It has two biases for each part where one is enough; only the second of the GRU's candidate is not redundant.
    """
    parts = PARTS[cfg.cell]
    embedding = torch.nn.Embedding(V, D, dtype=torch.float64)
    kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cfg.cell]
    network = kind(D, D, cfg.n_layers, batch_first=True, dtype=torch.float64)
    head = torch.nn.Linear(D, V, dtype=torch.float64)

    def fill(parameter, value):
        parameter.data.copy_(torch.tensor(np.asarray(value)))

    fill(embedding.weight, params["embedding"]["table"])
    fill(head.weight, params["head"]["output"]["weight"].T)
    fill(head.bias, params["head"]["output"]["bias"])
    for layer in range(cfg.n_layers):
        for ours, name in (("input", "ih"), ("hidden", "hh")):
            maps = [params["cells"][part][ours] for part in parts]
            fill(getattr(network, f"weight_{name}_l{layer}"), np.concatenate([m["weight"][layer].T for m in maps]))
            biases = [m["bias"][layer] if "bias" in m else np.zeros(D) for m in maps]
            fill(getattr(network, f"bias_{name}_l{layer}"), np.concatenate(biases))
    return embedding, network, head


def their_gradients(embedding, network, head, cfg):
    """The gradients of PyTorch's parameters under our names."""

    def gradient(name, layer):
        stacked = np.split(getattr(network, f"{name}_l{layer}").grad.numpy(), len(PARTS[cfg.cell]))
        return dict(zip(PARTS[cfg.cell], stacked, strict=True))

    def layers(name, part):
        return np.stack([gradient(name, layer)[part] for layer in range(cfg.n_layers)])

    cells = {
        part: {
            "input": {"weight": layers("weight_ih", part).swapaxes(1, 2), "bias": layers("bias_ih", part)},
            "hidden": {"weight": layers("weight_hh", part).swapaxes(1, 2)},
        }
        for part in PARTS[cfg.cell]
    }
    if cfg.cell == "gru":
        cells["candidate"]["hidden"]["bias"] = layers("bias_hh", "candidate")
    output = {"weight": head.weight.grad.numpy().T, "bias": head.bias.grad.numpy()}
    return {"embedding": {"table": embedding.weight.grad.numpy()}, "cells": cells, "head": {"output": output}}


@every_model
def test_logits_loss_and_gradients(cell, n_layers):
    cfg = recurrent.Config(vocab_size=V, cell=cell, d_model=D, n_layers=n_layers)
    params, tokens = draw_params(cfg, dtype=np.float64), draw_tokens(B, T)
    rng = np.random.default_rng(1)
    weights = rng.random((B, T)) * (np.arange(T)[None] < np.array([8, 3, 5])[:, None])  # ragged rows

    @jax.jit
    @jax.value_and_grad
    def ours(params):
        return cross_entropy(recurrent.apply(params, tokens[:, :-1], cfg), tokens[:, 1:], weights[:, 1:])

    embedding, network, head = theirs(params, cfg)
    hidden, _ = network(embedding(torch.tensor(tokens[:, :-1]).long()) * D**0.5)
    logits = head(hidden)
    nats = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(tokens[:, 1:]).long().flatten(), reduction="none"
    )
    weight = torch.tensor(weights[:, 1:]).flatten()
    loss = (weight * nats).sum() / weight.sum()
    loss.backward()

    our_logits = jax.jit(recurrent.apply, static_argnames="cfg")(params, tokens[:, :-1], cfg)
    assert our_logits.dtype == jnp.float64
    np.testing.assert_allclose(our_logits, logits.detach().numpy(), rtol=1e-12, atol=1e-12)
    our_loss, gradients = ours(params)
    np.testing.assert_allclose(our_loss, loss.item(), rtol=1e-12)
    expected = their_gradients(embedding, network, head, cfg)
    assert jax.tree.structure(gradients) == jax.tree.structure(expected)
    for (path, gradient), expected_leaf in zip(
        jax.tree_util.tree_leaves_with_path(gradients), jax.tree.leaves(expected), strict=True
    ):
        assert np.abs(expected_leaf).max() > 1e-4
        np.testing.assert_allclose(gradient, expected_leaf, rtol=0, atol=1e-12, err_msg=jax.tree_util.keystr(path))
