"""Small decoders, their inputs and a run of the circuit: an axis has a length of its own where it can."""

import numpy as np
from hypothesis import strategies as st

from apformer import model
from apformer.commands import train
from apformer.layers import position
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options
from tests.helpers import circuit

V = 11
SCHEMES = position.names()


def small(**changes):
    """A configuration whose model compiles and runs in an instant."""
    return model.Config(**{"d_model": 6, "n_heads": 3, "n_layers": 2, "d_ff": 5, "max_len": 29} | changes)


def draw_tokens(rows, length, seed=0):
    """Random ids of the vocabulary: (rows, length) int32."""
    return np.random.default_rng(seed).integers(0, V, (rows, length)).astype(np.int32)


def close(actual, expected, relative):
    """Equal within `relative` times the largest expected entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * np.abs(expected).max())


def circuit_run(path, data):
    """A run directory whose checkpoint holds the circuit for data.digits digits."""
    training = Training(steps=1, run_dir=str(path))
    settings = Settings("progressions", "model", training, circuit.config(data.digits), data, Options())
    return train.keep(settings, circuit.params(data.digits))


@st.composite
def ragged_splits(draw, rows, length, longest):
    """Up to 6 calls that each feed a row 0 to `longest` tokens of its own `length`."""
    schedule, fed = [], np.zeros(rows, int)
    for _ in range(draw(st.integers(1, 6))):
        counts = [draw(st.integers(0, min(longest, length - total))) for total in fed]
        schedule.append(counts)
        fed += counts
    return schedule
