"""`experiments/studies/`: rows and sizes are what a study says; what is found is kept, and ends as a record has it."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import errors
from apformer.commands import sweep
from tests.helpers import scripts
from tests.helpers.scripts import left, main

pytestmark = pytest.mark.long

memory, parallel, parts = scripts.load("memory", "parallel", "parts")


def test_recall_asks_for_the_first_digit_and_copy_for_all():
    key = jax.random.key(3)
    recall, copy = memory.recall(key, 2, 3), memory.copy(key, 2, 3)
    digits_BT = np.asarray(copy.tokens_BT)[:, :3]
    assert digits_BT.max() < 10 and len({*digits_BT.flat}) > 2
    for row, digits in enumerate(digits_BT.tolist()):
        assert np.asarray(recall.tokens_BT)[row].tolist() == [*digits, 10, digits[0]]
        assert np.asarray(copy.tokens_BT)[row].tolist() == [*digits, 10, *digits]
    assert np.asarray(recall.weights_BT).tolist() == [[0, 0, 0, 0, 1]] * 2
    assert np.asarray(copy.weights_BT).tolist() == [[0, 0, 0, 0, 1, 1, 1]] * 2


def test_a_model_is_trained_and_measured_at_every_distance_until_it_is_hopeless():
    args = memory.Memory(distances=(2, 3), d_model=4, steps=2, chunk=1, batch_size=2, members=2)
    said = []
    first, second = memory.learn("RNN", "recall", args, said.append)
    assert first["steps"] == 2 and len(first["exact"]) == 2 and len(said) == 2 + second["steps"]
    assert second["steps"] == (2 if max(first["exact"]) >= 1.5 * memory.CHANCE else 0)


def test_what_was_found_is_kept_and_not_looked_for_again(tmp_path, monkeypatch, capsys):
    asked = []
    stops = iter([KeyboardInterrupt])

    def learn(name, task, args, tick):
        if (task, name) == ("copy", "LSTM") and (stop := next(stops, None)):
            raise stop
        asked.append((task, name))
        return [{"steps": 5, "exact": [0.5, 1.0]}, {"steps": 0, "exact": [0.1, 0.2]}]

    monkeypatch.setattr(memory, "learn", learn)
    small = ("--distances", 4, 8, "--members", 2, "--run_dir", tmp_path / "run")
    assert main(monkeypatch, memory, memory.Memory, *small) == 130
    assert main(monkeypatch, memory, memory.Memory, *small) == 0
    assert asked == [(task, name) for task in memory.TASKS for name in memory.MODELS]
    numbers, table = left(tmp_path / "run", "memory")
    assert numbers["copy_lstm_4"] == 0.75 and numbers["copy_lstm_holds"] == 0
    assert table[1] == ["recall", "RNN", "75.0 (50.0 to 100.0), 5 steps", "15.0 (10.0 to 20.0), 0 steps"]
    assert "75.0 (50.0 to 100.0)" in capsys.readouterr().out
    other = [*small[:4], 3, *small[5:]]
    assert main(monkeypatch, memory, memory.Memory, *other) == errors.USAGE
    assert "was begun with other flags: give another --run_dir" in capsys.readouterr().err


def test_times_of_all_lengths_end_as_a_table_and_a_figure(tmp_path, monkeypatch):
    def measure(n, args, tick):
        return {kind: {"LSTM": [0.1, 0.2], "GRU": [0.4, 0.2], "attention": [n / 640, 0.1]} for kind in parallel.WORK}

    monkeypatch.setattr(parallel, "measure", measure)
    assert main(monkeypatch, parallel, parallel.Parallel, "--lengths", 32, 128, "--run_dir", tmp_path / "run") == 0
    numbers, table = left(tmp_path / "run", "parallel")
    assert numbers["train_lstm_32"] == 0.5 and numbers["train_lstm_slower_from"] == pytest.approx(64)
    assert numbers["generate_lstm_processor_128"] == 0.5 and "train_gru_slower_from" not in numbers
    assert table[1] == ["a training step", "32", "100 (200)", "400 (200)", "50 (100)", "0.50", "0.12"]


def test_work_is_done_for_every_kind():
    args = parallel.Parallel(lengths=(4,), d_model=4, batch_size=2, tokens=2)
    doing = parallel.work("GRU", 4, args)
    assert {*doing} == {*parallel.WORK}
    wall, processor = parallel.time_call(doing["generate"])
    assert 0 < wall < 60 and 0 <= processor < 60


def test_a_part_changes_what_it_names_and_nothing_else(tmp_path):
    words = parts.words(parts.Parts(digits=2, members=3), tmp_path / "sweep")
    found = sweep.read(words)
    assert "no_certify" in found and not found.pop("no_certify")
    found.pop("run_dir")
    whole, *others = [program.joint for program in sweep.programs(found)]
    assert whole.training.members == 3 and whole.data.digits == 2 and len(others) == len(parts.PARTS) - 1
    changed = [
        {"norm": "rms"},
        {"norm": "none", "final_norm": False},
        {"feedforward": False},
        {"residual": False},
        {"position": "none", "position_options": None},
        {"attention_dropout": 0.1},
        {"dropout": 0.1},
    ]
    for other, change in zip(others, changed, strict=True):
        assert other == replace(whole, model=replace(whole.model, **change)), change


@pytest.mark.parametrize(
    ("script", "config", "flags", "sentence"),
    [
        (memory, memory.Memory, "--steps 30 --chunk 25", "--chunk 25 is out of range: give a divisor of --steps 30"),
        (parallel, parallel.Parallel, "--lengths 8", "--lengths (8,) is out of range: give at least 32, twice --tok"),
    ],
)
def test_flags_out_of_range_are_refused(script, config, flags, sentence, monkeypatch, capsys, tmp_path):
    assert main(monkeypatch, script, config, *flags.split(), "--run_dir", tmp_path / "run") == errors.USAGE
    assert sentence in capsys.readouterr().err
