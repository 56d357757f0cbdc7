"""Each way of telling a transformer where a token stands, against its defining property."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer import model
from apformer.layers import config, position
from apformer.layers.position import alibi, learned, relative, rotary, sinusoidal
from tests.helpers.small_models import small

B, T, S, H, K = 2, 3, 5, 7, 22


def test_sinusoidal_first_rows():
    expected = [
        [0, 1, 0, 1, 0, 1],
        [np.sin(1), np.cos(1), np.sin(10_000 ** (-1 / 3)), np.cos(10_000 ** (-1 / 3))]
        + [np.sin(10_000 ** (-2 / 3)), np.cos(10_000 ** (-2 / 3))],
        [0.9092974268, -0.4161468365, np.sin(2 / 10_000 ** (1 / 3)), np.cos(2 / 10_000 ** (1 / 3))]
        + [np.sin(2 / 10_000 ** (2 / 3)), np.cos(2 / 10_000 ** (2 / 3))],
    ]
    np.testing.assert_allclose(sinusoidal.encode(jnp.arange(3)[None], 6)[0], expected, atol=1e-6)


def test_sinusoidal_serves_any_positions_and_an_odd_width():
    encoding = sinusoidal.encode(jnp.array([[0, 1, 2], [7, 2, 5000]]), 5)
    assert encoding.shape == (2, 3, 5)
    np.testing.assert_array_equal(encoding[0, 2], encoding[1, 1])
    assert np.isfinite(encoding).all()


def shift_matrix(k, d_model):
    """M with PE(p + k) = M PE(p) for every p, from k alone: a rotation in each (sin, cos) plane."""
    matrix = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = k / 10_000 ** (i / d_model)
        matrix[i : i + 2, i : i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    return matrix


@pytest.mark.parametrize("k", [-7, 13])
def test_a_shift_is_one_linear_map_of_the_encoding_at_every_position(k):
    positions = np.arange(7, 1000)
    here = np.asarray(sinusoidal.encode(jnp.asarray(positions)[None], 22), np.float64)[0]
    there = np.asarray(sinusoidal.encode(jnp.asarray(positions + k)[None], 22), np.float64)[0]
    matrix = shift_matrix(k, 22)
    np.testing.assert_allclose(there, here @ matrix.T, atol=3e-4)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(22), atol=1e-12)


def test_rotation_turns_each_plane_by_the_angle_of_its_position_and_leaves_an_odd_last_number():
    x_BTHK = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 1.0, 7.0]), (1, 3, 1, 5))
    expected = [[np.cos(p), np.sin(p), -np.sin(p / 100), np.cos(p / 100), 7] for p in (0, 1, 5)]
    np.testing.assert_allclose(rotary.Scheme().rotate(x_BTHK, jnp.array([[0, 1, 5]]))[0, :, 0], expected, atol=1e-6)


@given(shift=st.integers(0, 1000), seed=st.integers(0, 1000))
def test_rotary_scores_depend_on_offsets_alone(shift, seed):
    rng = np.random.default_rng(seed)
    q, k = (jnp.asarray(np.asarray(rng.standard_normal((B, length, H, K)), jnp.float32)) for length in (T, S))
    positions_BT, positions_BS = jnp.array([[2, 3, 4], [0, 7, 9]]), jnp.array([[0, 1, 2, 3, 4], [9, 1, 0, 4, 7]])

    def scores(shift):
        rotated_q, rotated_k = (
            rotary.Scheme().rotate(q, positions_BT + shift),
            rotary.Scheme().rotate(k, positions_BS + shift),
        )
        return np.einsum("BTHK,BSHK->BHTS", rotated_q, rotated_k)

    np.testing.assert_allclose(scores(shift), scores(0), atol=5e-3)
    assert np.abs(scores(0) - np.einsum("BTHK,BSHK->BHTS", q, k)).max() > 0.1
    np.testing.assert_allclose(
        np.linalg.norm(rotary.Scheme().rotate(q, positions_BT + shift), axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-5
    )


def alibi_bias(positions_BT, positions_BS, n_heads):
    cfg = small(d_model=n_heads, n_heads=n_heads)
    return alibi.Scheme().bias(None, positions_BT, positions_BS, cfg, jnp.float32)


def test_alibi_slopes_and_axes():
    slopes = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256])
    positions_BT, positions_BS = np.array([[2, 3, 4], [0, 7, 9]]), np.array([[0, 1, 2, 3, 4], [9, 1, 0, 4, 7]])
    bias_BHTS = alibi_bias(jnp.asarray(positions_BT), jnp.asarray(positions_BS), 8)
    offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None]
    np.testing.assert_allclose(bias_BHTS, -slopes[:, None, None] * offsets_BTS[:, None], rtol=1e-6)


def test_relative_bias_looks_offsets_up_and_clips_them_to_the_table():
    table_HO = jnp.asarray(10 * np.arange(H)[:, None] + np.arange(4)[None], jnp.float32)
    positions_BT, positions_BS = jnp.array([[2, 3, 9], [0, 7, 8]]), jnp.array([[0, 1, 2, 3, 4], [9, 5, 0, 4, 7]])
    at = None, positions_BT, positions_BS, small(d_model=H, n_heads=H, window=4), jnp.float32
    bias = position.Part(relative.Scheme(), "bias").apply({"params": {"table": table_HO}}, *at)
    offsets = [[[2, 1, 0, 0, 0], [3, 2, 1, 0, 0], [3, 3, 3, 3, 3]], [[0, 0, 0, 0, 0], [0, 2, 3, 3, 0], [0, 3, 3, 3, 1]]]
    assert bias.shape == (B, H, T, S)
    for h in range(H):
        np.testing.assert_array_equal(bias[:, h], 10 * h + np.array(offsets))


def test_learned_positions_are_rows_of_a_table():
    table_PD = jnp.asarray(np.arange(11 * 2).reshape(11, 2), jnp.float32)
    places = position.Part(learned.Scheme(), "embed")
    at = None, jnp.zeros((2, 3, 2)), jnp.array([[0, 1, 10], [3, 5, 7]]), 11
    encoding = places.apply({"params": {"table": table_PD}}, *at)
    np.testing.assert_array_equal(encoding, [[[0, 1], [2, 3], [20, 21]], [[6, 7], [10, 11], [14, 15]]])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_encodings_have_the_dtype_they_are_added_to(dtype):
    """The angles are float32 all the same: position 999 in bfloat16 would be 1000."""
    encoding = sinusoidal.encode(jnp.array([[999]]), 2, dtype)
    assert encoding.dtype == dtype
    np.testing.assert_allclose(np.asarray(encoding, np.float32)[0, 0], [np.sin(999), np.cos(999)], atol=0.01)
    rotated = rotary.Scheme().rotate(jnp.array([1, 0], dtype)[None, None, None], jnp.array([[999]]))
    assert rotated.dtype == dtype
    np.testing.assert_allclose(np.asarray(rotated, np.float32)[0, 0, 0], [np.cos(999), np.sin(999)], atol=0.01)


def test_a_scheme_that_nobody_knows_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match=f"^position somewhere is none of {', '.join(config.names('position'))}$"):
        config.load("position", "somewhere")


@pytest.mark.parametrize("kind", ["position", "similarity"])
def test_the_choices_that_a_type_checker_reads_are_the_files_of_the_folder(kind):
    found = re.search(rf"    {kind.title()} = Literal\[(.*)\]", Path(config.__file__).read_text())
    files = {file.stem for file in Path(config.__file__).with_name(kind).glob("[a-z]*.py")}
    assert [name.strip(' "') for name in found[1].split(",")] == sorted(files)


def test_a_scheme_has_no_methods_but_those_of_the_protocol():
    """A method with a misspelt name would never be called, and one that serves a single scheme has no place."""
    protocol, found = {"embed", "rotate", "bias", "reach", "max_tokens"}, set()
    for name in config.names("position"):
        Scheme = config.load("position", name).Scheme
        options = {field.name for field in dataclasses.fields(Scheme)}
        methods = {method for method in vars(Scheme) if not method.startswith("_")} - options
        assert methods <= protocol, name
        found |= methods
    assert found == protocol


@pytest.mark.parametrize("name, most", [("learned", 29), ("relative", None), ("sinusoidal", None)])
def test_learned_positions_alone_bound_a_row(name, most):
    assert model.max_tokens(small(position=name)) == most


SLANTED = """
from dataclasses import dataclass

import jax.numpy as jnp
from flax import linen as nn


@dataclass(frozen=True)
class Scheme:
    steepness: float = 0.5

    def bias(self, param, positions_BT, positions_BS, cfg, dtype):
        slope_H = param("slope", nn.initializers.ones, (cfg.n_heads,))
        offsets_BTS = (positions_BT[:, :, None] - positions_BS[:, None, :]).astype(dtype)
        return -slope_H[None, :, None, None] * jnp.log1p(self.steepness * jnp.maximum(offsets_BTS, 0))[:, None]

    def reach(self, window):
        return None if window is None else window - 1
"""
DISTANCE = """
import jax.numpy as jnp
from flax import linen as nn


def score(param, q_BTHK, k_BSHK):
    scale_H = param("spread", nn.initializers.ones, q_BTHK.shape[2:3])
    apart_BTSH = jnp.square(q_BTHK[:, :, None] - k_BSHK[:, None]).sum(-1)
    return -scale_H[None, :, None, None] * apart_BTSH.transpose(0, 3, 1, 2)
"""
ENTRY_POINTS = """
[apformer.position]
slanted = slanted

[apformer.similarity]
distance = distance
"""
USE = """
from apformer.layers import config
import jax, jax.numpy as jnp, numpy as np
from apformer import model, optimizer
from apformer.analysis import ablate
from apformer.runs import recipes, settings_file
cfg = model.Config(d_model=6, n_heads=3, position="slanted", similarity="distance", window=3)
params = jax.jit(lambda key: model.init(key, cfg))(jax.random.key(0))
assert params["blocks"]["attention"]["slanted"]["slope"].shape == (1, 3)
attention = params["blocks"]["attention"]
attention["spread"] *= 2
decays = optimizer.decay_mask(params)["blocks"]["attention"]
assert not decays["slanted"]["slope"] and not decays["spread"] and decays["query"]
tokens = jnp.asarray([[1, 2, 3, 4]])
both = lambda: (model.extend(params, tokens, model.init_cache(cfg, 1, 4), cfg)[0], model.apply(params, tokens, cfg))
np.testing.assert_allclose(*jax.jit(both)(), rtol=1e-5, atol=1e-5)
assert model.reach(cfg) == 2 and ablate.parts(params)
settings = recipes.parse(["--position", "slanted", "--steepness", "0.25", "--similarity", "distance"])
assert settings.model.position_options == config.load("position", "slanted").Scheme(0.25)
assert settings_file.from_dict(settings_file.to_dict(settings), "config.json") == settings
"""


def test_a_package_brings_a_scheme_and_a_score_each_in_one_file(tmp_path):
    """Model, cache, reach, decay, ablation, flags and config.json know them; no file of apformer says their names."""
    installed = tmp_path / "mine-1.dist-info"
    installed.mkdir()
    for file, text in {
        "slanted.py": SLANTED,
        "distance.py": DISTANCE,
        installed / "METADATA": "Name: mine\nVersion: 1\n",
    }.items():
        (tmp_path / file).write_text(text)
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
