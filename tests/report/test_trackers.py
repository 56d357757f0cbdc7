"""A log elsewhere has each line of metrics.jsonl once, whatever stopped the run, and stops no run itself."""

import os
import shutil
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from apformer import cli, errors
from apformer.commands import train
from apformer.report.trackers import Tracker
from apformer.runs import fit
from apformer.runs.metrics import read_metrics

TINY = (
    "--digits 2 --max_difference 30 --max_terms 6 --d_model 8 --n_layers 1 --n_heads 2 --steps 6 --batch_size 4 "
    "--log_every 1 --save_every 2 --until steps --rule adamw --hard_fraction 0 --prefix_rows 0 --test_sequences 10"
).split()
LINES = [
    {"step": 50, "loss": np.float32(2.5), "exact": np.nan, "learning_rate": 1e-3, "seconds": 1.0},
    {"step": 100, "loss": 1.5, "exact": 0.5, "learning_rate": 2e-3, "validation_loss": 1.25, "seconds": 2.0},
    {"step": 150, "loss": 0.5, "exact": 1.0, "learning_rate": 0.0, "seconds": 3.0},
]


def events(run):
    """[(step, {tag: value})] of all event files of a run, in their order: records of length, crc, content, crc."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = []
    for file in sorted((run / "tensorboard").glob("events*"), key=lambda file: int(file.name.split(".")[-1])):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + length])
            content = content[12 + length + 4 :]
            if event.summary.value:
                found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
    return found


def lines(run):
    """What `events` should be, from metrics.jsonl."""
    records = read_metrics(run)
    return [(line.pop("step"), {name: np.float32(value) for name, value in line.items()}) for line in records]


def timeless(found):
    return [(step, line | {"seconds": 0}) for step, line in found]


def track(path, given, known=(), log_to="tensorboard"):
    tracker = Tracker(log_to, path, {"a": 1}, lambda: known)
    for line in given:
        tracker.write(line)
    tracker.close(False)
    return tracker


def test_a_log_has_what_is_finite_no_step_twice_and_what_was_missing(tmp_path):
    members = {"step": 60, "loss": np.array([1.5, np.nan, 2.5]), "exact": [None, 0.5, 1]}
    track(tmp_path, LINES[:1])
    track(tmp_path, [*LINES[:1], members], LINES[:1])  # taken back to the beginning, and so on again
    assert events(tmp_path) == [
        (50, {"loss": 2.5, "learning_rate": np.float32(1e-3), "seconds": 1.0}),
        (60, {"loss/0": 1.5, "loss/2": 2.5, "exact/1": 0.5, "exact/2": 1.0}),
    ]
    assert track(tmp_path, [], LINES).works  # what a run without the library left out
    assert [step for step, _ in events(tmp_path)] == [50, 60, 100, 150]
    shutil.rmtree(tmp_path / "tensorboard")
    track(tmp_path, [], LINES)
    assert [step for step, _ in events(tmp_path)] == [50, 100, 150]


@pytest.fixture
def fake(monkeypatch):
    """A library of the name of wandb that keeps what it is told."""
    told = SimpleNamespace(runs=[], fault=None)

    def log(line, step):
        if told.fault == step:
            raise ConnectionError("no answer\nat all")
        told.runs[-1]["lines"].append((step, line))

    def init(**given):
        if told.fault == "init":
            raise ValueError("api_key not configured")
        told.runs.append(given | {"lines": []})
        return SimpleNamespace(log=log, finish=lambda exit_code: told.runs[-1].update(exit_code=exit_code))

    library = SimpleNamespace(init=init, Settings=lambda **given: given)
    monkeypatch.setitem(sys.modules, "wandb", library)
    return told


def test_wandb_goes_on_with_the_same_run(tmp_path, fake):
    track(tmp_path, LINES[:2], log_to="wandb")
    track(tmp_path, LINES[1:], LINES[:1], log_to="wandb")
    first, second = fake.runs
    assert [step for step, _ in first["lines"] + second["lines"]] == [50, 100, 150]
    assert first["lines"][1][1] == {name: value for name, value in LINES[1].items() if name != "step"}
    assert first["id"] == second["id"] and second["resume"] == "allow" and second["config"] == {"a": 1}
    assert first["dir"] == str(tmp_path) and first["name"] == tmp_path.name and first["exit_code"] == 0


@pytest.mark.parametrize(("fault", "kept", "told"), [("init", [], "api_key not conf"), (100, [50], "(no answer): the")])
def test_a_log_that_fails_says_so_once_and_goes_on_later(tmp_path, fake, capsys, fault, kept, told):
    fake.fault = fault
    track(tmp_path, LINES, log_to="wandb")
    assert [step for run in fake.runs for step, _ in run["lines"]] == kept
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--log_to wandb has failed" in said and told in said
    fake.fault = None
    track(tmp_path, [], LINES, log_to="wandb")
    assert [step for run in fake.runs for step, _ in run["lines"]] == [50, 100, 150]


def test_a_run_is_logged_as_it_is_and_no_fault_of_its_log_stops_it(tmp_path, monkeypatch, capsys):
    writer = pytest.importorskip("tensorboardX.event_file_writer").EventsWriter
    run = tmp_path / "run"
    write = writer.write_event
    faults = [OSError(28, "No space left on device")]

    def full(self, event):
        if event.step == 5 and faults:
            raise faults.pop()
        return write(self, event)

    monkeypatch.setattr(writer, "write_event", full)
    monkeypatch.setattr(train, "finish", lambda *args: fit.fit(*args))  # without the evaluation
    assert cli.main(["train", *TINY, "--log_to", "tensorboard", "--run_dir", str(run)]) == 0
    assert [step for step, _ in events(run)] == [1, 2, 3, 4]
    assert "has failed ([Errno 28] No space left on device): the run continues" in capsys.readouterr().err
    assert cli.main(["resume", str(run), "--step", "2"]) == 0  # steps 3 to 6 are computed again
    assert timeless(events(run)) == timeless(lines(run)) and len(lines(run)) == 6
    assert "validation_loss" in lines(run)[-1][1]


def test_a_missing_library_is_named_before_a_run_begins(tmp_path, monkeypatch, fails):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = '--log_to wandb needs the wandb extra: pip install "apformer[wandb]"'
    fails(said, errors.USAGE, "train", *TINY, "--log_to", "wandb", "--run_dir", tmp_path / "run")
    assert not os.listdir(tmp_path)


def test_wandb_itself_needs_no_network(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="pip install -e '.[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert track(tmp_path, LINES[:2], log_to="wandb").works and track(tmp_path, LINES, log_to="wandb").works
    wandb.teardown()  # its process ends, and all is on the disk
    first, second = (file.read_bytes() for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")))
    assert b"validation_loss" in first and b"validation_loss" not in second and b"learning_rate" in second
