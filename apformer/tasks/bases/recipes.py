"""Recipe of rows in many bases: positions in columns, so that a prediction depends on six digits and the heading."""

from apformer import model, optimizer
from apformer.layers.position import columns
from apformer.settings import Settings, Training
from apformer.tasks.bases.alphabet import CHARACTERS
from apformer.tasks.bases.generator import Config
from apformer.tasks.bases.options import Options


def bases() -> Settings:
    """Progressions, Fibonacci and doubling in all bases from 2 to 16, by one model, terms of any number of digits."""
    architecture = model.Config(
        vocab_size=len(CHARACTERS),
        d_model=64,
        n_layers=2,
        n_heads=8,
        d_ff=128,
        position="columns",
        position_options=columns.Scheme(),
        attention_sink=True,
        output_projection=True,
        final_norm=True,
    )
    training = Training(recipe="bases", steps=4000, save_every=1000)
    rule = optimizer.Config(rule="muon", learning_rate=8e-3, weight_decay=0.1)
    return Settings("bases", "model", training, architecture, Config(), Options(), rule)


RECIPES = {"bases": bases}
