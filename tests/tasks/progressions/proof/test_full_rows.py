"""Whole rows of the generator: the network of numpy is that of the library, and every context is asked."""

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

from apformer import model, recurrent
from apformer.analysis import certificate
from apformer.runs.restore import bind_run
from apformer.settings import Settings, Training
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.options import Options
from apformer.tasks.progressions.proof import full_rows, of, rows

SKETCH = model.Config(d_model=16, n_layers=2, d_ff=24)
FIRST = replace(SKETCH, residual=False, feedforward_norm=False)
HEADS = replace(
    SKETCH,
    n_heads=4,
    output_projection=True,
    attention_sink=True,
    position="learned",
    position_options=None,
    final_norm=True,
)
DATA = Config(digits=1, max_difference=9)
SETTINGS = Settings("progressions", "model", Training(), SKETCH, DATA, Options())


@pytest.mark.parametrize("cfg", [SKETCH, FIRST, HEADS], ids=["sketch", "first sketch", "heads"])
def test_it_computes_what_apply_computes(random_params, cfg, monkeypatch):
    """After every context there is of terms of one digit; float32 differs from float64 by rounding alone."""
    monkeypatch.setattr(full_rows, "QUERIES", 4)  # of up to 19 in a row
    settings = replace(SETTINGS, model=cfg)
    assert of(settings) is full_rows
    params = random_params(cfg)
    case = certificate.case(settings, of, params)
    assert case.fault is None and not case.bounded
    found = [*certificate.compare(case, bind_run(settings, params))]
    assert sum(strings for strings, _ in found) == 2 * case.total and max(gap for _, gap in found) < 2e-3
    *_, tally = certificate.prove(case)
    assert tally["contexts"] == case.total == rows.count(asdict(DATA), asdict(cfg))
    codes = full_rows.strings(np.c_[[1, 2, 4]], case.data, case.cfg)[0].ravel()
    some, every = (full_rows.logits(part, case.weights, case.cfg, full_rows) for part in (codes[:3], codes))
    assert np.allclose(some, every[:3])


def test_a_recurrent_network_is_screened_alone():
    cfg = recurrent.Config(d_model=8, n_layers=1)
    settings = replace(SETTINGS, architecture="recurrent", model=cfg)
    params = recurrent.init(jax.random.key(0), cfg)
    case = certificate.case(settings, of, params)
    assert case.fault == "architecture is recurrent, and only model is computed"
    *_, tally = certificate.screen(case, bind_run(settings, params))
    assert tally["strings"] == 2 * case.total and tally["errors"] > 0
    alike = {"n_layers": 1, "window": 3, "position": "none"}  # fields that are named as those of model.Config
    other = alike | {"architecture": "recurrent"}
    assert case.contexts.count(asdict(DATA), other) == case.total > rows.count(asdict(DATA), alike)
    assert "any length" not in case.contexts.claim(asdict(DATA), other)


def test_a_code_names_its_row_and_place():
    columns, cfg = np.array([[999, 3, 0], [-37, 120, 11], [28, 5, 60]]), asdict(SKETCH)
    data = {"digits": 3}
    assert "at most 6" in full_rows.fault({"digits": 7}, cfg)
    _, truth = full_rows.strings(np.array([[4_999_990], [1], [3]]), {"digits": 7}, cfg)  # JAX screens them
    assert truth.shape == (1, 1, 8)
    codes, truth = full_rows.strings(columns, data, cfg)
    asked = truth < rows.START
    found, length, of_code, place, digits = full_rows.rows_of(codes[asked])
    assert digits == 3 and (found == columns[:, [1, 0, 2]]).all()
    tokens = rows.whole_rows(found, data)
    assert (tokens[of_code, place + 1] == truth[asked]).all()


def test_a_wrong_character_is_an_error(random_params, monkeypatch):
    case = certificate.case(SETTINGS, of, random_params(SKETCH))

    def right(tokens, weights, cfg):
        place = np.arange(1, tokens.shape[1] + 1)
        term = tokens[:, :1] + (tokens[:, 2:3].astype(int) - tokens[:, :1]) * (place // 2)
        return np.eye(11)[np.where(place % 2, rows.SPACE, term % 10)]

    monkeypatch.setattr(full_rows, "logits_of_rows", right)
    for said, holds in ((right, True), (lambda *given: right(*given) + 2 * np.eye(11)[7], False)):
        monkeypatch.setattr(full_rows, "logits_of_rows", said)
        *_, tally = certificate.prove(case)
        result = certificate.conclude(case, tally, proof=True)
        assert result["certified"] == holds == (tally["errors"] == 0) and result["rounding"] is None
