"""Everything that trains and everything that predicts is lowered for GPUs and TPUs, which need not be there."""

import inspect
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from apformer import model, tasks
from apformer.layers import config
from apformer.runs import fit
from apformer.settings import architecture_of
from tests.helpers.small_runs import TEXT

pytestmark = pytest.mark.long

PLATFORMS = ("cuda", "tpu")


def variants():
    """{(task, architecture): settings of a recipe that has them}."""
    found = {}
    for name in tasks.names():
        for recipe in tasks.load(name).RECIPES.values():
            asks = "architecture" in inspect.signature(recipe).parameters
            for architecture in tasks.load(name).ARCHITECTURES if asks else (None,):
                settings = recipe(**({"architecture": architecture} if asks else {}))
                found.setdefault(f"{name}-{settings.architecture}", settings)
    return found


VARIANTS = variants()
PREDICT = {settings.architecture: settings for settings in VARIANTS.values() if settings.architecture != "word2vec"}


def loaded(settings, tmp_path, **training):
    """(settings, rows), of little data, with a short batch, and one layer for each side of a translator."""
    (tmp_path / "text.txt").write_text(2 * TEXT)
    little = {"text": str(tmp_path / "text.txt")}
    little |= {"largest": 999, "numbers": 300, "test_sentences": 20, "byte_pairs": 300}
    data = {name: value for name, value in little.items() if name in vars(settings.data)}
    layers = {name: 1 for name in vars(settings.model) if name.endswith("coder_layers")}
    training = replace(settings.training, batch_size=8, log_every=2, **training)
    data, cfg = replace(settings.data, **data), replace(settings.model, **layers)
    settings = replace(settings, training=training, data=data, model=cfg)
    return tasks.load(settings.task).load(settings)


def lower(function, *arrays):
    """Lower a function for PLATFORMS, which raises where one lacks an operation."""
    jax.jit(function).trace(*arrays).lower(lowering_platforms=PLATFORMS)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_training_step_is_lowered(settings, tmp_path):
    """Of several members at once, in half precision."""
    settings, rows = loaded(settings, tmp_path, members=2, member_mode="vmap", compute_dtype="bfloat16")
    state = fit.abstract_state(settings)
    train_rows = jax.eval_shape(lambda: tasks.load(settings.task).train_rows(rows))
    program = fit._compiled_settings(settings)
    lower(lambda state, rows: fit.run_steps(state, rows, program, 2), state, train_rows)


@pytest.mark.parametrize("settings", PREDICT.values(), ids=PREDICT)
def test_every_prediction_is_lowered(settings, tmp_path):
    settings, _ = loaded(settings, tmp_path)
    module, cfg = architecture_of(settings), settings.model
    params = jax.eval_shape(lambda key: module.init(key, cfg), jax.random.key(0))
    tokens_BT = jax.ShapeDtypeStruct((2, 7), jnp.int32)
    if settings.architecture == "seq2seq":
        lower(lambda params, *tokens: module.apply(params, *tokens, cfg), params, tokens_BT, tokens_BT)
        cache = jax.eval_shape(lambda params, source: module.init_cache(params, source, cfg, 9), params, tokens_BT)
    else:
        lower(lambda params, tokens: module.apply(params, tokens, cfg), params, tokens_BT)
        cache = jax.eval_shape(lambda: module.init_cache(cfg, 2, 9))
    lower(lambda params, tokens, cache: module.extend(params, tokens, cache, cfg), params, tokens_BT, cache)


@pytest.mark.parametrize("position", config.names("position"))
def test_every_position_scheme_is_lowered(position):
    cfg = model.Config(d_model=8, n_heads=2, n_layers=1, position=position)
    params = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    lower(lambda params, tokens: model.apply(params, tokens, cfg), params, jax.ShapeDtypeStruct((2, 7), jnp.int32))
