"""Sums as text, least significant digit first: 5000000000 7000000000 21000000000 is 5 + 7 = 12.

Two terms of D digits are given, and the D + 1 digits of their sum are predicted. Pairs of terms are split into
training, validation and test.
"""

# ruff: noqa: F403, F405, the names of the protocol of a task

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from apformer import optimizer
from apformer.settings import Settings, Training
from apformer_lab import newton, rows, sparse, training
from apformer_lab.proof import sums as contexts
from apformer_lab.protocol import *

make_optimizer = newton.make_optimizer  # its schedule ends before the Gauss-Newton steps


@dataclass(frozen=True)
class Config:
    """The generator of sums."""

    digits: int = 10
    """Digits D of each of the two terms. Their sum has D + 1."""

    @property
    def form(self) -> rows.Format:
        """The format of rows."""
        return rows.Format(self.digits, ("sum",), (rows.RULES["fibonacci"],), widths=False, more=1, split=True)


@dataclass(frozen=True)
class Options(newton.Options, training.Options):
    """Options of the sampling of rows, and of Gauss-Newton steps at the end of training."""


def check(settings: Settings) -> int:
    """Return the number of tokens of the longest row. Raises UserError (exit USAGE) that names the flag and remedy."""
    newton.check(settings)
    return training.check(settings)


def train_step(settings: Settings, loss_fn: Callable, step: newton.Step) -> newton.Step:
    """Return the train step, with Gauss-Newton steps in the last `newton_steps` steps."""
    draw = newton.sample_many(partial(sample, settings=settings), settings.options.newton_batches)
    return newton.train_step(settings, loss_fn, step, newton.make_nats(settings), draw)


def sums(digits: int = 10) -> Settings:
    """Sums of two terms, least significant digit first, by 75 parameters, 16 seeds at once.

    One layer reads five tokens: the digits of both terms at a place and at the place below, and the digit of the sum
    before. It has no queries, keys, projection, norm or head of its own. The attention sink lets a head give a token
    the same weight when another token is missing. Some seeds find the rule, but most do not.
    """
    architecture = sparse.Config(
        d_model=2,
        n_heads=1,
        n_layers=1,
        d_ff=6,
        pattern="fixed_offsets",
        offsets=contexts.offsets(max(digits, 1)),
        similarity="none",
        attention_sink=True,
        output_projection=False,
        norm="none",
        final_norm=False,
        tie_embeddings=True,
    )
    run = Training(steps=6000, batch_size=24, members=16, member_mode="vmap", save_every=1000)
    options, rule = Options(hard_fraction=0.25, test_sequences=2000), optimizer.Config(learning_rate=0.12)
    return Settings("sums", "sparse", run, architecture, Config(digits), options, rule)


RECIPES = {"sums": sums}
