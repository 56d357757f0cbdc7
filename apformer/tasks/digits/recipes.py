"""Recipes of terms of any width: positions relative to the width, a model for more digits than it was trained on."""

from typing import Literal

from apformer import model, optimizer
from apformer.layers.position import ahead, periodic
from apformer.settings import Settings, Training
from apformer.tasks.digits.generator import Config
from apformer.tasks.digits.options import Options


def digits(digits: int = 6, order: Literal["msb", "lsb"] = "msb") -> Settings:
    """Arithmetic progressions whose terms have any number of digits.

    What a carry needs is near, or, most significant digit first, looked for ahead.
    """
    if order == "msb":
        architecture = model.Config(
            d_model=32,
            n_layers=3,
            n_heads=4,
            d_ff=64,
            position="ahead",
            position_options=ahead.Scheme(score_noise=1.5),
            residual=False,
            output_projection=True,
            final_norm=True,
        )
    else:
        architecture = model.Config(
            n_layers=2,
            n_heads=8,
            position="periodic",
            position_options=periodic.Scheme(),
            attention_sink=True,
            output_projection=True,
            final_norm=True,
        )
    training = Training(recipe="digits", steps=2000, save_every=500 if order == "msb" else 1000)
    rule = optimizer.Config(rule="muon", learning_rate=4e-3, weight_decay=0.1)
    return Settings("digits", "model", training, architecture, Config(digits, order), Options(), rule)


RECIPES = {"digits": digits}
