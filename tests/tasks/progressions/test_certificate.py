"""Both judges pass the circuit, and have teeth: whatever is wrong anywhere, they find and name."""

import json
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import model
from apformer.analysis import certificate
from apformer.decoding.bind import Model, bind
from apformer.proof import check
from apformer.report import tables
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options
from apformer.tasks.progressions.generator import Config, split_of
from apformer.tasks.progressions.proof import contexts, rows
from apformer.tokenizers.digits import encode
from tests.helpers import circuit

D2 = Config(digits=2, max_difference=49)
CIRCUIT, WEIGHTS = circuit.config(2), circuit.params(2)
BOUND = bind(model, WEIGHTS, CIRCUIT)


def settings(data=D2, architecture=CIRCUIT):
    return Settings("progressions", "model", Training(), architecture, data, Options())


def case(params=WEIGHTS, data=D2, architecture=CIRCUIT, listed=contexts):
    return certificate.case(settings(data, architecture), listed, params)


def last(tallies):
    return deque(tallies, maxlen=1).pop()


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(rows, "SLICE", 700)


@pytest.fixture(scope="module")
def tally():
    return {"jax": last(certificate.screen(case(), BOUND)), "numpy": last(certificate.prove(case()))}


def test_the_circuit_is_proven_and_screened(tally):
    proof, screened = (certificate.conclude(case(), tally[judge], judge == "numpy") for judge in ("numpy", "jax"))
    assert proof["certified"] and proof["theorem"] and proof["rounding"] and not proof["screened"]
    assert screened["screened"] and not screened["certified"] | screened["theorem"] | screened["rounding"]
    assert proof["claim"] == (
        "greedy decoding rightly continues every progression of 2-digit terms with a difference from 1 to 49, of any "
        "length, once its first two terms are given"
    )
    assert screened["claim"] == f"screened, and not proven: {proof['claim']}"
    for result in (proof, screened):
        assert result["errors"] == 0 and result["contexts"] == contexts.count(vars(D2), vars(CIRCUIT))
        assert result["smallest_margin"] == circuit.SURE and result["parts"] == proof["parts"]
        json.dumps(result, allow_nan=False)
    assert proof["least_ratio"] > 1 and proof["strings"] <= screened["strings"] == 3 * screened["contexts"]


def test_trained_and_untrained_lines_are_told_apart(tally):
    trained, untrained = tally["numpy"]["parts"].values()
    columns = np.concatenate([*contexts.slices(vars(D2), vars(CIRCUIT))], axis=1)
    of_training = split_of(columns[1], columns[0]) == 0
    assert trained["contexts"] == (columns[2] - 2)[of_training].sum()
    assert untrained["contexts"] == (columns[2] - 2)[~of_training].sum() > 100


def whole(function, *parameters):
    """The Model of a function (*parameters, tokens_BT) of whole rows."""
    return Model(Partial(function, *parameters), None, None, cfg=CIRCUIT)


def wrong(context_S, tokens_BT):
    """The circuit, wrong after one text alone."""
    at = len(context_S) - 1
    if tokens_BT.shape[1] <= at:
        return model.apply(WEIGHTS, tokens_BT, CIRCUIT)
    met_B = (tokens_BT[:, : at + 1] == context_S[None]).all(1)
    said_BTV = (
        met_B[:, None, None] & (jnp.arange(tokens_BT.shape[1]) == at)[None, :, None] & (jnp.arange(11) == 3)[None, None]
    )
    return model.apply(WEIGHTS, tokens_BT, CIRCUIT) + jnp.where(said_BTV, 1e6, 0.0)


@pytest.mark.parametrize("text, expected", [("97 98", " "), ("00 49 9", "8"), ("10 12 14 ", "1")])
def test_one_wrong_character_anywhere_is_found_and_named(text, expected):
    found = last(certificate.screen(case(), whole(wrong, encode(text))))
    assert found["errors"] == found["wrong"] == 1
    result = certificate.conclude(case(), found, proof=False)
    assert not result["screened"] and "1 of" in result["claim"]
    named = result["worst"][0]
    assert (named["given"], named["expected"], named["predicted"]) == (text, expected, "3")
    assert named["margin"] < 0 < result["worst"][1]["margin"]
    table = tables.certificate(result | {"seconds": 1.0})
    assert table.startswith("NOT PROVEN") and f"after {text!r}: '3', not {expected!r}" in table


def test_a_nudged_weight_breaks_the_proof_where_it_says():
    """Raise the logit of one token until contexts break: those named are indeed continued so."""

    def nudged(amount):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf.at[4].add(amount) if path == bias else leaf, WEIGHTS
        )

    bias = tuple(jax.tree_util.DictKey(name) for name in ("head", "output", "bias"))
    assert not last(certificate.prove(case(nudged(0.9 * circuit.SURE))))["errors"]
    params = nudged(1.1 * circuit.SURE)
    broken = last(certificate.prove(case(params)))
    screened = last(certificate.screen(case(params), bind(model, params, CIRCUIT)))
    assert 0 < broken["errors"] == screened["errors"] < broken["contexts"]
    named = broken["worst"][0]
    said = model.apply(params, encode(named["given"])[None], CIRCUIT)[0, -1].argmax()
    assert int(said) == 4 and named["predicted"] == "4" != named["expected"]


def test_logits_that_are_not_finite_are_errors():
    model_of_nan = whole(lambda tokens_BT: jnp.full((*tokens_BT.shape, 11), jnp.nan))
    found = last(certificate.screen(case(), model_of_nan))
    assert found["errors"] == found["contexts"] == contexts.count(vars(D2), vars(CIRCUIT))
    assert check.margins(np.array([[np.inf, 0.0], [1.0, 0.0]]), np.array([0, 0])).tolist() == [check.LEAST, 1.0]


def test_contexts_left_out_prove_nothing(small_slices):
    some = next(certificate.prove(case()))
    result = certificate.conclude(case(), some, proof=True)
    assert not result["theorem"] and f"{some['contexts']} of {case().total:,} contexts were" in result["claim"]


def test_a_margin_below_its_bound_is_a_theorem_and_no_more(tally, monkeypatch):
    right = check.rounding.bounded_logits

    def judge(*args):
        logits, ratio = right(*args)
        ratio[:1] = 0.5
        return logits, ratio

    monkeypatch.setattr(check.rounding, "bounded_logits", judge)
    result = certificate.conclude(case(), last(certificate.prove(case())), proof=True)
    assert result["theorem"] and not result["rounding"] and not result["certified"]
    assert (
        result["claim"].startswith(f"rounding may change {tally['numpy']['slices']} of ")
        and result["least_ratio"] == 0.5
    )
    assert "NOT PROVEN for float32: rounding may change " in tables.certificate(result | {"seconds": 1.0})


def test_all_products_are_at_the_highest_precision():
    text = str(jax.make_jaxpr(BOUND.apply)(np.zeros((2, 5), np.int32)))
    assert text.count("dot_general") == text.count("precision=(Precision.HIGHEST") > 0
