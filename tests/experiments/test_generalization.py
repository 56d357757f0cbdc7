"""Suites are what they claim, a member is measured once, and contexts are asked of members that were not wrong."""

import dataclasses

import numpy as np
import pytest

from apformer.commands import sweep
from apformer.errors import USAGE
from apformer.files import read_json
from apformer.runs import recipes
from apformer.tasks.progressions import evaluation, generator
from apformer.tasks.progressions import training as task
from tests.helpers import circuit, scripts
from tests.helpers.refusals import refused

pytestmark = pytest.mark.long

(generalization,) = scripts.load("generalization")

TINY = (
    "--recipe sketch --rule adamw --ema 0 --n_layers 1 --hard_fraction 0 --prefix_rows 0 --long_rows 0 "
    "--d_model 8 --digits 2 --max_difference 30 --crop_terms 4 --batch_size 4 --test_sequences 20 "
    "--steps 2 --log_every 2 --save_every 2 --warmup_steps 0 --window 5 --position relative --learning_rate 1e-3,1e-2"
)


def asked(*flags):
    found = generalization.suites(recipes.parse(["--test_sequences", "64", *flags]))
    assert list(found) == [
        "in distribution",
        "more terms",
        "unseen differences",
        "negative differences",
        "one more digit",
    ]
    return found


def test_suites_are_what_they_claim():
    flags = "--max_difference 120 --min_difference 82 --crop_terms 5".split()
    unseen = (121, 239)
    longest = 12
    cfg, crop = (settings := recipes.parse(flags)).data, settings.options.crop_terms
    found, top = asked(*flags), 10**cfg.digits - 1
    for name, suite in found.items():
        first_B, difference_B, terms_B = suite.rows
        assert len(first_B) == 64 and suite.digits == cfg.digits + (name == "one more digit")
        last_B = first_B + (terms_B - 1) * difference_B
        assert np.minimum(first_B, last_B).min() >= 0 and np.maximum(first_B, last_B).max() < 10**suite.digits
        assert suite.known == (crop if name == "more terms" else 0) and (name == "more terms" or terms_B.max() <= crop)
        if name in ("in distribution", "more terms"):
            assert (generator.split_of(difference_B, first_B) == 2).all()
        if name in ("in distribution", "more terms", "one more digit"):
            assert cfg.min_difference <= difference_B.min() and difference_B.max() <= cfg.max_difference
    assert (found["more terms"].rows.terms_B == longest).all() and crop < longest <= 10 * crop
    rows = found["unseen differences"].rows
    assert unseen[0] <= rows.difference_B.min() and rows.difference_B.max() <= unseen[1]
    assert unseen[0] > cfg.max_difference and rows.terms_B.min() >= 3 and 2 * unseen[1] <= top
    assert found["unseen differences"].what == f"differences {unseen[0]} to {unseen[1]}"
    rows = found["negative differences"].rows
    assert -cfg.max_difference <= rows.difference_B.min() and rows.difference_B.max() <= -cfg.min_difference
    assert (found["one more digit"].rows.first_B > top).any()


def test_terms_that_do_not_count_are_not_counted(monkeypatch):
    settings = dataclasses.replace(recipes.parse(["--digits", "2"]), model=circuit.config(2))
    rows = generator.Progressions(*np.array([[10, 20, 30], [1, 2, 3], [2, 4, 7]], np.int32))
    counts_BN = np.arange(3, 8) <= rows.terms_B[:, None]
    term_BN = np.broadcast_to(np.arange(3, 8), counts_BN.shape)
    row_N, term_N = np.nonzero(counts_BN)

    def measured(known, *right):
        right = {mode: right_BN[counts_BN] for mode, right_BN in zip(evaluation.MODES, right, strict=True)}
        outcomes = evaluation.Outcomes(None, row_N, term_N + 3, right, [])
        monkeypatch.setattr(evaluation, "outcomes", lambda *_: outcomes)
        return generalization.measure(generalization.Suite("some", rows, 2, known), circuit.params(2), settings)

    # Right on every term after the fourth, and free-running on the fifth alone.
    for known, counted, forced, free in ((0, 7, 3, 1), (3, 5, 3, 1), (5, 2, 2, 0)):
        shares = {"teacher_forced": forced / counted, "free_running": free / counted}
        assert measured(known, term_BN > 4, term_BN == 5) == {"what": "some", "terms": counted} | shares
    assert measured(7, term_BN > 2, term_BN > 2) is None


@pytest.mark.parametrize(
    ("flags", "can"),
    [
        ("", True),
        ("--position rotary", False),
        ("--digits 4", False),  # too many
    ],
)
def test_contexts_are_enumerated_where_they_are_finitely_many_and_few(flags, can):
    assert generalization.can_enumerate(recipes.parse(flags.split())) == can


@pytest.fixture
def small(monkeypatch, without_figures):
    """One suite in place of all, of which each costs a compilation."""

    def one(settings, rows=None):
        rows = task.test_rows(settings, rows)
        cut = rows._replace(terms_B=np.minimum(rows.terms_B, 4))
        return {"in distribution": generalization.Suite("held-out lines", cut, 2), "more terms": None}

    monkeypatch.setattr(task, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(generalization, "suites", one)


def test_members_are_measured_once_and_contexts_asked_of_those_that_were_not_wrong(small, tmp_path, monkeypatch):
    args = [*TINY.split(), "--members", "2", "--run_dir", str(tmp_path)]
    measured = []
    asked = []
    truth = generalization.measure

    def measure(suite, params, settings):
        measured.append((float(params["embedding"]["table"][0, 0]), truth(suite, params, settings)))
        return {"what": "some", "terms": 4, "teacher_forced": 1.0, "free_running": len(measured) / 8}

    def certificate(params, settings):
        asked.append(params)
        return {"certified": len(asked) < 3, "errors": len(asked)}

    monkeypatch.setattr(generalization, "measure", measure)
    monkeypatch.setattr(generalization, "certificate", certificate)
    generalization.sweep([*args, "--no_certify"])
    first = (tmp_path / "suites.json").read_bytes()
    generalization.sweep([*args, "--no_certify"])
    assert (tmp_path / "suites.json").read_bytes() == first and not asked
    # Four members, the last state of each.
    settings = generalization.load_settings(tmp_path / "01")
    _, state = generalization.checkpoint.load(tmp_path / "01" / "checkpoints", sweep.abstract_state(settings))
    assert [value for value, _ in measured] == np.asarray(state.params["embedding"]["table"])[:, 0, 0].tolist()
    assert len({value for value, _ in measured}) == 4 and all(found["terms"] > 4 for _, found in measured)
    table = (tmp_path / "table.md").read_text()
    assert "| learning_rate 1e-3 | 2 |" in table and "| 18.8 (12.5 to 25.0) | - | - |" in table
    generalization.sweep(args)
    told = [(found["certified"], found["errors"]) for found in read_json(tmp_path / "suites.json").values()]
    assert told == [(True, 1), (True, 2), (False, 3), (False, 4)]
    assert "| 2 of 2 |" in (tmp_path / "table.md").read_text() and "| 0 of 2 |" in (tmp_path / "table.md").read_text()


def test_runs_of_another_task_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a text " * 400)
    with refused(USAGE, "^suites are of progressions, not of the task text: use `apformer sweep`"):
        generalization.sweep("--recipe text --text text.txt --context 8".split())
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]
