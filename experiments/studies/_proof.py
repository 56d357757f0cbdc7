"""Judge models that continue terms of any width, least significant digit first, by numpy in exact arithmetic.

The studies that use it need the laboratory: `pip install -e experiments/lab`.
"""

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import _lab  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np
from apformer_lab.proof import columns
from apformer_lab.rows import Batch

from apformer import tasks, train
from apformer.layers import leaves
from apformer.proof import check, network
from apformer.runs import fit
from apformer.settings import Settings

SPACE, START = 10, 11
BACK = ("0", "P", "P + 1", "P - 1", "2P - 1", "2P")  # offsets of tokens, counted back; terms of P - 1 digits
KINDS = ("a digit above the lowest two", "the digit after the lowest", "the lowest digit", "the space after a term")


def strings(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth) of every context of the proof, each (contexts,)."""
    data, cfg = asdict(settings.data), asdict(settings.model)
    (found,) = columns.slices(data, cfg)
    codes, truth = columns.strings(found, data, cfg)
    return codes.ravel(), truth.ravel()


def learn(settings: Settings, seed: int, rows: Batch | None = None) -> Any:
    """Train with this seed, on these rows or else on random ones, and return the parameters after the last step."""
    state = fit.initial_state(replace(settings, training=replace(settings.training, seed=seed)))
    if rows is None:
        state, _ = fit.run_steps(state, None, settings, settings.training.steps)
        return train.trained(state)
    return train.trained(_train_on_rows(state, rows, settings))


@partial(jax.jit, static_argnames="settings")
def _train_on_rows(state: train.TrainState, rows: Batch, settings: Settings) -> train.TrainState:
    task, size = tasks.load(settings.task), settings.training.batch_size

    def draw(key: jax.Array) -> Batch:
        index_B = jax.random.randint(key, (size,), 0, len(rows.tokens_BT))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[index_B], rows)

    step = train.make_train_step(task.make_loss(settings), task.make_optimizer(settings))
    return train.scan_steps(step, draw, settings.training.steps)(state)[0]


def judge(params: Any, settings: Settings) -> tuple[np.ndarray, float]:
    """Return (the strings whose margin is not safely above 0, the smallest margin), by the theorem of check.py."""
    cfg = asdict(settings.model)
    weights = network.complete(leaves.named(params), cfg, columns)
    codes_N, right_N = strings(settings)
    found_NV = network.logits(codes_N, weights, cfg, columns)
    margin_N = check.margins(found_NV, right_N)
    return np.unique(codes_N[~(margin_N > check.SAFE * np.abs(found_NV).max())]), float(margin_N.min())


def kinds(codes_N: np.ndarray) -> np.ndarray:
    """Return the kind of each string, as an index into KINDS."""
    token = [codes_N // 12**o % 12 for o in range(len(BACK))]
    space, lowest, second = token[3] == SPACE, token[0] == SPACE, token[2] == SPACE
    return np.select([space, lowest, second], [3, 2, 1], 0)
