"""The certificate passes the circuit, and has teeth: whatever is wrong anywhere, it finds and names."""

import json
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import model
from apformer.analysis import certificate as certificates
from apformer.analysis import rounding
from apformer.decoding.bind import Model, bind
from apformer.model import reach
from apformer.report import tables
from apformer.tasks.progressions import certificate as certify
from apformer.tasks.progressions.generator import Config, encode_rows
from apformer.tokenizers import digits as tokenizer
from tests.helpers import circuit

D2 = Config(digits=2, max_difference=49)
CIRCUIT, WEIGHTS = circuit.config(2), circuit.params(2)
init = jax.jit(model.init, static_argnums=1)


def whole(function, *parameters):
    """The Model of a function (*parameters, tokens_BT) of whole rows: its cache is all that was read."""
    apply = Partial(function, *parameters)
    return Model(apply, Partial(extend, apply), Partial(init_cache))


def extend(apply, tokens_BT, cache, lengths_B=None):
    read_BT = jnp.concatenate([cache["tokens"], tokens_BT], axis=1)
    return apply(read_BT)[:, cache["tokens"].shape[1] :], {"tokens": read_BT}


def init_cache(batch_size, length):
    return {"tokens": jnp.zeros((batch_size, 0), jnp.int32)}


def enumerated(cfg, bound, tokens, tally=None, **options):
    tally = tally or certify.start()
    last = deque(certify.enumerate_contexts(certify.plan(cfg, tokens), bound, tally, **options), maxlen=1)
    return last.pop() if last else tally


def certificate(params, cfg=D2, architecture=CIRCUIT, tokens=None):
    tokens = tokens or reach(architecture)
    bound = bind(model, params, architecture)
    tally = enumerated(cfg, bound, tokens, batch_tokens=8192)
    return certify.conclude(cfg, tokens, tally, certify.plan(cfg, tokens), bound)


@pytest.fixture(scope="module")
def passed():
    return certificate(WEIGHTS)


def test_the_circuit_is_certified(passed):
    assert passed["certified"] and passed["errors"] == 0
    assert passed["contexts"] == certify.count(D2, reach(CIRCUIT))
    assert passed["smallest_margin"] == circuit.SURE
    assert passed["largest_difference"] == 0.0 and passed["outside_difference"] == 0.0
    assert passed["claim"] == (
        "greedy decoding continues every progression of 2-digit terms with a difference from 1 to 49, of any length, "
        "rightly once its first two terms are given"
    )
    json.dumps(passed, allow_nan=False)


def test_trained_and_untrained_lines_are_told_apart(passed):
    trained, untrained = passed["parts"]["trained lines"], passed["parts"]["untrained lines"]
    assert trained["contexts"] + untrained["contexts"] == passed["contexts"]
    assert 0.1 < untrained["contexts"] / passed["contexts"] < 0.3


def padded(text):
    """(tokens, their number), of one size for every text."""
    tokens_T = tokens_of(text)
    return jnp.asarray(np.pad(tokens_T, (0, 300 - len(tokens_T)))), jnp.int32(len(tokens_T))


def wrong(context_S, length, tokens_BT):
    """The circuit, wrong about one context alone, which is a parameter: so all contexts run the same programs."""
    at_T = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)
    met_B = ((tokens_BT == context_S[None, : len(at_T)]) | (at_T >= length)[None]).all(axis=1)
    said_BTV = met_B[:, None, None] & (at_T == length - 1)[None, :, None] & (jnp.arange(11) == 3)[None, None]
    return model.apply(WEIGHTS, tokens_BT, CIRCUIT) + jnp.where(said_BTV, 1e6, 0.0)


@pytest.mark.parametrize("text, expected", [("97 98", "99"), ("00 49 9", "98"), ("10 12 14 ", "16")])
def test_one_wrong_digit_anywhere_is_found_and_named(text, expected):
    tokens = reach(CIRCUIT)
    tally = enumerated(D2, whole(wrong, *padded(text)), tokens)
    assert sum(part["errors"] for part in tally["splits"].values()) == 1
    bound = replace(bind(model, WEIGHTS, CIRCUIT), apply=Partial(wrong, *padded(text)))
    result = certify.conclude(D2, tokens, tally, certify.plan(D2, tokens), bound)
    assert not result["certified"] and "1 of" in result["claim"]
    named = result["worst"][0]
    assert text.startswith(named["given"]) and named["expected"] == f" {expected}"
    assert "3" in named["predicted"] and named["predicted"] != named["expected"]
    assert named["margin"] < 0 < result["worst"][1]["margin"]
    device = dict.fromkeys(("dtype", "matmul_precision", "device", "backend"))
    table = tables.certificate(result | {"seconds": 1.0} | device)
    assert "NOT CERTIFIED" in table and f"after {named['given']!r}: {named['predicted']!r}, not ' {expected}'" in table


@pytest.mark.parametrize("row", [(60, 3, 5), (0, 49, 3)])
def test_one_flipped_digit_of_the_truth_is_found(monkeypatch, row):
    first, difference, terms = row

    def flipped(rows, digits, longest):
        batch = encode_rows(rows, digits, longest)
        end = terms * (digits + 1) - 2
        if batch.tokens_BT.shape[1] <= end:
            return batch
        met_B = (rows.first_B == first) & (rows.difference_B == difference)
        digit_B = jnp.where(met_B, (batch.tokens_BT[:, end] + 1) % 10, batch.tokens_BT[:, end])
        return batch._replace(tokens_BT=batch.tokens_BT.at[:, end].set(digit_B))

    monkeypatch.setattr(certify, "encode_rows", flipped)
    tally = enumerated(D2, whole(partial(model.apply, WEIGHTS, cfg=CIRCUIT)), reach(CIRCUIT))
    assert sum(part["errors"] for part in tally["splits"].values()) >= 1
    wrong = [context for context in tally["worst"] if context["margin"] < 0]
    assert {(context["first"], context["difference"]) for context in wrong} == {(first, difference)}
    assert min(context["given"] for context in wrong) == terms - 1


def test_a_nudged_weight_breaks_the_certificate_where_it_says():
    """Raise the logit of one token until contexts break: those named are indeed continued so."""

    def nudged(amount):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf.at[4].add(amount) if path == bias else leaf, WEIGHTS
        )

    bias = tuple(jax.tree_util.DictKey(name) for name in ("head", "output", "bias"))
    assert certificate(nudged(0.9 * circuit.SURE))["certified"]
    broken = certificate(nudged(1.1 * circuit.SURE))
    assert not broken["certified"] and 0 < broken["errors"] < broken["contexts"]
    named = broken["worst"][0]
    assert "4" in named["predicted"] and named["predicted"] != named["expected"]
    text = named["given"] + named["expected"]
    logits_BTV = model.apply(nudged(1.1 * circuit.SURE), tokens_of(text)[None], CIRCUIT)
    said_T = logits_BTV[0, len(named["given"]) - 1 : -1].argmax(-1)
    assert tokenizer.decode(said_T) == named["predicted"]


def tokens_of(text):
    return np.array([10 if c == " " else int(c) for c in text], np.int32)


def test_nan_is_an_error():
    tally = enumerated(D2, whole(lambda tokens_BT: jnp.full((*tokens_BT.shape, 11), jnp.nan)), 10)
    total = certify.asked(tally)
    assert sum(part["errors"] for part in tally["splits"].values()) == total == certify.count(D2, 10)


def test_going_on_from_a_tally_gives_what_an_uninterrupted_enumeration_gives():
    cfg, tokens = replace(D2, max_difference=20), reach(CIRCUIT)
    bound = whole(wrong, *padded("10 12 "))
    uninterrupted = enumerated(cfg, bound, tokens, batch_tokens=512)
    visits = certify.enumerate_contexts(certify.plan(cfg, tokens), bound, certify.start(), 512)
    kept = json.loads(json.dumps(next(islice(visits, 3, None))))
    assert enumerated(cfg, bound, tokens, kept, batch_tokens=512) == uninterrupted
    assert enumerated(cfg, bound, tokens, uninterrupted, batch_tokens=512) == uninterrupted


def test_a_margin_that_rounding_could_close_certifies_nothing(monkeypatch):
    monkeypatch.setattr(rounding, "between_ways", lambda *_, **__: circuit.SURE / 99)
    result = certificate(WEIGHTS)
    assert not result["certified"] and "under 100 times" in result["claim"] and result["errors"] == 0


def test_a_reach_that_is_too_short_is_found_out():
    """Full attention, said to look two terms back: what stands before changes the logits."""
    cfg = model.Config(d_model=16, n_heads=2, n_layers=1, position="relative", max_len=64, output_projection=True)
    params = init(jax.random.key(0), cfg)
    result = certificate(params, cfg=replace(D2, max_difference=9), architecture=cfg, tokens=2)
    assert result["outside_difference"] > 0 and not result["certified"] and "before the last" in result["claim"]


def test_a_window_of_any_size_has_the_reach_it_is_said_to_have():
    for window, n_layers in ((6, 2),):
        cfg = model.Config(d_model=16, n_heads=2, n_layers=n_layers, position="relative", window=window)
        rows = certify.plan(D2, reach(cfg))[-1].rows(0, 40)
        apply = bind(model, init(jax.random.key(0), cfg), cfg).apply
        terms = certify.terms_seen(reach(cfg), 2)
        outside, moved = rounding.context_differences(*certify._tokens(rows, 2), 3, terms, apply)
        assert outside == 0.0 and moved < 1e-5


@pytest.mark.parametrize(
    "tokens, digits, terms", [(16, 3, 5), (20, 4, 5), (24, 5, 5), (10, 3, 3), (14, 5, 3), (1, 3, 2)]
)
def test_terms_seen(tokens, digits, terms):
    assert certify.terms_seen(tokens, digits) == terms


def test_a_model_without_reach_is_asked_whole_progressions():
    cfg = replace(D2, max_terms=7)
    assert [group.high for group in certify.plan(cfg, None)][-1] == 7
    assert certify.count(cfg, None) == sum(
        max(0, min(7, 1 + (99 - first) // difference) - 2) for first in range(100) for difference in range(1, 50)
    )
    assert reach(model.Config()) is None
    assert reach(model.Config(window=5)) is None  # sinusoidal
    assert reach(model.Config(window=5, position="rotary")) is None
    assert reach(model.Config(window=5, position="relative", n_layers=3)) == 12


def test_positions_that_matter_are_found_out():
    """A window that slides over sinusoidal positions, said to have a reach: it matters where a row stands."""
    cfg = model.Config(d_model=16, n_heads=2, window=5)
    rows = certify.plan(D2, 4)[-1].rows(0, 20)
    apply = bind(model, init(jax.random.key(0), cfg), cfg).apply
    outside, moved = rounding.context_differences(*certify._tokens(rows, 2), 3, certify.terms_seen(4, 2), apply)
    assert outside == 0.0 and moved > 0.1


@pytest.mark.parametrize("way", ["batch", "cache"])
def test_differences_between_ways_of_computing_are_measured(way):
    bound, tokens = bind(model, WEIGHTS, CIRCUIT), certify._tokens(certify.plan(D2, 8)[-1].rows(0, 5), 2)
    if way == "batch":
        other = replace(
            bound, apply=Partial(lambda tokens_BT: bound.apply(tokens_BT) + (0.5 if len(tokens_BT) == 1 else 0.0))
        )
    else:
        other = replace(bound, extend=Partial(lambda *args: (bound.extend(*args)[0] + 0.5, bound.extend(*args)[1])))
    assert rounding.between_ways(*tokens, bound) == 0
    assert rounding.between_ways(*tokens, other) == 0.5


def test_contexts_left_out_certify_nothing():
    bound, groups = bind(model, WEIGHTS, CIRCUIT), certify.plan(D2, 8)
    some = next(certify.enumerate_contexts(groups, bound, certify.start(), 512))
    result = certify.conclude(D2, 8, some, groups, bound)
    assert not result["certified"] and "contexts were asked where there are" in result["claim"]


def test_all_products_are_at_the_highest_precision():
    bound = bind(model, WEIGHTS, CIRCUIT)
    tokens_BT = np.zeros((2, 5), np.int32)
    for traced in (
        jax.make_jaxpr(bound.apply)(tokens_BT),
        jax.make_jaxpr(lambda tokens_BT: bound.extend(tokens_BT, bound.init_cache(2, 9)))(tokens_BT),
    ):
        text = str(traced)
        assert text.count("dot_general") == text.count("precision=(Precision.HIGHEST") > 0


def test_margins_are_those_of_whole_rows():
    """What ten rows have in common is read once; rows are also asked one by one, without a cache."""
    cfg = model.Config(d_model=16, n_heads=2, n_layers=2, window=5, position="relative")
    bound, group = bind(model, init(jax.random.key(0), cfg), cfg), certify.plan(D2, 8)[-1]
    rows = group.rows(40, 12)
    tokens_BT, weights_BT = encode_rows(rows, 2, group.high)
    margin_BT = certificates.margins(bound.apply(tokens_BT[:, :-1]), tokens_BT[:, 1:])
    margin_BT = jnp.where(weights_BT[:, 1:] > 0, margin_BT, jnp.inf)
    expected_BN = margin_BT[:, 4:].reshape(len(margin_BT), -1, 3).min(-1)
    assert jnp.isfinite(expected_BN).any() and jnp.isinf(expected_BN).any()
    np.testing.assert_allclose(certify.margins(rows, 2, group.high, bound), expected_BN, atol=1e-5)
