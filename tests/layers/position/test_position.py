"""Each way of telling a transformer where a token stands, against its defining property."""

import dataclasses
import os
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.layers import config
from apformer.layers.position import rotary, sinusoidal
from tests.helpers.own_process import ROOT, python
from tests.helpers.small_models import small


def test_sinusoidal_serves_any_positions_and_an_odd_width():
    encoding = sinusoidal.encode(jnp.array([[0, 1, 2], [7, 2, 5000]]), 5)
    assert encoding.shape == (2, 3, 5)
    np.testing.assert_array_equal(encoding[0, 2], encoding[1, 1])
    assert np.isfinite(encoding).all()


def test_rotation_turns_each_plane_by_the_angle_of_its_position_and_leaves_an_odd_last_number():
    x_BTHK = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 1.0, 7.0]), (1, 3, 1, 5))
    expected = [[np.cos(p), np.sin(p), -np.sin(p / 100), np.cos(p / 100), 7] for p in (0, 1, 5)]
    np.testing.assert_allclose(rotary.Scheme().rotate(x_BTHK, jnp.array([[0, 1, 5]]))[0, :, 0], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_encodings_have_the_dtype_they_are_added_to(dtype):
    """The angles are float32 all the same: position 999 in bfloat16 would be 1000."""
    encoding = sinusoidal.encode(jnp.array([[999]]), 2, dtype)
    assert encoding.dtype == dtype
    np.testing.assert_allclose(np.asarray(encoding, np.float32)[0, 0], [np.sin(999), np.cos(999)], atol=0.01)
    rotated = rotary.Scheme().rotate(jnp.array([1, 0], dtype)[None, None, None], jnp.array([[999]]))
    assert rotated.dtype == dtype
    np.testing.assert_allclose(np.asarray(rotated, np.float32)[0, 0, 0], [np.cos(999), np.sin(999)], atol=0.01)


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
    scale_H = param("weight", nn.initializers.ones, q_BTHK.shape[2:3])
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
import contextlib, io
from apformer.layers import config
import jax, jax.numpy as jnp, numpy as np
from apformer import model, optimizer, plugins
from apformer.analysis import ablate
from apformer.machine.process import guard
from apformer.runs import recipes
from apformer.tasks import settings_file
cfg = model.Config(d_model=6, n_heads=3, position="slanted", similarity="distance", window=3)
params = jax.jit(lambda key: model.init(key, cfg))(jax.random.key(0))
assert params["blocks"]["attention"]["slanted"]["slope"].shape == (1, 3)
attention = params["blocks"]["attention"]
attention["weight"] *= 2
decays = optimizer.decay_mask(params)["blocks"]["attention"]
assert not decays["slanted"]["slope"] and not decays["weight"] and decays["query"]
tokens = jnp.asarray([[1, 2, 3, 4]])
both = lambda: (model.extend(params, tokens, model.init_cache(cfg, 1, 4), cfg)[0], model.apply(params, tokens, cfg))
np.testing.assert_allclose(*jax.jit(both)(), rtol=1e-5, atol=1e-5)
assert model.reach(cfg) == 2 and ablate.parts(params)
settings = recipes.parse(["--position", "slanted", "--steepness", "0.25", "--similarity", "distance"])
assert settings.model.position_options == config.load("position", "slanted").Scheme(0.25)
assert settings_file.from_dict(settings_file.to_dict(settings), "config.json") == settings
assert plugins.versions()["mine"] == "1"
type(cfg.position_options).embed = lambda self, param, x_BTD, positions_BT, max_len: x_BTD[:1]
try:
    config.load("position", "slanted")
except plugins.Fault as error:
    assert "whose embed gives shape (1, 3, 64) where (B, T, D) is (2, 3, 64)" in str(error)
else:
    raise AssertionError("one row was read for all")
said, distance = io.StringIO(), config.load("similarity", "distance")
with contextlib.redirect_stderr(said):
    assert guard("x", lambda: distance.score(1)) == guard("x", lambda: distance.score(1, params, params)) == 2
called, raised = said.getvalue().splitlines()
assert called.startswith("x: mine is at fault in distance (TypeError: score() missing 2 required positional ")
assert raised.startswith(f"x: mine is at fault in {distance.__file__}, line 7 (AttributeError: ")
assert called.endswith("): repair or uninstall mine") and raised.endswith("): repair or uninstall mine")
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
    python("-c", USE, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
