"""AdamW is optax's own; the learning rate warms up and follows a cosine; only matrices decay."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apformer import model, optimizer, recurrent, seq2seq, word2vec
from apformer.layers import leaves
from tests.helpers.small_models import names, shapes
from tests.properties.test_parameters import GPT2, TREES

RELATIVE = model.Config(
    d_model=6,
    n_heads=2,
    position="relative",
    window=5,
    output_projection=True,
    attention_sink=True,
    final_norm=True,
)


def random_like(tree, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jax.device_put(rng.standard_normal(leaf.shape).astype(np.float32)), tree)


@pytest.mark.parametrize(("step", "share"), [(0, 0.25), (2, 0.75), (3, 1.0), (15, 0.5), (99, 0.2)])
def test_the_schedule_of_the_paper(step, share):
    """Step n counts from 0: min((n + 1) / 4, sqrt(4 / (n + 1))), whatever the number of steps."""
    cfg = optimizer.Config(warmup_steps=4, schedule="inverse_sqrt")
    assert float(optimizer.learning_rate(step, 1.0, cfg, 7)) == pytest.approx(share)


@pytest.mark.parametrize("peak", [1e-3, np.float32([1e-3, 3e-4])], ids=["one", "of members"])
def test_the_rate_warms_up_and_the_cosine_ends_at_min_lr_as_that_of_optax(peak):
    cfg, decay = optimizer.Config(warmup_steps=7, min_lr=1e-4), optax.cosine_decay_schedule
    for step in (0, 3, 6):
        expected = np.asarray(peak) * (step + 1) / 7  # which may be below it
        np.testing.assert_allclose(optimizer.learning_rate(step, peak, cfg, 40), expected, rtol=1e-6)
    for step in (7, 19, 33, 40, 99):
        expected = [decay(p, 33, alpha=1e-4 / p)(step - 7) for p in np.ravel(peak)]
        np.testing.assert_allclose(np.ravel(optimizer.learning_rate(step, peak, cfg, 40)), expected, rtol=1e-6)


UNDECAYED = {"bias", "scale", "sink", "gain", "vector"}


@pytest.mark.parametrize(
    ("rule", "cfg"),
    [
        ("adamw", GPT2),
        ("adamw", recurrent.Config(cell="lstm")),
        ("muon", RELATIVE),
        ("muon", model.Config(similarity="cosine")),
    ],
    ids=range(4),
)
def test_without_gradients_what_decays_shrinks_and_nothing_else_moves(rule, cfg):
    """By the names, not by the roles: the optimizer reads those."""
    params = random_like(shapes(cfg), seed=0)
    settings = optimizer.Config(rule=rule, learning_rate=0.1, warmup_steps=0, weight_decay=0.5)
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(lambda params: update(settings, 100, still, params, step=0))(params)
    for name, change in names(updates).items():
        leaf, owners = name.split("/")[-1], name.split("/")[:-1]
        still = leaf in UNDECAYED or leaf.endswith("_bias") or leaf == "table" and owners != ["embedding"]
        rate = 0.0 if still else 0.05
        rate *= 5.0 if rule == "muon" and name in MUON_NAMES else 1.0
        np.testing.assert_allclose(change, -rate * names(params)[name], rtol=1e-5, err_msg=name)


def every_tree():
    """The parameters of every kind of model there is, as shapes."""
    pair = {"source_vocab_size": 7, "target_vocab_size": 7, "d_model": 6, "n_heads": 3, "attention_bias": True}
    models = [cfg for cfg, _ in TREES.values()] + [recurrent.Config(cell=cell) for cell in ("rnn", "gru", "lstm")]
    models += [seq2seq.Config(**pair, similarity=name) for name in ("cosine", "additive")]
    models += [seq2seq.Config(**pair, position="learned", final_norm=True, tie_embeddings=False)]
    return map(shapes, [*models, word2vec.Config(vocab_size=7)])


def test_every_parameter_of_every_model_has_a_role():
    for params in every_tree():
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            assert leaves.role(path, 1) is leaves.role(path, 9), path  # whatever its axes: it is declared
            # A stack of matrices has three axes or more; what else has as many is known by its name.
            owners, name = {entry.key for entry in path[:-1]}, path[-1].key
            inside = not owners.isdisjoint({"blocks", "cells"})
            other = name.endswith("bias") or name in ("table", "vector") or "fire" in owners
            assert (leaves.matrix(path, leaf.ndim) is not None) == (inside and leaf.ndim > 2 and not other), path


def test_of_parameters_that_nobody_declared_matrices_decay():
    matrix, stack = jnp.zeros((3, 3)), jnp.zeros((2, 3, 3))
    mask = optimizer.decay_mask({"blocks": [{"turn": matrix}], "layers": {"gain": matrix, "turn": stack}})
    assert jax.tree.leaves(mask) == [True, False, True]


def update(cfg, steps, gradients, params, step, hyper=None):
    rule = optimizer.make(cfg, steps)
    with jax.numpy_dtype_promotion("standard"):
        return jax.jit(rule.update)(gradients, rule.init(params), params, hyper=hyper or cfg.hyper(), step=step)


def test_five_steps_equal_those_of_optax():
    """Of the rate and the decay of a state, not of the settings: members have their own."""
    settings = optimizer.Config(learning_rate=0.5, warmup_steps=2, min_lr=0.01, weight_decay=0.9, max_grad_norm=1.5)
    hyper = settings.hyper() | {"learning_rate": jnp.float32(0.02), "weight_decay": jnp.float32(0.3)}
    params = random_like(shapes(GPT2), seed=0)
    ours = optimizer.make(settings, 5)
    theirs = optax.chain(
        optax.clip_by_global_norm(1.5),
        optax.adamw(
            lambda count: optimizer.learning_rate(count, 0.02, settings, 5),
            settings.beta1,
            settings.beta2,
            weight_decay=0.3,
            mask=optimizer.decay_mask,
        ),
    )

    def after(update, state):
        """The parameters after five steps, whose gradients are their sines."""
        found, update = params, jax.jit(update)
        with jax.numpy_dtype_promotion("standard"):
            for step in range(5):
                updates, state = update(jax.tree.map(jnp.sin, found), state, found, jnp.int32(step))
                found = optax.apply_updates(found, updates)
        return names(found)

    found = after(lambda *args: ours.update(*args[:3], hyper=hyper, step=args[3]), ours.init(params))
    expected = after(lambda *args: theirs.update(*args[:3]), theirs.init(params))
    for name, leaf in found.items():
        np.testing.assert_allclose(leaf, expected[name], rtol=1e-6, atol=1e-7, err_msg=name)
        assert np.abs(leaf - names(params)[name]).max() > 1e-3


MUON_NAMES = {f"blocks/attention/{name}" for name in ("query", "key", "value", "output")} | {
    f"blocks/feedforward/{name}/weight" for name in ("expand", "contract")
}


def test_muon_turns_the_matrices_of_the_blocks_and_nothing_else():
    params = random_like(shapes(GPT2), seed=0)
    gradients = jax.tree.map(lambda leaf: leaf / 50, random_like(params, seed=1))  # none is clipped
    settings = optimizer.Config(rule="muon", warmup_steps=0, learning_rate=0.01)
    ours, theirs = optimizer.make(settings, 10), optax.nadamw(0.01, settings.beta1, settings.beta2, weight_decay=0.0)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = jax.jit(ours.update)(
            gradients, jax.jit(ours.init)(params), params, hyper=settings.hyper(), step=jnp.int32(0)
        )
        expected, _ = jax.jit(theirs.update)(gradients, jax.jit(theirs.init)(params), params)
    for name, update in names(updates).items():
        same = np.allclose(update, names(expected)[name], rtol=1e-5, atol=0)
        assert same == (name not in MUON_NAMES), name
