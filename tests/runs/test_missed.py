"""Contexts that a certificate named join the hard rows of the steps after it, in a run that was stopped too."""

import shutil
from dataclasses import replace

import pytest

from apformer import tasks
from apformer.commands import certify, resume
from apformer.commands import train as command
from apformer.errors import CHECKPOINT
from apformer.runs import directory, fit, recipes, selection
from apformer.runs.metrics import MISSED, note_missed, read_missed
from apformer.tasks.progressions import crops, training
from tests.helpers.refusals import refused
from tests.helpers.small_models import bits
from tests.runs import test_resume

pytestmark = pytest.mark.long

WRONG = [
    {"first": 7, "difference": 30, "given": 2, "margin": -0.5},
    {"first": 1, "difference": 9, "given": 3, "margin": 0.25},
]
SETTINGS = replace(
    test_resume.SETTINGS,
    training=replace(test_resume.SETTINGS.training, steps=16, keep=10, until="certified"),
    options=replace(test_resume.SETTINGS.options, hard_fraction=0.25),
)


@pytest.fixture
def trained(monkeypatch):
    """train(path, contexts) -> the bits of the last state, where the certificates of steps 4 and 8 name contexts."""
    ended = []

    def train(path, contexts=(), steps=(4, 8)):
        def certificate(path, settings, step, **_):
            return {"certified": False, "missed": [*contexts] if step in steps else []}

        def prover(*args):
            proven = command._prover(*args)
            return lambda step: asked.append(step) or proven(step)

        monkeypatch.setattr(certify, "certify_run", certificate)
        monkeypatch.setattr(command, "finish", lambda *args: ended.append(fit.fit(*args, prover(path, SETTINGS, []))))
        asked = []
        if path.exists():
            resume.resume(resume.Resume(str(path)))
        else:
            test_resume.train(SETTINGS, path)
        return bits(ended[-1]), asked

    monkeypatch.setattr(training, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(command, "read_metrics", lambda path: [])  # so that steps are asked whatever they are worth
    return train


def test_they_change_what_is_trained_and_a_resumed_run_sees_the_same(trained, tmp_path):
    path = tmp_path / "run"
    whole, asked = trained(path, WRONG)
    assert asked == [4, 8, 12, 16]
    kept = read_missed(path)
    assert [record["step"] for record in kept] == [4, 8, 12, 16] and kept[2] == {"step": 12}
    assert kept[0] == {"step": 4, "first": [7, 1], "difference": [30, 9], "given": [2, 3], "margin": [-0.5, 0.25]}
    without, _ = trained(tmp_path / "without")
    assert whole != without
    copy = shutil.copytree(path, tmp_path / "copy")
    directory.forget_after(copy, 8)
    assert [record["step"] for record in read_missed(copy)] == [4, 8]
    assert trained(copy, WRONG)[0] == whole and read_missed(copy) == kept


def test_a_line_that_is_torn_is_dropped_where_a_run_goes_on_before_it(trained, tmp_path, capsys):
    path = tmp_path / "run"
    whole, _ = trained(path, WRONG)
    with (path / MISSED).open("a") as file:
        file.write("{")
    test_resume.damage(path, 16)
    assert trained(path, WRONG)[0] == whole and len(read_missed(path)) == 4
    assert "resumed at step 12 of 16" in capsys.readouterr().err
    assert selection.steps(path / "checkpoints") == [4, 8, 12, 16]


def test_a_task_that_has_no_use_for_contexts_notes_that_its_certificate_failed(tmp_path, monkeypatch):
    settings = recipes.parse(["--until", "certified"])
    found = {"certified": False, "missed": [{"given": "text", "margin": -1.0}]}
    monkeypatch.delattr(tasks.load(settings.task), "missed")
    monkeypatch.setattr(certify, "certify_run", lambda *args, **options: found)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    assert not command._prover(tmp_path, settings, [])(2) and read_missed(tmp_path) == [{"step": 2}]


def test_a_damaged_line_is_named(tmp_path):
    note_missed(tmp_path, 4, WRONG)
    with (tmp_path / MISSED).open("a") as file:
        file.write("{")
    with refused(CHECKPOINT, r"missed\.jsonl is damaged .* `apformer resume .*` repairs it"):
        read_missed(tmp_path)
    command.files.truncate_after(tmp_path / MISSED, 4)
    assert [record["step"] for record in read_missed(tmp_path)] == [4]


@pytest.mark.parametrize("changes", [{"given": [2]}, {"first": [2**40, 1]}, {"first": [None, 1]}, {"first": 7}])
def test_contexts_that_are_none_are_named(changes):
    record = {"step": 4, "first": [7, 1], "difference": [30, 9], "given": [2, 3]} | changes
    with refused(CHECKPOINT, r"missed\.jsonl is damaged .* restore it"):
        crops.from_records([record], 4)
