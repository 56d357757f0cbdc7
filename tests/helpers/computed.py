"""What one small model computes: `python -m tests.helpers.computed FOLDER WAY...` writes it, a file of arrays each way.

The environment says by which compiler: XLA_FLAGS, and JAX_ENABLE_X64 for float64. A way is a name, of which two mean
something. rows: every batch row by row. moved: one weight is another by a ten-thousandth, and nothing is certified. All
begin with the same numbers, which numpy draws.
"""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import model, optimizer, train
from apformer.analysis import certificate
from apformer.decoding.bind import bind
from apformer.formats.weights import named
from apformer.loss import cross_entropy
from apformer.settings import Settings, Training
from apformer.tasks import progressions
from apformer.tasks.progressions import generator
from apformer.tokenizers import digits
from tests.helpers import circuit

STEPS, B, TERMS = 20, 16, 6
DATA = progressions.Config(digits=2, min_difference=-20, max_difference=20)
ASKED = progressions.Config(digits=1, min_difference=-4, max_difference=4)  # by the certificate
CFG = model.Config(d_model=16, n_heads=2, n_layers=2, d_ff=24, position="relative", window=7, final_norm=True)
RULE = optimizer.Config(learning_rate=3e-3, warmup_steps=5, weight_decay=0.1)
MOVED = 1e-4
OPTIMIZER = optimizer.make(RULE, STEPS)
apply = jax.jit(partial(model.apply, cfg=CFG))


def drawn(cfg, dtype, spread=0.3):
    """Parameters, each of which matters: drawn by numpy, gains around 1."""
    rng = np.random.default_rng(0)

    def leaf(path, shape):
        centre = 1.0 if path[-1].key == "scale" else 0.0
        return (centre + spread * rng.standard_normal(shape.shape)).astype(np.float32).astype(dtype)

    return jax.tree_util.tree_map_with_path(leaf, jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0)))


def rows(rng, count):
    """Progressions as tokens: (count, T)."""
    first, difference = rng.integers(0, 40, count), rng.integers(0, 12, count)
    lines = [
        generator.render(a, d, TERMS, DATA.digits) for a, d in zip(first.tolist(), difference.tolist(), strict=True)
    ]
    return np.stack([digits.encode(line) for line in lines])


def loss_fn(params, tokens_BT, key):
    logits_BTV = model.apply(params, tokens_BT[:, :-1], CFG)
    return cross_entropy(logits_BTV, tokens_BT[:, 1:], jnp.ones(tokens_BT[:, 1:].shape)), {}


def row_by_row(params, tokens_BT, key):
    """The same, a batch of one row after the other."""
    return jax.lax.map(lambda tokens_T: loss_fn(params, tokens_T[None], key)[0], tokens_BT).mean(), {}


whole_step, rows_step = (jax.jit(train.make_train_step(each, OPTIMIZER)) for each in (loss_fn, row_by_row))


def computed(way):
    """{name: array}: logits, the parameters after some steps, and a certificate."""
    alone, moved = way == "rows", way == "moved"
    dtype, rng = jnp.zeros(()).dtype, np.random.default_rng(1)
    params = drawn(CFG, dtype)
    if moved:
        params["blocks"]["attention"]["query"][0, 0, 0] += MOVED
    asked_BT = rows(rng, 3 * B)
    batches = np.split(asked_BT, 3 * B) if alone else [asked_BT]
    found = {"logits": np.concatenate([apply(params, tokens_BT) for tokens_BT in batches])}
    state = train.init_state(jax.random.key(0), params, OPTIMIZER, RULE.hyper())
    for _ in range(STEPS):
        state, _ = (rows_step if alone else whole_step)(state, rows(rng, B))
    found |= {f"parameter {name}": leaf for name, leaf in named(state.params).items()}
    if not moved:
        found |= certified(dtype, alone)
    return {name: np.asarray(value) for name, value in found.items()}


def certified(dtype, alone):
    """{name: number} of a certificate of the circuit."""
    cfg, params = circuit.config(1), jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), circuit.params(1))
    settings = Settings("progressions", "model", Training(), cfg, ASKED, progressions.Options())
    certificate.BATCH_TOKENS["cpu"] = 1 if alone else 4096
    case = certificate.case(settings, progressions.contexts, params)
    (tally,) = certificate.screen(case, bind(model, params, cfg))
    proof = certificate.conclude(case, tally, proof=False)
    return {"margin": proof["smallest_margin"], "counts": [proof["contexts"], proof["errors"], proof["screened"]]}


if __name__ == "__main__":
    for way in sys.argv[2:]:
        np.savez(Path(sys.argv[1]) / f"{way}.npz", **computed(way))
