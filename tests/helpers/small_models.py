"""Small decoders, their inputs and a run of the circuit: an axis has a length of its own where it can."""

import sys
from functools import cache

import jax
import numpy as np
from hypothesis import strategies as st

from apformer import model
from apformer.commands import train
from apformer.layers import config
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options
from tests.helpers import circuit

V = 11
apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
extend = jax.jit(model.extend, static_argnames="cfg")
LONGEST = 7  # of a chunk fed to a cache: longer than the windows
SCHEMES = config.names("position")
OPTIONS = {  # of a decoder, beside its positions, heads and layers
    "similarity": ("scaled_dot", "dot"),
    "scale_embedding": (False, True),
    "tie_embeddings": (False, True),
    "attention_bias": (False, True),
    "output_projection": (False, True),
    "attention_sink": (False, True),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "feedforward": (True, False),
    "norm": ("layer", "rms", "none"),
    "norm_position": ("pre", "post"),
    "norm_epsilon": (1e-5, 0.1),
    "final_norm": (False, True),
    "head_bias": (False, True),
}


def small(**changes):
    """A configuration whose model compiles and runs in an instant."""
    return model.Config(**{"d_model": 6, "n_heads": 3, "n_layers": 2, "d_ff": 5, "max_len": 29} | changes)


def bits(tree):
    """{name of a leaf: its dtype, shape and bytes}, keys included."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        found[jax.tree_util.keystr(path)] = str(leaf.dtype), leaf.shape, data.tobytes()
    return found


@cache
def shapes(cfg):
    """The parameters of any model, as shapes."""
    init = sys.modules[type(cfg).__module__].init
    return jax.eval_shape(lambda key: init(key, cfg), jax.random.key(0))


def names(tree):
    """{name of a leaf: the leaf}"""
    return {"/".join(entry.key for entry in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def draw_params(cfg, seed=0, dtype=np.float32):
    """Parameters of any model drawn at random, biases, gains and tables included.

    A fresh model would hide mistakes: its biases and relative positions are zero, its gains one.
    """
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        centre = 1.0 if path[-1].key == "scale" else 0.0
        drawn = centre + 0.4 * rng.standard_normal(shape.shape)
        return jax.device_put(np.asarray(drawn, dtype))  # jax.numpy.asarray would compile a program a shape

    return jax.tree_util.tree_map_with_path(leaf, shapes(cfg))


def draw_tokens(rows, length, seed=0):
    """Random ids of the vocabulary: (rows, length) int32."""
    return np.random.default_rng(seed).integers(0, V, (rows, length)).astype(np.int32)


def close(actual, expected, relative):
    """Equal within `relative` times the largest expected entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * np.abs(expected).max())


def rows_close(rows, whole):
    """Each row, of a length of its own, is the beginning of that of the whole."""
    for row, expected in zip(rows, whole, strict=True):
        np.testing.assert_allclose(row, expected[: len(row)], rtol=0, atol=1e-5 * np.abs(whole).max())


def circuit_run(path, data):
    """A run directory whose checkpoint holds the circuit for data.digits digits."""
    training = Training(steps=1, run_dir=str(path))
    settings = Settings("progressions", "model", training, circuit.config(data.digits), data, Options())
    return train.keep(settings, circuit.params(data.digits))


@st.composite
def ragged_splits(draw, rows, length, longest):
    """Up to 6 calls that each feed a row 0 to `longest` tokens of its own `length`."""
    schedule = []
    fed = np.zeros(rows, int)
    for _ in range(draw(st.integers(1, 6))):
        counts = [draw(st.integers(0, min(longest, length - total))) for total in fed]
        schedule.append(counts)
        fed += counts
    return schedule


def feed(extend, params, tokens_BT, cfg, schedule, cache):
    """Feed row b schedule[i][b] of its tokens with call i of `extend`, right-padded with garbage.

    Few shapes, as each one compiles: LONGEST columns, or one where a window makes single steps a case apart.
    Returns the logits of every token, as a list of arrays (tokens, V), one a row, and the cache.
    """
    logits, begin = [[] for _ in tokens_BT], np.zeros(len(tokens_BT), int)
    for lengths in schedule:
        columns = 1 if getattr(cfg, "window", None) and max(lengths) <= 1 else LONGEST
        chunk_BT = np.full((len(tokens_BT), columns), V, np.int32)
        for b, count in enumerate(lengths):
            chunk_BT[b, :count] = tokens_BT[b, begin[b] : begin[b] + count]
        new_BTV, cache = extend(params, chunk_BT, cache, cfg, lengths_B=np.array(lengths, np.int32))
        for b, count in enumerate(lengths):
            logits[b].append(np.asarray(new_BTV)[b, :count])
        begin += lengths
    return [np.concatenate(row) for row in logits], cache
