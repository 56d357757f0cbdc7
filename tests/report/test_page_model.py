"""The model of the page against the model in JAX: the same logits, whatever a Config can say; needs node."""

import base64
import json
import shutil
import subprocess
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, recurrent, seq2seq
from apformer.analysis import ablate
from apformer.formats import weights
from apformer.layers.position import periodic
from apformer.report import template, twin
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, generator, page_data, recipes
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import AHEAD, COLUMNS, FIXED, PERIODIC, SCHEMES, draw_tokens, small

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the page's script"),
]

MODULES = {model.Config: model, recurrent.Config: recurrent, seq2seq.Config: seq2seq}
RUN_BY_THE_PAGE = [scheme for scheme in SCHEMES if scheme in twin.KNOWN["position"]]  # it refuses any other
CONFIGS = [
    *(small(position=scheme, d_model=12) for scheme in RUN_BY_THE_PAGE),  # with a window: OTHERS
    *PERIODIC,
    AHEAD,
    COLUMNS,
    FIXED,
    small(position="periodic", position_options=periodic.Scheme(span_heads=2, logit_scale=3.0), similarity="dot"),
    small(weighting="geometric", attention_bias=True),
    *(small(similarity=name, attention_bias=True) for name in ("dot", "cosine", "additive", "none")),
    *(small(activation=name, norm_position="post", final_norm=True) for name in ("relu", "gelu", "gelu_tanh")),
    small(norm="none", attention_sink=True, output_projection=True, position="relative", window=4),
    small(output_projection=True, attention_bias=True, tie_embeddings=True, scale_embedding=True, head_bias=True),
    small(tie_embeddings=True, head_bias=False),
    small(residual=False, feedforward_norm=False, norm_bias=False, feedforward_bias=False, norm_position="post"),
    *(recurrent.Config(cell=cell, d_model=6, n_layers=2) for cell in ("rnn", "gru", "lstm")),
]
# A model with every optional part, and of each of its fields what else there is: no field may be left out.
WHOLE = small(
    position="relative",
    window=5,
    attention_sink=True,
    attention_bias=True,
    output_projection=True,
    final_norm=True,
)
OTHERS = {
    "vocab_size": (13,),
    "d_model": (9,),
    "n_heads": (1, 2),
    "n_layers": (1, 3),
    "d_ff": (None, 7),
    "max_len": (40,),
    "window": (None, 1, 3),
    "position": tuple(name for name in twin.KNOWN["position"] if name != "relative"),
    "position_options": (),  # of periodic positions, see PERIODIC_OTHERS
    "similarity": ("dot", "cosine", "additive", "none"),
    "weighting": ("geometric",),
    "scale_embedding": (True,),
    "tie_embeddings": (True,),
    "attention_bias": (False,),
    "output_projection": (False,),
    "attention_sink": (False,),
    "activation": ("gelu", "gelu_tanh"),
    "feedforward": (),  # refused
    "feedforward_bias": (False,),
    "feedforward_norm": (False,),
    "norm": ("none",),
    "norm_bias": (False,),
    "norm_position": ("post",),
    "residual": (False,),
    "norm_epsilon": (0.5,),
    "final_norm": (False,),
    "head_bias": (False,),
    "dropout": (0.5,),
    "attention_dropout": (0.5,),
}
PERIODIC_OTHERS = {
    "separator": (3,),
    "near": (2,),
    "span_heads": (1, 3),
    "score_noise": (2.0,),
    "logit_scale": (2.0,),
}


def with_other(name, value):
    """The whole model with another value of a field, and without what that excludes."""
    changes = {name: value}
    if name == "position":
        changes |= {"position_options": None, "d_model": 12}  # rotary positions turn pairs of numbers of a head
        changes |= {"window": None} if value in ("ahead", "columns", "fixed_offsets") else {}
        changes |= {"n_layers": 3} if value == "ahead" else {}
    if name == "weighting":
        changes |= {"window": None, "attention_sink": False}
    return replace(WHOLE, **changes)


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
    told = {"architecture": MODULES[type(cfg)].__name__.rpartition(".")[2], "model": twin.config(cfg)}
    return {"ask": what, "model": told, "part": [], **weights_of(params), **asked}


@pytest.fixture(scope="module")
def drawn(random_params):
    def draw(cfg):
        if isinstance(cfg, recurrent.Config):
            return recurrent.init(jax.random.key(1), cfg)
        return random_params(cfg)

    return draw


def test_logits_of_every_kind_of_model(drawn):
    tokens_BT = draw_tokens(5, 13)
    params = [drawn(cfg) for cfg in CONFIGS]
    found = ask(*(case("logits", p, cfg, rows=tokens_BT.tolist()) for p, cfg in zip(params, CONFIGS, strict=True)))
    for cfg, p, logits in zip(CONFIGS, params, found, strict=True):
        expected = np.asarray(MODULES[type(cfg)].apply(p, tokens_BT, cfg))
        np.testing.assert_allclose(
            logits, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max()), err_msg=str(cfg)
        )


def differences(drawn, configs):
    """Of each model, how far the logits of the page are from those of JAX, relative to the largest."""
    tokens_BT, params = draw_tokens(3, 13), [drawn(cfg) for cfg in configs]
    found = ask(*(case("logits", p, cfg, rows=tokens_BT.tolist()) for p, cfg in zip(params, configs, strict=True)))
    for cfg, p, logits in zip(configs, params, found, strict=True):
        expected = np.asarray(model.apply(p, tokens_BT, cfg))
        yield np.abs(np.asarray(logits) - expected).max() / max(1, np.abs(expected).max())


def test_every_field_of_a_config_is_computed_or_refused(drawn):
    """One field after the other is changed. A new field has no entry here, and a page that does not read it fails."""
    assert set(OTHERS) == {field.name for field in fields(model.Config)}
    assert set(PERIODIC_OTHERS) == {field.name for field in fields(periodic.Scheme)}
    others = [(name, value) for name, values in OTHERS.items() for value in values]
    configs = [with_other(name, value) for name, value in others]
    for name, values in PERIODIC_OTHERS.items():
        for value in values:
            options = replace(periodic.Scheme(span_heads=2, logit_scale=3.0), **{name: value})
            configs.append(small(position="periodic", position_options=options))
            others.append((name, value))
    for other, cfg, apart in zip(others, configs, differences(drawn, configs), strict=True):
        assert apart < 1e-4 and twin.refusal("model", cfg) is None, other


def test_the_choices_that_the_page_knows_are_those_that_are_tested():
    for name, values in twin.KNOWN.items():
        if name != "cell":
            assert {*OTHERS[name], getattr(WHOLE, name)} == set(values), name


def test_hundreds_of_prompts_of_the_default_model(drawn):
    cfg = recipes.exact(3).model
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg)
    tokens_BT = draw_tokens(200, 11)
    (found,) = ask(case("logits", params, cfg, rows=tokens_BT.tolist()))
    expected = np.asarray(jax.jit(partial(model.apply, cfg=cfg))(params, tokens_BT))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(np.argmax(found, -1)[:, -1], expected.argmax(-1)[:, -1])


@pytest.mark.parametrize(
    "changes", [{"position": "relative", "window": 5, "attention_sink": True}, {"position": "ahead", "n_layers": 3}]
)
def test_what_is_shown_of_the_inside_is_what_the_model_captures(drawn, changes):
    cfg, texts = small(**changes, final_norm=True), ("27182 81828 4", "314 159 265 3", "16180 33988 7")
    tokens_BT, params = np.stack([encode(text) for text in texts]), drawn(cfg)
    _, captured = model.apply(params, tokens_BT, cfg, capture=("attention", "residual"))
    distances = {t - s for _, t, s in np.argwhere(captured["attention"][-1, :, -1])}
    assert len(distances) > 1  # of the last head, which with positions ahead takes one key: not always the same
    (found,) = ask(case("captured", params, cfg, rows=tokens_BT.tolist()))
    for row, inside in enumerate(found):
        residual_LTD = np.array(inside["residual"]).swapaxes(0, 1)
        np.testing.assert_allclose(residual_LTD, captured["residual"][:, row], rtol=0, atol=1e-4)
        for t, weights_LHS in enumerate(inside["attention"]):
            expected_LHS = captured["attention"][:, row, :, t, : t + 1]
            np.testing.assert_allclose(weights_LHS, expected_LHS, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "changes", [{"position": "relative", "window": 5, "attention_bias": True}, {"position": "learned"}]
)
def test_ablations_cost_the_same_in_the_page_and_in_python(drawn, changes):
    cfg, data = small(**changes), recipes.exact(2).data
    settings = Settings("progressions", "model", Training(), cfg, data, Options(crop_terms=4))
    params = drawn(cfg)
    held = page_data.ask(settings, None, params)
    parts = [drop["part"] for drop in held["ablation"]]
    assert parts[0] == () and len(parts) == 1 + len(ablate.parts(params))
    (found,) = ask(case("measure", params, cfg, parts=[[part] if part else [] for part in parts], probe=held["probe"]))
    assert len({round(drop["loss"], 6) for drop in held["ablation"]}) > len(ablate.parts(params)) // 2
    for part, there, here in zip(parts, found, held["ablation"], strict=True):
        assert there["loss"] == pytest.approx(here["loss"], abs=1e-4), part
        assert there["exact"] == pytest.approx(here["exact"], abs=1e-4), part


def test_the_page_knows_which_lines_are_held_out():
    drawn = np.random.default_rng(0).integers((-500, 0), (500, 1000), (300, 2)).astype(np.int32)
    (found,) = ask({"ask": "split", "pairs": drawn.tolist(), "leaves": [], "weights": ""})
    assert found == generator.split_of(drawn[:, 0], drawn[:, 1]).tolist()
    assert set(found) == {0, 1, 2}


def test_a_hidden_token_changes_nothing_but_what_it_says_itself(drawn):
    cfg, place = small(position="alibi"), 4
    rows = np.stack([draw_tokens(1, 9)[0]] * 2)
    rows[1, place] = (rows[0, place] + 1) % 11
    (found,) = ask(case("hidden", drawn(cfg), cfg, rows=rows.tolist(), place=place))
    one, other = np.array(found)
    others = np.arange(9) != place
    np.testing.assert_array_equal(one[others], other[others])
    assert not np.array_equal(one[place], other[place])


def test_an_ablated_head_adds_nothing_and_an_unseen_offset_is_not_read(drawn):
    cfg, tokens_BT = small(position="relative", window=5, output_projection=True), draw_tokens(2, 7)
    params = drawn(cfg)
    none = ablate.ablate(params, [part for part in ablate.parts(params) if part[0] in ("head", "feedforward")])
    _, captured = model.apply(none, tokens_BT, cfg, capture=("residual",))
    assert jnp.ptp(captured["residual"], axis=0).max() == 0
    _, captured = model.apply(ablate.ablate(params, [("offset", 2)]), tokens_BT, cfg, capture=("attention",))
    weights_LBHTS = np.asarray(captured["attention"])
    assert np.diagonal(weights_LBHTS, -2, 3, 4).max() == 0 < np.diagonal(weights_LBHTS, -1, 3, 4).min()


def test_parts_that_are_not_there_cannot_be_switched_off(drawn):
    assert ablate.parts(drawn(CONFIGS[-1])) == []
    assert ablate.parts(drawn(small(n_heads=1, n_layers=1))) == [("head", 0, 0), ("feedforward", 0)]
