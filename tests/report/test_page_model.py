"""The model of the page against the model in JAX: the same logits, whatever a Config can say; needs node."""

import base64
import json
import shutil
import subprocess
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, recurrent, seq2seq
from apformer.analysis import ablate
from apformer.formats import weights
from apformer.report import template
from apformer.tasks.progressions import generator, recipes
from tests.helpers.small_models import draw_params, draw_tokens, small

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the page's script"),
]

MODULES = {model.Config: model, recurrent.Config: recurrent, seq2seq.Config: seq2seq}
DECODERS = [  # every choice that the page knows, each field with two values or more
    small(
        position="sinusoidal",
        norm_position="post",
        final_norm=True,
        scale_embedding=True,
        output_projection=True,
        attention_bias=True,
        tie_embeddings=True,
        head_bias=True,
    ),
    small(
        position="learned", max_len=40, similarity="dot", activation="gelu", norm="none", attention_sink=True, d_ff=7
    ),
    small(
        position="rotary",
        d_model=15,
        similarity="cosine",
        activation="gelu_tanh",
        window=3,
        norm_epsilon=0.5,
        head_bias=False,
    ),
    small(position="alibi", similarity="additive", residual=False, feedforward_norm=False, norm_position="post"),
    small(position="none", n_heads=1, n_layers=1, window=1, vocab_size=13),
    recipes.exact(3).model,  # relative positions
]
CONFIGS = [*DECODERS, *(recurrent.Config(cell=cell, d_model=6, n_layers=2) for cell in ("rnn", "gru", "lstm"))]
UNREAD = {"embedding_std", "dropout", "attention_dropout", "position_options"}  # change nothing that it computes
RELATIVE = small(position="relative", window=5, attention_sink=True, output_projection=True, final_norm=True)
capture = jax.jit(partial(model.apply, cfg=RELATIVE, capture=("attention", "residual")))


def weights_of(params):
    leaves = {name: np.asarray(leaf, "<f4") for name, leaf in weights.named(params).items()}
    text = base64.b64encode(b"".join(leaf.tobytes() for leaf in leaves.values())).decode()
    return {"leaves": [{"name": name, "shape": leaf.shape} for name, leaf in leaves.items()], "weights": text}


def ask(*cases):
    """What the page's script answers to each case."""
    page = Path(template.__file__).parent / "template.html"
    command = ["node", str(Path(__file__).parents[1] / "page" / "model.mjs"), str(page)]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case(what, params, cfg, **asked):
    told = {"architecture": MODULES[type(cfg)].__name__.rpartition(".")[2], "model": asdict(cfg)}
    return {"ask": what, "model": told, **weights_of(params), **asked}


def check_logits(configs, apply, **rows):
    """The page has the logits and the likeliest tokens of a function (params, cfg)."""
    params = [draw_params(cfg) for cfg in configs]
    found = ask(*(case("logits", p, cfg, **rows) for p, cfg in zip(params, configs, strict=True)))
    for cfg, p, logits in zip(configs, params, found, strict=True):
        expected = np.asarray(apply(p, cfg))
        close = 1e-4 * max(1, np.abs(expected).max())
        np.testing.assert_allclose(logits, expected, rtol=0, atol=close, err_msg=str(cfg))
        np.testing.assert_array_equal(np.argmax(logits, -1), expected.argmax(-1))


def test_logits_of_every_kind_of_model():
    tokens_BT = draw_tokens(5, 13)
    apply = {module: jax.jit(module.apply, static_argnums=2) for module in MODULES.values()}
    check_logits(CONFIGS, lambda p, cfg: apply[MODULES[type(cfg)]](p, tokens_BT, cfg), rows=tokens_BT.tolist())


def test_every_choice_and_every_field_is_among_these_models_or_refused():
    """A new field of a Config that the page does not read has no second value here."""
    for name, known in template.COMPUTED.items():
        assert {getattr(cfg, name) for cfg in CONFIGS if hasattr(cfg, name)} == set(known), name
    varied = {field.name for field in fields(model.Config) if len({getattr(cfg, field.name) for cfg in DECODERS}) > 1}
    refused = {name for name, known in template.COMPUTED.items() if len(known) == 1}
    assert varied | refused | UNREAD == {field.name for field in fields(model.Config)}
    assert all(template.refusal("model", cfg) is None for cfg in DECODERS)


def test_what_is_shown_of_the_inside_is_what_the_model_captures(random_params):
    tokens_BT, params = draw_tokens(3, 13), random_params(RELATIVE)
    _, captured = capture(params, tokens_BT)
    (found,) = ask(case("captured", params, RELATIVE, rows=tokens_BT.tolist()))
    for row, inside in enumerate(found):
        residual_LTD = np.array(inside["residual"]).swapaxes(0, 1)
        np.testing.assert_allclose(residual_LTD, captured["residual"][:, row], rtol=0, atol=1e-4)
        for t, weights_LHS in enumerate(inside["attention"]):
            expected_LHS = captured["attention"][:, row, :, t, : t + 1]
            np.testing.assert_allclose(weights_LHS, expected_LHS, rtol=0, atol=1e-4)


def test_the_page_knows_which_lines_are_held_out():
    drawn = np.random.default_rng(0).integers((-500, 0), (500, 1000), (300, 2)).astype(np.int32)
    (found,) = ask({"ask": "split", "pairs": drawn.tolist(), "leaves": [], "weights": ""})
    assert found == generator.split_of(drawn[:, 0], drawn[:, 1]).tolist()
    assert set(found) == {0, 1, 2}


def test_a_hidden_token_changes_nothing_but_what_it_says_itself(random_params):
    cfg, place = small(position="alibi"), 4
    rows = np.stack([draw_tokens(1, 9)[0]] * 2)
    rows[1, place] = (rows[0, place] + 1) % 11
    (found,) = ask(case("hidden", random_params(cfg), cfg, rows=rows.tolist(), place=place))
    one, other = np.array(found)
    others = np.arange(9) != place
    np.testing.assert_array_equal(one[others], other[others])
    assert not np.array_equal(one[place], other[place])


def test_an_ablated_head_adds_nothing_an_unseen_offset_is_not_read_and_parts_are_those_that_are_there(random_params):
    tokens_BT, params = draw_tokens(3, 13), random_params(RELATIVE)
    none = ablate.ablate(params, [part for part in ablate.parts(params) if part[0] in ("head", "feedforward")])
    _, captured = capture(none, tokens_BT)
    assert jnp.ptp(captured["residual"], axis=0).max() == 0
    _, captured = capture(ablate.ablate(params, [("offset", 2)]), tokens_BT)
    weights_LBHTS = np.asarray(captured["attention"])
    assert np.diagonal(weights_LBHTS, -2, 3, 4).max() == 0 < np.diagonal(weights_LBHTS, -1, 3, 4).min()
    assert ablate.parts(random_params(CONFIGS[-1])) == []
    with pytest.raises(ValueError, match="is not a part of this model: parts.params. lists them, .*'head', 0, 0"):
        ablate.ablate(params, [("head", 9, 0)])
    assert ablate.parts(random_params(small(n_heads=1, n_layers=1))) == [("head", 0, 0), ("feedforward", 0)]
