"""The home task, by the fewest parameters that we know to be enough: a recipe that ends with Gauss-Newton steps."""

# ruff: noqa: F403, F405, the names of the protocol of a task

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import optimizer
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.settings import Settings, Training
from apformer.tasks.progressions import *
from apformer.tasks.progressions import Config, crops, generator, training
from apformer.tasks.progressions import Options as HomeOptions
from apformer_lab import mixing, newton

ARCHITECTURES = ("mixing",)
make_optimizer = newton.make_optimizer  # its schedule ends before the Gauss-Newton steps
MOST_ROWS = 1_000_000  # limit of `every_row`, which is held in memory


@dataclass(frozen=True)
class Options(newton.Options, HomeOptions):
    """Options of the sampling of rows, and of Gauss-Newton steps at the end of training."""


def smallest(digits: int = 3) -> Settings:
    """Progressions with as few parameters as we know to be enough: 197.

    One layer reads the two terms before a character, with attention weights that depend on the offset alone. It has no
    queries, keys, projection, norm or head of its own. The first two terms, which it cannot learn, have no loss. Adam
    finds the rule in 2,000 steps, and Gauss-Newton steps, each of which sees every training row, make it exact. Not
    every seed finds it.
    """
    architecture = mixing.Config(d_model=4, n_heads=4, d_ff=10, window=2 * (max(digits, 1) + 1))
    run = Training(steps=2250, seed=1, batch_size=256, save_every=50)
    options = Options(
        hard_fraction=0.5, prefix_loss="none", newton_steps=250, newton_batches=0, newton_characters=30_000
    )
    rule = optimizer.Config(learning_rate=3e-2, max_grad_norm=1e3)
    data = Config(digits, max_difference=min(500, 10 ** min(max(digits, 1), 3) - 1))
    return Settings("smallest", "mixing", run, architecture, data, options, rule)


RECIPES = {"smallest": smallest}


def check(settings: Settings) -> int:
    """Return the number of tokens of the longest row.

    Raises:
        UserError: Exit code USAGE; the sentence names the flag and what fits.
    """
    longest, options = training.check(settings), settings.options
    require("position_offset", options.position_offset == 0, options, "0: a window has no positions")
    newton.check(settings, least_batches=0)
    if options.newton_steps and options.dataset:
        fault = f"--newton_steps sees rows of the generator, not those of --dataset {options.dataset}"
        raise UserError(f"{fault}: give 0", USAGE)
    if options.newton_steps and not options.newton_batches:
        flag = "--newton_batches 0, every row of training lines,"
        if not (rows := int(_counts(settings.data).sum())):
            raise UserError(f"{flag} are none: no third term fits these differences; give smaller ones", USAGE)
        if rows > MOST_ROWS:
            raise UserError(f"{flag} are {rows:,} rows, more than {MOST_ROWS:,}: give 1 or more batches", USAGE)
    return longest


def train_step(settings: Settings, loss_fn: Callable, step: newton.Step) -> newton.Step:
    """Return the train step, with Gauss-Newton steps in the last `newton_steps` steps."""
    count, nats_fn = settings.options.newton_batches, newton.make_nats(settings)
    draw = newton.sample_many(partial(sample, settings=settings), count) if count else lambda key: every_row(settings)
    return newton.train_step(settings, loss_fn, step, lambda params, step: nats_fn(params, step.rows), draw)


def every_row(settings: Settings) -> training.Step:
    """Return every row of three terms or more on training lines, with weight 0 where contexts start to repeat.

    A prediction depends on `reach` tokens before the newest. A context that begins after the first term of a row also
    occurs in the row that begins a term later. The rows are in a fixed random order.
    """
    cfg = settings.data
    end = cfg.digits + mixing.reach(settings.model) + 2
    terms = max(3, -(-(end + 1) // (cfg.digits + 1)))
    # Without the barrier, XLA would compute all tokens as constants while it compiles.
    rows = jax.lax.optimization_barrier(jax.tree.map(jnp.asarray, _training_rows(cfg, terms)))
    batch = crops.predictable(generator.encode_rows(rows, cfg.digits, terms), cfg.digits)
    new_T = jnp.arange(batch.tokens_BT.shape[1]) < end
    return training.Step(batch._replace(weights_BT=jnp.where(new_T[None], batch.weights_BT, 0.0)))


def _training_rows(cfg: Config, terms: int) -> generator.Progressions:
    """Return every progression of 3 to `terms` terms on training lines, as numpy arrays."""
    count_K = _counts(cfg)
    difference_B = np.repeat(np.arange(cfg.min_difference, cfg.max_difference + 1, dtype=np.int32), count_K)
    before_K = np.cumsum(count_K) - count_K
    first_B = np.arange(count_K.sum(), dtype=np.int32) - np.repeat(before_K, count_K).astype(np.int32)
    first_B = first_B + np.maximum(0, -2 * difference_B)
    training_B = np.flatnonzero(generator.split_of(difference_B, first_B) == 0)
    order_B = np.random.default_rng(0).permutation(training_B)
    first_B, difference_B = first_B[order_B], difference_B[order_B]
    terms_B = np.minimum(generator.fitting(first_B, difference_B, cfg.digits), terms).astype(np.int32)
    return generator.Progressions(first_B, difference_B, terms_B)


def _counts(cfg: Config) -> Any:
    """Return the number of rows with a third term, for each difference."""
    difference_K = np.arange(cfg.min_difference, cfg.max_difference + 1, dtype=np.int64)
    return np.maximum(0, 10**cfg.digits - 2 * abs(difference_K))
