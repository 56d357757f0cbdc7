"""`experiments/studies/`: rows and sizes are what a study says; what is found is kept, and ends as a record has it."""

import importlib
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import errors, flags, model
from apformer.decoding.bind import bind
from apformer.runs import directory
from apformer.sweep import grid
from apformer.tokenizers.digits import decode, encode
from tests.helpers.small_models import AHEAD

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "experiments" / "studies"
sys.path.insert(0, str(FOLDER))
_study, memory, parallel, parts = map(importlib.import_module, ("_study", "memory", "parallel", "parts"))
long_terms, many_terms = map(importlib.import_module, ("long_terms", "many_terms"))
sys.path.pop(0)


def main(monkeypatch, script, config, *args):
    """The exit code of a script."""
    monkeypatch.setattr("sys.argv", [f"{script.__name__}.py", *map(str, args)])
    return flags.script(f"{script.__name__}.py", config, script.run)


def left(path, name):
    """(numbers, table) that a study leaves, beside its figure."""
    assert (path / "figures" / f"{name}.png").stat().st_size > 5000
    table = json.loads((path / "table.json").read_text())
    assert len({len(row) for row in table}) == 1
    return json.loads((path / "evaluation.json").read_text()), table


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


def weights(module, cfg):
    """Numbers in the matrices of the layers, without embedding and head."""
    shapes = jax.eval_shape(lambda key: module.init(key, cfg), jax.random.key(0))
    layers = shapes["blocks" if "blocks" in shapes else "cells"]
    leaves = jax.tree_util.tree_leaves_with_path(layers)
    return sum(leaf.size for path, leaf in leaves if path[-1].key in ("query", "key", "value", "output", "weight"))


@pytest.mark.parametrize("name", memory.MODELS)
def test_models_that_remember_have_as_many_weights(name):
    assert weights(*memory.architecture(name, memory.Memory())) == pytest.approx(8 * 32**2, rel=0.01)


@pytest.mark.parametrize("name", parallel.MODELS)
def test_models_that_are_timed_have_as_many_weights(name):
    assert weights(*parallel.architecture(name, 128, 64)) == 24 * 128**2


def test_a_model_is_trained_and_measured_at_every_distance_until_it_is_hopeless():
    args, said = memory.Memory(distances=(2, 3), d_model=4, steps=2, chunk=1, batch_size=2, members=2), []
    first, second = memory.learn("RNN", "recall", args, said.append)
    assert first["steps"] == 2 and len(first["exact"]) == 2 and len(said) == 2 + second["steps"]
    assert second["steps"] == (2 if max(first["exact"]) >= 1.5 * memory.CHANCE else 0)


def test_what_was_found_is_kept_and_not_looked_for_again(tmp_path, monkeypatch, capsys):
    asked, stops = [], iter([KeyboardInterrupt])

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
    assert "is of other flags: give another --run_dir" in capsys.readouterr().err


def test_a_crossing_lies_where_the_ratio_of_times_is_1():
    assert parallel.crossings((2, 8), (0.5, 2.0)) == [(4.0, "slower")]
    assert parallel.crossings((2, 8, 32), (2.0, 0.5, 0.25)) == [(4.0, "faster")]
    assert parallel.crossings((2, 8), (0.5, 0.9)) == []


def test_times_of_all_lengths_end_as_a_table_and_a_figure(tmp_path, monkeypatch):
    def measure(n, args, tick):
        return {kind: {"LSTM": [0.1, 0.2], "GRU": [0.4, 0.2], "attention": [n / 640, 0.1]} for kind in parallel.WORK}

    monkeypatch.setattr(parallel, "measure", measure)
    assert main(monkeypatch, parallel, parallel.Parallel, "--lengths", 32, 128, "--run_dir", tmp_path / "run") == 0
    numbers, table = left(tmp_path / "run", "parallel")
    assert numbers["train_lstm_32"] == 0.5 and numbers["train_lstm_slower_from"] == pytest.approx(64)
    assert numbers["generate_lstm_processor_128"] == 0.5 and "train_gru_slower_from" not in numbers
    assert table[1] == ["a training step", "32", "100 (200)", "400 (200)", "50 (100)", "0.50", "0.12"]


def test_a_length_without_room_for_a_prompt_is_refused(tmp_path, monkeypatch, capsys):
    assert main(monkeypatch, parallel, parallel.Parallel, "--lengths", 8, "--run_dir", tmp_path) == errors.USAGE
    assert "--lengths (8,) is out of range: give at least 32, twice --tokens" in capsys.readouterr().err


def test_work_is_done_for_every_kind():
    args = parallel.Parallel(lengths=(4,), d_model=4, batch_size=2, tokens=2)
    doing = parallel.work("GRU", 4, args)
    assert {*doing} == {*parallel.WORK}
    wall, processor = parallel.timed(doing["generate"])
    assert 0 < wall < 60 and 0 <= processor < 60


def test_a_part_changes_what_it_names_and_nothing_else(tmp_path):
    words = parts.words(parts.Parts(digits=2, members=3), tmp_path / "sweep")
    found = grid.read(words)
    found.pop("run_dir")
    whole, *others = [program.joint for program in grid.programs(found)]
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


def test_parts_are_drawn_and_tabled_also_where_a_loss_was_not_finite(tmp_path, monkeypatch):
    names = iter(parts.PARTS.values())

    def record(flag, member):
        share = {"teacher_forced": 1.0, "free_running": (member + 1) / 4}
        failed = flag == "none --no_final_norm"
        facts = {"combination": {"norm": flag}, "folder": "01", "member": member, "parameters": 1234, "failed": failed}
        return facts | {"suites": {} if failed else dict.fromkeys(parts.SUITES, share)}

    def sweep(words):
        folder = Path(words[-1])
        (folder / "01").mkdir(parents=True)
        (folder / "01" / "metrics.jsonl").write_text('{"step": 50, "exact": [0.25, 0.5], "seconds": 1.0}\n')
        members = [record(flag, member) for flag in names for member in (0, 1)]
        (folder / "sweep.json").write_text(json.dumps({"members": members}))
        raise errors.UserError("a loss was not finite", errors.NON_FINITE)

    monkeypatch.setattr(parts.sweep, "sweep", sweep)
    assert main(monkeypatch, parts, parts.Parts, "--members", 2, "--run_dir", tmp_path / "run") == 0
    numbers, table = left(tmp_path / "run", "parts")
    assert (numbers["no_residuals_least"], numbers["no_residuals_median"]) == (0.25, 0.375)
    assert "no_norm_least" not in numbers and table[3] == ["no norm", "1,234", "-", "-", "2"]
    assert table[1] == ["whole model", "1,234", *["37.5 (25.0 to 50.0)"] * 2, "0"]


def test_chunks_that_do_not_divide_the_steps_are_refused(monkeypatch, capsys, tmp_path):
    words = ("--steps", 30, "--chunk", 25, "--run_dir", tmp_path / "run")
    assert main(monkeypatch, memory, memory.Memory, *words) == errors.USAGE
    assert "--chunk 25 is out of range: give a divisor of --steps 30" in capsys.readouterr().err


def test_a_study_is_not_the_latest_run_and_goes_on_with_the_run_it_began_with(monkeypatch, tmp_path):
    """Without a run it asks the latest. When a newer one has come, the same flags are of another run."""
    monkeypatch.chdir(tmp_path)
    first, second = (directory.create("exact") for _ in range(2))
    assert (tmp_path / "runs" / "latest").readlink() == Path(second.name)
    latest = [first]
    monkeypatch.setattr(long_terms.runs, "load", lambda path, member: SimpleNamespace(path=Path(path or latest[-1])))
    monkeypatch.setattr(long_terms, "measure", lambda *_: {"characters": 4, "wrong": 0, "seconds": 0.5})
    assert main(monkeypatch, long_terms, long_terms.LongTerms, "--digits", 3) == 0
    assert (tmp_path / "runs" / "latest").readlink() == Path(second.name)
    (study,) = (tmp_path / "runs").glob("*-long_terms")
    assert json.loads((study / "study.json").read_text())["flags"]["run"] == str(first)
    assert main(monkeypatch, long_terms, long_terms.LongTerms, "--digits", 3, "--run_dir", study) == 0
    latest.append(second)
    assert main(monkeypatch, long_terms, long_terms.LongTerms, "--digits", 3, "--run_dir", study) == errors.USAGE
    assert main(monkeypatch, long_terms, long_terms.LongTerms, first, "--digits", 3, "--run_dir", study) == 0


def test_progressions_of_very_long_terms_fit_and_carry():
    for kind in long_terms.KINDS:
        for digits in (2, 9, 300):
            first, difference = long_terms.progression(kind, digits, 2)
            assert 0 <= min(first, first + 3 * difference) <= max(first, first + 3 * difference) < 10**digits
    assert [sum(long_terms.progression(kind, 5, 2)) for kind in ("carry", "borrow")] == [9999, 10000]


@pytest.fixture
def small_passes(monkeypatch):
    """Four rows of terms of two digits a pass: all shapes below are alike, and compiled once."""
    monkeypatch.setattr(many_terms, "TOKENS", 4 * 4 * 3)


def test_a_row_is_right_in_one_pass_if_and_only_if_it_is_written_so(random_params):
    """Rows that a model wrote itself, and the same with one character changed that it did not choose."""
    bound, given = bind(model, random_params(AHEAD), AHEAD), 5
    rows_BT = np.stack([encode(text + " 00 00") for text in ("27 81", "31 41", "16 61", "00 99")])
    for place in range(given, 11):  # by passes over a row, not by `generate`
        rows_BT[:, place] = jnp.argmax(jax.jit(bound.apply)(rows_BT)[:, place - 1], axis=-1)
    for b, place in ((1, 5), (3, 8)):
        rows_BT[b, place] = (rows_BT[b, place] + 1) % 11
    right_BT = np.asarray(many_terms.read(bound, rows_BT, given) > 0)
    written_BT = np.asarray(many_terms.write(bound, rows_BT, given))
    for found_BT in (right_BT, written_BT):
        assert found_BT.all(1).tolist() == [True, False, True, False]
        assert np.argmin(found_BT, axis=1)[[1, 3]].tolist() == [0, 3]  # the first wrong place


def test_the_rows_of_many_terms_are_as_many_as_asked_and_continue(small_passes):
    for kind in many_terms.KINDS:
        rows = [decode(row_T).split() for batch in many_terms.drawn(kind, 2, 6, "msb") for row_T in np.asarray(batch)]
        assert len(rows) == 6 and all(len({int(b) - int(a) for a, b in pairwise(row)}) == 1 for row in rows)
        assert len({*map(tuple, rows)}) > 3


def test_terms_of_a_model_that_knows_nothing_are_counted_as_wrong(
    small_passes, random_params, monkeypatch, tmp_path, capsys
):
    settings = SimpleNamespace(data=SimpleNamespace(order="msb"))
    loaded = SimpleNamespace(model=bind(model, random_params(AHEAD), AHEAD), settings=settings)
    monkeypatch.setattr(many_terms.runs, "load", lambda path: loaded)
    args = ("a/the one", "b/two", "--digits", 2, "--terms", 8, "--written", 4, "--run_dir", tmp_path / "run")
    assert main(monkeypatch, many_terms, many_terms.ManyTerms, *args) == 0
    numbers, table = left(tmp_path / "run", "many_terms")
    assert (numbers["terms"], numbers["runs"], numbers["written"]) == (48, 2, 24)
    assert numbers["written_wrong"] == 24 and numbers["wrong"] > 40 and numbers["least_margin"] < 0
    assert table[1][:4] == ["the one", "2", "random", "8"] and [row[0] for row in table[1:]] == 3 * ["the one"] + 3 * [
        "two"
    ]
    assert main(monkeypatch, many_terms, many_terms.ManyTerms, "a/one", "b/one") == errors.USAGE
    assert "each of another name" in capsys.readouterr().err
