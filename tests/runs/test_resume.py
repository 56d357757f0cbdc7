"""A run that was stopped and resumed ends bit for bit as the run that was not, from whatever step it was saved at."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import pytest

from apformer import cli, files, model
from apformer.commands import resume
from apformer.commands import train as experiment
from apformer.errors import CHECKPOINT, NON_FINITE, USAGE
from apformer.optimizer import Config as Optimizer
from apformer.runs import checkpoint, directory, fit, metrics, restore, selection
from apformer.settings import Settings, Training
from apformer.tasks import settings_file
from apformer.tasks.progressions import Options, training
from tests.helpers.refusals import refused
from tests.helpers.small_models import bits
from tests.helpers.small_runs import ROWS
from tests.runs.test_checkpoint import flip, largest

pytestmark = pytest.mark.long

SETTINGS = Settings(
    "progressions",
    "model",
    Training(steps=28, batch_size=8, log_every=2, save_every=4, keep=10, ema=0.9),
    model.Config(d_model=16, n_layers=2, n_heads=2, position="relative", window=7, dropout=0.1),
    ROWS,
    Options(),
    Optimizer(learning_rate=0.01, warmup_steps=5, weight_decay=0.1),
)


def with_training(**changes):
    return replace(SETTINGS, training=replace(SETTINGS.training, **changes))


@pytest.fixture(autouse=True)
def only_train(monkeypatch):
    """`finish` without the evaluation, and few validation rows; keeps the last state in `only_train`."""
    ended = []
    monkeypatch.setattr(training, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(experiment, "finish", lambda *args: ended.append(fit.fit(*args)))
    return ended


def records(path):
    """The lines of metrics.jsonl without the one field that a clock writes."""
    lines = metrics.read_metrics(path)
    assert all(line.pop("seconds") > 0 for line in lines)
    return lines


def train(settings, path):
    experiment.train(replace(settings, training=replace(settings.training, run_dir=str(path))))
    return path


def go_on(path, *args, **flags):
    resume.resume(resume.Resume(str(path), *args, **flags))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, rows_file):
    """{source: (settings, run directory, final bits)} of uninterrupted runs."""
    found = {}

    def make(source, only_train):
        if source not in found:
            folder = tmp_path_factory.mktemp(source)
            options = Options(dataset=str(rows_file) if source == "file" else None)
            settings = replace(SETTINGS, options=options)
            found[source] = train(settings, folder / "run"), bits(only_train[-1])
        return found[source]

    return make


@pytest.fixture
def copied(whole, only_train, tmp_path):
    """The uninterrupted run on sampled rows: (its directory, final bits, a copy of the directory)."""
    path, end = whole("sampler", only_train)
    return path, end, shutil.copytree(path, tmp_path / "run")


@pytest.fixture
def ends_as_whole(whole, only_train):
    """A function (path): the run there has ended with the bits, lines and steps of the uninterrupted one."""
    original, end = whole("sampler", only_train)

    def check(path):
        assert bits(only_train[-1]) == end and records(path) == records(original)
        assert selection.steps(path / "checkpoints") == selection.steps(original / "checkpoints")

    return check


def damage(path, step):
    flip(largest(path / "checkpoints" / str(step)))


@pytest.mark.parametrize("source", ["sampler", "file"])
def test_every_saved_step_leads_to_the_same_end(source, whole, only_train, tmp_path, monkeypatch):
    path, end = whole(source, only_train)
    saved = selection.steps(path / "checkpoints")
    assert saved == list(range(4, 29, 4)) and len(records(path)) == 14
    monkeypatch.setattr(fit, "Checkpoints", MagicMock())  # to save takes longer than to train
    copy = shutil.copytree(path, tmp_path / "run")
    for step in reversed(saved if source == "sampler" else saved[2:3]):  # what comes after the step is forgotten
        go_on(copy, step)
        assert bits(only_train[-1]) == end, f"from step {step}"
        assert records(copy) == records(path), f"from step {step}"
        assert selection.steps(copy / "checkpoints") == [s for s in saved if s <= step]


def test_a_run_goes_on_from_the_newest_sound_checkpoint_to_the_same_end(copied, ends_as_whole, capsys):
    path, _, copy = copied
    saved = selection.steps(path / "checkpoints")
    damage(copy, saved[-1])
    (copy / "checkpoints" / str(saved[-2]) / selection.FILE).unlink()
    (copy / "checkpoints" / "30.orbax-checkpoint-tmp").mkdir()
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"step": 3')  # torn
    assert cli.main(["resume", str(copy)]) == 0
    said = capsys.readouterr().err
    assert said.count("is damaged") == 2 and f"resumed at step {saved[-3]} of 28" in said
    ends_as_whole(copy)
    assert selection.read_all(copy / "checkpoints") == selection.read_all(path / "checkpoints")
    left = {entry.name for entry in (copy / "checkpoints").iterdir()}
    assert left == {*map(str, saved), f"{saved[-1]}.corrupt", f"{saved[-2]}.corrupt"}


def test_two_stops_change_nothing(ends_as_whole, tmp_path, monkeypatch):
    def stop_at(step):
        """SIGTERM while the chunk that ends at this step runs."""
        steps = fit.run_steps

        def run_steps(state, *args):
            if int(state.step) == step - 2:
                signal.raise_signal(signal.SIGTERM)
            return steps(state, *args)

        monkeypatch.setattr(fit, "run_steps", run_steps)

    stop_at(14)
    with pytest.raises(SystemExit) as stopped:
        train(SETTINGS, tmp_path / "run")
    assert stopped.value.code == 143
    assert selection.steps(tmp_path / "run" / "checkpoints") == [4, 8, 12, 14]
    stop_at(26)
    with pytest.raises(SystemExit):
        go_on(tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    assert selection.steps(folder) == [4, 8, 12, 16, 20, 24, 26]
    assert selection.best(selection.read_all(folder)) != 26  # what is saved at a stop does not compete for the best
    go_on(tmp_path / "run")
    ends_as_whole(tmp_path / "run")


def test_no_checkpoint_outlives_its_line_of_metrics(only_train, tmp_path, monkeypatch):
    """Of a file, the disk holds after a loss of power what was there at its last fsync."""
    on_disk = {}
    fsync = files.fsync
    save = checkpoint.Checkpoints.save

    def keep(file):
        fsync(file)
        on_disk[Path(file).name] = Path(file).read_bytes() if Path(file).is_file() else b""

    def check(self, step, *args, **options):
        assert json.loads(on_disk["metrics.jsonl"].splitlines()[-1])["step"] == step
        return save(self, step, *args, **options)

    monkeypatch.setattr(files, "fsync", keep)
    monkeypatch.setattr(checkpoint.Checkpoints, "save", check)
    train(with_training(save_every=12), tmp_path / "run")
    assert selection.steps(tmp_path / "run" / "checkpoints") == [12, 24, 28]


def test_a_stop_while_a_proof_is_asked_for_leaves_the_run_to_be_resumed(only_train, tmp_path, monkeypatch):
    def proven(step):
        if not asked:
            signal.raise_signal(signal.SIGTERM)
        asked.append(step)
        return False

    asked = []
    monkeypatch.setattr(experiment, "finish", lambda *args: only_train.append(fit.fit(*args, proven)))
    with pytest.raises(SystemExit) as stopped:
        train(SETTINGS, tmp_path / "run")
    assert stopped.value.code == 143 and asked == [4] == selection.steps(tmp_path / "run" / "checkpoints")
    go_on(tmp_path / "run")
    assert asked == [4, *range(4, 29, 4)] and int(only_train[-1].step) == 28


def test_numbers_that_are_not_finite_end_the_run_and_spare_its_checkpoints(copied):
    path, _, copy = copied
    abstract = fit.abstract_state(SETTINGS)
    _, state = checkpoint.load(copy / "checkpoints", abstract, 12)
    directory.forget_after(copy, 12)
    state = state._replace(hyper=state.hyper | {"learning_rate": jnp.float32(1e38)})
    with refused(NON_FINITE, "the loss is not finite at step 14: lower --learning_rate"):
        fit.fit(copy, SETTINGS, None, state)
    assert selection.steps(copy / "checkpoints") == [4, 8, 12]
    assert checkpoint.load(copy / "checkpoints", abstract)[0] == 12
    assert records(copy) == records(path)[:6]


def test_one_call_starts_a_run_and_goes_on_with_it(ends_as_whole, tmp_path, capsys):
    same = with_training(run_dir=str(tmp_path / "run"))
    assert experiment.train_or_resume(same) == tmp_path / "run"
    ends_as_whole(tmp_path / "run")
    assert "resumed" not in capsys.readouterr().err
    for step in (20, 8):  # as a disconnect leaves it
        directory.forget_after(tmp_path / "run", step)
        experiment.train_or_resume(same)
        assert f"resumed at step {step} of 28" in capsys.readouterr().err
        ends_as_whole(tmp_path / "run")
    experiment.train_or_resume(same)  # a run that is done
    ends_as_whole(tmp_path / "run")


def test_a_run_stopped_before_its_first_checkpoint_begins_anew(copied, ends_as_whole, capsys):
    *_, copy = copied
    shutil.rmtree(copy / "checkpoints")
    experiment.train_or_resume(with_training(run_dir=str(copy)))
    ends_as_whole(copy)
    shutil.rmtree(copy / "checkpoints")
    (copy / "checkpoints" / "4.tmp").mkdir(parents=True)  # the first save was interrupted
    assert cli.main(["resume", str(copy)]) == 0
    assert "stopped before its first checkpoint: it begins anew\n" in capsys.readouterr().err
    ends_as_whole(copy)


def test_a_run_is_trained_further(copied, only_train, tmp_path):
    path, _, copy = copied
    with refused(USAGE, "--steps 28 is out of range: give 29 to"):
        go_on(copy, steps=28)
    go_on(copy, steps=32)
    assert int(only_train[-1].step) == 32 == settings_file.read(copy).training.steps
    assert [line["step"] for line in records(copy)] == [*range(2, 33, 2)] and records(copy)[:14] == records(path)
    odd = train(with_training(steps=5), tmp_path / "odd")
    go_on(odd, steps=9)
    assert [line["step"] for line in records(odd)] == [2, 4, 5, 6, 8, 9]
    assert metrics.first_lost(records(odd), 2, 9) is None


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(copied):
    *_, copy = copied
    lines = records(copy)
    for step in selection.steps(copy / "checkpoints"):
        damage(copy, step)
    for _ in range(2):
        with refused(CHECKPOINT, "holds no valid checkpoint: restore one from a copy"):
            go_on(copy)
        assert records(copy) == lines


def test_what_was_found_of_a_checkpoint_that_is_gone_goes_with_it(copied, monkeypatch, capsys):
    *_, copy = copied
    monkeypatch.setattr(experiment, "finish", lambda *_: None)
    files.write_json(copy / "evaluation.json", {"step": 28})
    files.write_json(copy / "certificate.json", {"step": 24})
    shutil.rmtree(copy / "checkpoints" / "28")
    go_on(copy)
    assert "resumed at step 24 of 28" in capsys.readouterr().err
    assert not (copy / "evaluation.json").exists() and files.read_json(copy / "certificate.json") == {"step": 24}
    (copy / "certificate.json").write_text("{torn")
    go_on(copy)
    assert not (copy / "certificate.json").exists()


def test_the_others_end_with_the_bits_that_they_have_without_the_one_that_diverges(only_train, tmp_path):
    cfg, ends = with_training(members=3, save_every=12, member_mode="vmap"), []
    for name, rate in (("sound", 0.02), ("diverged", 1e38)):
        (tmp_path / name).mkdir()
        files.write_json(tmp_path / name / "config.json", {})
        state, rates = fit.initial_state(cfg), jnp.float32([0.01, rate, 0.005])
        state = fit.fit(tmp_path / name, cfg, None, state._replace(hyper=state.hyper | {"learning_rate": rates}))
        ends.append([bits(jax.tree.map(lambda leaf, k=k: leaf[k], state)) for k in range(3)])
    assert ends[0][0] == ends[1][0] and ends[0][2] == ends[1][2] and ends[0][1] != ends[1][1]
    sound, spoilt = (records(tmp_path / name) for name in ("sound", "diverged"))
    for ours, theirs in zip(sound, spoilt, strict=True):
        assert [ours["loss"][k] for k in (0, 2)] == [theirs["loss"][k] for k in (0, 2)]
    assert metrics.diverged(sound) == []
    first = next(line["step"] for line in spoilt if line["loss"][1] is None)
    assert metrics.diverged(spoilt) == [{"member": 1, "step": first}]
    with refused(NON_FINITE, "--member 1 of .*diverged is not finite at step"):
        restore.load_params(tmp_path / "diverged", cfg, 1)


def test_a_member_has_diverged_that_is_not_finite_from_a_step_on():
    losses = {2: [None, 1.0, 1.0], 4: [1.0, None, 1.0], 6: [1.0, None, None], 8: [1.0, None, 2.0]}
    found = metrics.diverged([{"step": step, "loss": loss} for step, loss in losses.items()])
    assert found == [{"member": 1, "step": 4}]
    assert metrics.diverged([{"step": 2, "loss": None}]) == []
    last = {"step": 8, "loss": [1.0, 1.0], "validation_loss": [None, 1.0]}
    assert metrics.diverged([last]) == [{"member": 0, "step": 8}]


def test_a_run_of_other_settings_is_not_gone_on_with(whole, only_train):
    path, _ = whole("sampler", only_train)
    before = records(path)
    with refused(USAGE, "holds a run of other settings.*give another --run_dir"):
        experiment.train_or_resume(with_training(run_dir=str(path), seed=1))
    assert records(path) == before


@pytest.mark.parametrize("lost", (slice(5, 6), slice(0, None)))
def test_lines_of_metrics_that_a_disk_has_lost_are_missed(copied, only_train, capsys, lost):
    path, end, copy = copied
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    first = 2 * (1 + lost.start)
    del lines[lost]
    (copy / "metrics.jsonl").write_text("".join(lines))
    if not lines:
        (copy / "metrics.jsonl").unlink()
    go_on(copy)
    remedy = "restore it from a copy" if first == 2 else f"`apformer resume {copy} --step"  # where one was saved before
    assert f"metrics.jsonl has lost lines, the first of step {first}: {remedy}" in capsys.readouterr().err
    assert bits(only_train[-1]) == end
    go_on(copy, 4)
    after = [record for record in records(copy) if record["step"] > 4]
    assert after == records(path)[2:]
