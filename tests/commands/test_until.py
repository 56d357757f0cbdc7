"""`--until certified`: training ends at the first checkpoint that is certified, and the run is that checkpoint."""

import os
import signal
import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import cli
from apformer.commands import certify, train
from apformer.files import read_json
from apformer.optimizer import Config as Optimizer
from apformer.proof import check
from apformer.runs import checkpoint, fit, restore, selection
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, generator
from apformer.tasks.progressions import training as task
from apformer.tasks.progressions.proof import contexts, rows
from tests.helpers import circuit

pytestmark = pytest.mark.long

TRAINING = Training(steps=6, until="certified", batch_size=4, log_every=1, save_every=2)
SETTINGS = Settings(
    "progressions",
    "model",
    TRAINING,
    circuit.config(2),
    generator.Config(digits=2, max_difference=30),
    Options(crop_terms=3, test_sequences=20),
    Optimizer(learning_rate=1e-12),  # what is right stays right
)
NOT_YET = {"certified": False, "missed": []}


@pytest.fixture
def exact(monkeypatch, without_pictures):
    """Training begins with weights that are right everywhere."""
    initial_state = fit.initial_state

    def begin(settings, given=None):
        state = initial_state(settings, given)
        return state._replace(params=jax.tree.map(jax.numpy.copy, circuit.params(2)))

    monkeypatch.setattr(task, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(train, "initial_state", begin)


def run(path, **changes):
    train.train(replace(SETTINGS, training=replace(TRAINING, run_dir=str(path), **changes)))
    return path, path / "checkpoints"


def kept(path, sign=1):
    """(settings, directory) of a run whose weights are right everywhere, or with the other sign wrong."""
    settings = replace(SETTINGS, training=Training(steps=1, run_dir=str(path)))
    return settings, train.keep(settings, jax.tree.map(lambda leaf: sign * leaf, circuit.params(2)))


def test_training_ends_at_the_first_certificate(exact, tmp_path, monkeypatch, capsys):
    asked = []
    certify_run = certify.certify_run

    def first_try_fails(path, settings, **options):
        asked.append((options.get("step"), options.get("hasty")))
        return NOT_YET if options.get("step") == 2 else certify_run(path, settings, **options)

    monkeypatch.setattr(certify, "certify_run", first_try_fails)
    path, folder = run(tmp_path / "run")
    out, err = capsys.readouterr()
    assert asked == [(2, True), (4, True)]
    assert "step 2: not certified yet" in err and "proven at step 4, after " in err
    assert "PROVEN for any float32 rounding" in out
    assert selection.steps(folder) == [2, 4] and selection.best(selection.read_all(folder)) == 4
    proof, evaluation = (read_json(path / f"{name}.json") for name in ("certificate", "evaluation"))
    assert proof["certified"] and proof["step"] == evaluation["step"] == 4
    assert restore.load(path).step == 4
    assert cli.main(["resume", str(path)]) == 0  # it has ended, and is examined again
    assert selection.steps(folder) == [2, 4] and asked[2:] == [(None, None)]
    assert cli.main(["resume", str(path), "--step", "2"]) == 0  # which is known to fail, and not asked again
    assert selection.steps(folder) == [2, 4] and asked[3:] == [(4, True)]


def test_the_last_step_is_asked_whatever_its_loss(exact, tmp_path, monkeypatch):
    certify_run = certify.certify_run
    monkeypatch.setattr(
        certify,
        "certify_run",
        lambda path, settings, step=None, **_: certify_run(path, settings, step=step) if step == 6 else NOT_YET,
    )
    scores = iter((0.1, 0.2, 0.3))  # of steps 2, 4 and 6: the last is the worst
    monkeypatch.setattr(selection, "score", lambda measured: next(scores))
    path, folder = run(tmp_path / "run")
    assert selection.steps(folder) == [2, 4, 6] and selection.best(selection.read_all(folder)) == 6
    assert read_json(path / "certificate.json")["step"] == 6


def test_a_stop_signal_before_the_certificate_is_heeded_first(exact, tmp_path, monkeypatch):
    save = checkpoint.Checkpoints.save

    def save_and_stop(*args, **options):
        save(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # a thread hears it

    monkeypatch.setattr(checkpoint.Checkpoints, "save", save_and_stop)
    monkeypatch.setattr(certify, "certify_run", lambda *args, **options: pytest.fail("it was asked"))
    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "run")
    assert ended.value.code == 128 + signal.SIGTERM
    assert selection.steps(tmp_path / "run" / "checkpoints") == [2]


@pytest.mark.parametrize("changes", ({"until": "steps"}, {"members": 2}, {"average": 2}))
def test_nothing_is_asked_before_the_last_step(exact, tmp_path, monkeypatch, changes):
    asked = []
    monkeypatch.setattr(train, "fit", lambda path, settings, rows, state, proven: asked.append(proven))
    monkeypatch.setattr(train, "initial_state", fit.initial_state)
    with pytest.raises(Exception):  # noqa: B017 - there is nothing to evaluate
        run(tmp_path / "run", **changes)
    assert asked == [None]


def test_a_step_that_is_wrong_on_validation_rows_is_not_asked(without_pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(task, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(certify, "certify_run", lambda *args, **options: pytest.fail("it was asked"))
    monkeypatch.setattr(train, "certificate", lambda *args: "")
    assert selection.steps(run(tmp_path / "run")[1]) == [2, 4, 6]


def test_too_many_contexts_are_asked_once(exact, tmp_path, monkeypatch):
    asked = []

    def too_many(*args, **options):
        asked.append(options.get("step"))
        raise train.UserError("too many", train.USAGE)

    monkeypatch.setattr(certify, "certify_run", too_many)
    assert selection.steps(run(tmp_path / "run")[1]) == [2, 4, 6]
    assert asked == [2, None]  # and at the end


@pytest.mark.parametrize(("fault", "judge"), [("it is another", "margins"), (None, "prove_slice")])
def test_in_haste_errors_end_it_and_contexts_are_named(tmp_path, monkeypatch, fault, judge):
    """Where JAX screens a model that numpy does not compute, and where numpy proves one."""
    settings, path = kept(tmp_path / "run", sign=-1)
    monkeypatch.setattr(rows, "SLICE", 600)
    monkeypatch.setattr(contexts, "fault", lambda data, cfg: fault)
    asked = []
    right = getattr(check, judge)
    monkeypatch.setattr(check, judge, lambda *args: asked.append(1) or right(*args))
    found = certify.certify_run(path, settings, hasty=True)
    assert not found["certified"] and len(found["missed"]) == check.WORST and len(asked) == 1
    assert all(context["margin"] < 0 and context["given"] >= 2 for context in found["missed"])
    assert not list(path.glob("certificate*"))


def test_a_few_errors_do_not_end_a_hasty_proof_without_bounds(tmp_path, monkeypatch):
    settings, path = kept(tmp_path / "run")
    right = check.network.logits
    slices = []

    def judge(codes, *args):
        slices.append(right(codes, *args))
        slices[-1][0] *= -1
        return slices[-1]

    monkeypatch.setattr(check.Case, "bounded", False)
    monkeypatch.setattr(check.network, "logits", judge)
    margins = [context["margin"] for context in certify.certify_run(path, settings, hasty=True)["missed"]]
    assert len(slices) > 1 and min(margins) < 0 < max(margins)


def test_a_margin_that_numpy_does_not_prove_is_no_certificate_and_leaves_nothing(tmp_path, monkeypatch):
    right = check.rounding.bounded_logits

    def judge(codes, *args):
        logits, ratio = right(codes, *args)
        return logits, np.minimum(ratio, 0.5)

    monkeypatch.setattr(check.rounding, "bounded_logits", judge)
    settings, path = kept(tmp_path / "run")
    found = certify.certify_run(path, settings, hasty=True)
    assert not found["certified"] and min(context["margin"] for context in found["missed"]) > 0
    assert not list(path.glob("certificate*"))


def test_in_haste_a_model_that_numpy_does_not_compute_is_screened(tmp_path, capsys, monkeypatch):
    settings, path = kept(tmp_path / "run")
    monkeypatch.setattr(contexts, "fault", lambda data, cfg: "it is another")
    found = certify.certify_run(path, settings, hasty=True)
    assert found["screened"] and not found["certified"]
    for words, code in ("certify", 8), ("certify --screen", 0), ("export --to=proof", 2):
        assert cli.main([*words.split(), str(path)]) == code
    out, err = capsys.readouterr()
    assert out.count("SCREENED, NOT PROVEN: greedy decoding") == 2 and "is not certified (screened, and not" in err
    assert "numpy does not compute such a model: it is another" in err and "not compute the model of" in err
