"""Recipes of the home task."""

from dataclasses import replace

from apformer import model, optimizer
from apformer import recurrent as rnn
from apformer.settings import Settings, Training
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.options import Options


def exact(digits: int = 3) -> Settings:
    """Arithmetic progressions of a fixed number of digits, certified in the fewest steps. The default.

    The window of a layer reaches the same place of the term before; of five digits or more, one token beyond it.
    """
    few, many = digits <= 3, digits >= 5  # the more digits, the rarer a long carry
    architecture = model.Config(
        n_layers=2,
        n_heads=8,
        d_ff=128,
        position="relative",
        window=min(max(digits, 1), 9) + (3 if many else 2),
        output_projection=True,
        attention_sink=True,
        final_norm=True,
    )
    training = Training(
        steps=8000 if many else 1200 if few else 4000,
        until="certified",
        batch_size=128 if many else 64,
        save_every=400 if few else 500,
        ema=0.98 if few else 0.0,
    )
    options = Options(hard_fraction=0.5, mined_per_hard=16, prefix_rows=192 if few else 0)
    rule = optimizer.Config(rule="muon", learning_rate=8e-3 if few else 4e-3, weight_decay=0.1)
    return Settings("progressions", "model", training, architecture, _data(digits), options, rule)


def bayes(digits: int = 3) -> Settings:
    """Progressions with extra rows of two terms, for a loss near the Bayes floor."""
    settings = exact(digits)
    run = settings.training
    return replace(
        settings,
        training=replace(run, until="steps", ema=0.0, steps=max(3000, run.steps)),
        model=replace(settings.model, d_ff=None),
        optimizer=replace(settings.optimizer, learning_rate=4e-3, weight_decay=0.03),
        options=replace(settings.options, prefix_rows=512, prefix_loss="alone"),
    )


def sketch(digits: int = 3) -> Settings:
    """Progressions with the plain transformer that the project began with: four of its blocks.

    Its positions are absolute, so crops keep theirs, and some rows are not cropped. Crops have 12 terms: with 8,
    long rows are learned late. Embeddings begin with standard deviation 1: smaller ones, beside positions of about
    that size, are learned more slowly.
    """
    training = Training(steps=4000, until="certified", batch_size=64, save_every=250, ema=0.99)
    architecture = model.Config(n_layers=4, embedding_std=1.0)
    options = Options(
        crop_terms=12, hard_fraction=0.875, mined_per_hard=3, prefix_rows=32, long_rows=4, own_positions=True
    )
    rule = optimizer.Config(rule="muon", learning_rate=2e-3, weight_decay=0.1)
    return Settings("progressions", "model", training, architecture, _data(digits), options, rule)


def recurrent(digits: int = 3) -> Settings:
    """Progressions with an RNN, GRU or LSTM."""
    training, options = Training(steps=4000), Options(crop_terms=16, hard_fraction=0.25)
    rule = optimizer.Config(learning_rate=4e-3)
    return Settings("progressions", "recurrent", training, rnn.Config(d_model=128), _data(digits), options, rule)


def _data(digits: int) -> Config:
    return Config(digits=digits, max_difference=min(500, 10 ** min(max(digits, 1), 3) - 1))


RECIPES = {"exact": exact, "bayes": bayes, "sketch": sketch, "recurrent": recurrent}
