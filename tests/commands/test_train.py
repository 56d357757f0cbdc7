"""The best checkpoint of a run is measured on rows it has never seen, and its files say so."""

from functools import partial

import jax
import numpy as np
import pytest

from apformer import cli, model
from apformer import files as file_io
from apformer.commands import evaluate
from apformer.commands import train as experiment
from apformer.errors import CHECKPOINT, DISK, USAGE, UserError
from apformer.runs import checkpoint, fit, recipes, restore, selection
from apformer.runs import metrics as log
from apformer.settings import with_part
from apformer.tasks import settings_file
from apformer.tasks.progressions import training as task
from tests.helpers.refusals import refused
from tests.helpers.small_runs import on_rows

pytestmark = pytest.mark.long

MODEL = model.Config(d_model=16, n_layers=2, n_heads=2, position="relative", window=7, dropout=0.1)
settings = partial(on_rows, MODEL)


def make_run(path, settings, scores, validation=None):
    """A run directory as training would leave it: an untrained state saved at a step for each of the scores."""
    rows = task.load(settings)[1]
    config = settings_file.to_dict(settings) | {"data": task.describe(settings, rows)}
    path.mkdir()
    file_io.write_json(path / "config.json", config)
    state = fit.initial_state(settings)
    with checkpoint.Checkpoints(path / "checkpoints") as checkpoints:
        for step, score in scores.items():
            checkpoints.save(step, state, () if score is None else score)
            record = {"step": step, "loss": [1.0, 2.0][: settings.training.members], "exact": [0.0, 0.0]}
            file_io.append_record(path / "metrics.jsonl", record | (validation or {}))
    return path


def test_the_best_has_the_fewest_wrong_terms_and_between_equals_the_least_loss():
    pairs = ((1.0, 0.4), (1.0, 0.9), (0.999, 0.1))
    ordered = [selection.score({"validation_exact": exact, "validation_loss": loss}) for exact, loss in pairs]
    assert ordered == sorted(ordered) and len(set(ordered)) == 3
    assert selection.score({"validation_loss": 0.4}) < selection.score({"validation_loss": 0.9})


def test_evaluation_on_a_file_has_no_floor(rows_file, tmp_path, without_figures):
    path = make_run(tmp_path / "run", settings(dataset=str(rows_file)), {2: 1.0})
    result = evaluate.evaluate_run(path, restore.load_settings(path), restore.load_rows(path)).result
    assert not {"bayes_floor", "excess", "bayes_nats_per_char"} & set(result)
    assert result["step"] == 2 and 0 < result["sequences"] <= 40 and result["nats_per_char"] > 1


def test_a_run_that_may_not_be_written_is_measured_and_printed(rows_file, tmp_path, monkeypatch, capsys):
    path = make_run(tmp_path / "run", settings(dataset=str(rows_file)), {2: 1.0})
    (path / "evaluation.json").mkdir()  # so that it cannot be replaced
    before = sorted(path.rglob("*"))
    assert cli.main(["evaluate", str(path)]) == DISK
    monkeypatch.setattr(evaluate.os, "access", lambda *_: False)  # root may write anywhere
    assert cli.main(["evaluate", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.count("held-out progressions") == 2 and "run cannot be written: the result" in err
    assert sorted(path.rglob("*")) == before


def test_the_best_checkpoint_is_measured_and_the_newest_where_none_has_a_score(tmp_path):
    path = make_run(tmp_path / "run", settings(), {2: 3.0, 4: 1.0, 6: 2.0})
    assert restore.load_params(path, settings())[1:] == (4, 0)
    assert restore.load_params(path, settings(), step=6)[1:] == (6, 0)
    path = make_run(tmp_path / "stopped", settings(), {2: None, 4: None})
    assert restore.load_params(path, settings())[1:] == (4, 0)


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    path = make_run(tmp_path / "run", settings(), {2: 1.0})
    read = checkpoint._read

    def late(folder, *args):
        """Remove it, and put a later step there, as the process that trains does meanwhile."""
        monkeypatch.setattr(checkpoint, "_read", read)
        with checkpoint.Checkpoints(folder.parent) as checkpoints:
            checkpoints.save(4, fit.initial_state(settings()))
        selection.remove(folder.parent, int(folder.name))
        return read(folder, *args)

    monkeypatch.setattr(checkpoint, "_read", late)
    assert restore.load_params(path, settings())[1:] == (4, 0)
    assert "damaged" not in capsys.readouterr().err


def test_the_member_is_the_one_asked_for_or_the_best_on_validation(tmp_path):
    pair = settings(members=2)
    path = make_run(tmp_path / "run", pair, {2: [0.5, 0.25]})
    (path / "metrics.jsonl").write_text('{"torn')  # which member is the best is told by its checkpoint
    states = fit.initial_state(pair).params
    for asked, member in ((None, 1), (0, 0), (1, 1)):
        params, step, found = restore.load_params(path, pair, asked)
        assert (step, found) == (2, member)
        jax.tree.map(lambda ours, all, k=member: np.testing.assert_array_equal(ours, all[k]), params, states)
    with refused(USAGE, "--member 3 is out of range: .* has members 0 to 1"):
        restore.load_params(path, pair, 3)
    path = make_run(tmp_path / "unscored", pair, {2: None})
    with refused(CHECKPOINT, "not say which member is the best at step 2: .*--member 0 to 1"):
        restore.load_params(path, pair)
    assert restore.load_params(path, pair, 1)[2] == 1


def test_training_and_evaluation_of_a_population_end_with_the_same_table_of_all_members(
    tmp_path, capsys, says, without_pictures
):
    path = make_run(tmp_path / "run", settings(members=2, steps=2, log_every=2, save_every=2), {2: [0.5, 0.25]})
    experiment.go_on(path)  # which was stopped between its last step and its evaluation
    told, written = capsys.readouterr().out, file_io.read_json(path / "evaluation.json")
    assert [each["member"] for each in written["members"]] == [0, 1] and written["member"] == 1
    table = says("evaluate", path)
    assert "\nmean ± sd " in table and told.startswith(table)
    assert "±" not in says("evaluate", path, "--member", 0)


def test_the_average_is_of_one_member_and_of_checkpoints_on_schedule(tmp_path):
    pair = settings(members=2, average=2)
    scores = {2: [0.0, 9.0], 4: [3.0, 4.0], 6: [6.0, 5.0]}  # the best member is not the same at each step
    (tmp_path / "config.json").write_text("{}")
    with checkpoint.Checkpoints(tmp_path / "checkpoints") as checkpoints:
        for step, found in scores.items():
            checkpoints.save(step, state_of(pair, step), found)
        checkpoints.save(7, state_of(pair, 7), [0.0, 0.0], temporary=True)
    for asked, member in ((None, 1), (0, 0)):
        params, step, found = restore.load_params(tmp_path, pair, asked)
        assert (step, found) == (6, member)
        parts = [jax.tree.map(lambda leaf, k=member: leaf[k], state_of(pair, step).params) for step in (4, 6)]
        jax.tree.map(lambda ours, a, b: np.testing.assert_array_equal(ours, (a + b) / 2), params, *parts)


def state_of(settings, seed):
    return fit.initial_state(with_part(settings, "training", seed=seed))


def test_members_that_are_not_finite_are_named_once_and_the_last_of_them_ends_the_run(tmp_path, capsys):
    with log.Log(tmp_path / "metrics.jsonl", settings(members=3), 0, [1e-3, 1e-2, 1e-1]) as lines:
        for step, spoilt in ((2, [1]), (4, [1, 2]), (6, [0, 1, 2])):
            loss = np.ones((3, 2))
            loss[spoilt, 1] = np.nan
            lines.pending = step, {"loss": loss, "exact": np.full((3, 2), 0.5)}, None
            if step < 6:
                lines.flush()
        with pytest.raises(UserError, match="^every member's loss is not finite at step 6: lower --learning_rate"):
            lines.flush()
    assert [line.partition(" is not finite")[0] for line in capsys.readouterr().err.splitlines()] == [
        "step 2: the loss of member 1",
        "step 4: the loss of member 2",
    ]
    first, second = log.read_metrics(tmp_path)
    assert first["loss"] == [1.0, None, 1.0] and second["exact"] == [0.5, None, None]
    assert np.array(first["learning_rate"]) / first["learning_rate"][0] == pytest.approx([1, 10, 100])


def test_the_score_of_a_population_is_that_of_its_finite_members():
    assert log.finite_mean([0.5, np.nan, np.inf, 0.25]) == 0.375 and log.finite_mean([np.nan]) == np.inf
    record = {"validation_loss": [1.0, None], "validation_exact": [1.0, None]}
    np.testing.assert_array_equal(selection.score(record), [1e-4, np.nan])


def test_a_line_of_metrics_holds_means_over_its_steps(tmp_path):
    run = settings(log_every=2, steps=100)
    with log.Log(tmp_path / "metrics.jsonl", run, 0, run.optimizer.learning_rate) as lines:
        lines.flush()  # nothing held
        metrics = {"loss": np.array([1.0, 3.0], np.float32), "exact": np.array([0.0, 1.0], np.float32)}
        lines.pending = 2, metrics, None
        lines.flush()
        lines.flush()
    (record,) = log.read_metrics(tmp_path)
    rate = run.optimizer.learning_rate * 2 / run.optimizer.warmup_steps
    assert record.pop("seconds") >= 0 and record.pop("learning_rate") == pytest.approx(rate)
    assert record == {"step": 2, "loss": 2.0, "exact": 0.5}


def test_a_model_larger_than_any_memory_is_refused_by_its_size(tmp_path):
    vast = recipes.parse(["--d_model", "1000000000", "--run_dir", str(tmp_path / "run")])
    with refused(USAGE, r"take \d{1,3}(,\d{3}){4,} MB, .*: give smaller sizes, such as --d_model"):
        experiment.train(vast)
