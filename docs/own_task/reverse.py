"""Reverse a string of digits: 123=321. What stands before = is drawn, what follows it is predicted."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from apformer import model
from apformer.flags import require
from apformer.optimizer import Config as Optimizer
from apformer.settings import Settings, Training
from apformer.tasks import strings
from apformer.tasks.batch import Batch
from apformer.tasks.strings import *  # noqa: F403 - the names that are not defined here

ARCHITECTURES = ("model", "recurrent")
VOCABULARY = "\n0123456789="  # token 0 ends a string


@dataclass(frozen=True)
class Config:
    """The data. Each field is a flag, with its docstring as help."""

    longest: int = 5
    """Number of digits of the longest string."""


def reverse() -> Settings:
    """Reverse strings of up to five digits: a decoder of two layers."""
    decoder = model.Config(vocab_size=len(VOCABULARY), n_heads=4, n_layers=2, position="learned", final_norm=True)
    training = Training(steps=400, save_every=100)
    return Settings("reverse", "model", training, decoder, Config(), strings.Options(), Optimizer(learning_rate=3e-3))


RECIPES = {"reverse": reverse}


def check(settings: Settings) -> int:
    """Return the longest row in tokens, or refuse a flag in one sentence."""
    require("longest", 1 <= settings.data.longest <= 100, settings.data, "1 to 100")
    return strings.check(settings)


def sample(key: jax.Array, settings: Settings, train_rows: None) -> Batch:
    """Draw the batch of a step: strings with as many digits as are drawn, too, from 1 to the longest."""
    B, longest = settings.training.batch_size, settings.data.longest
    length_key, digit_key = jax.random.split(key)
    length_B1 = jax.random.randint(length_key, (B, 1), 1, longest + 1)
    digits_BL = jax.random.randint(digit_key, (B, longest), 1, 11)
    place_1T = jnp.arange(2 * longest + 2)[None]  # 123=321 and the line feed: the digit at place 4 is that at place 2
    mirrored_BT = jnp.where(place_1T < length_B1, place_1T, 2 * length_B1 - place_1T)
    digits_BT = jnp.take_along_axis(digits_BL, mirrored_BT.clip(0, longest - 1), axis=1)
    tokens_BT = jnp.where(place_1T == length_B1, VOCABULARY.index("="), digits_BT)
    tokens_BT = jnp.where(place_1T > 2 * length_B1, 0, tokens_BT)
    counts_BT = (place_1T > length_B1) & (place_1T <= 2 * length_B1 + 1)
    return Batch(tokens_BT, counts_BT.astype(jnp.float32))
