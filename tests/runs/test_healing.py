"""A damaged checkpoint is computed again by `resume`, bit for bit, and nothing else of the run changes."""

import dataclasses
import shutil
import signal
from functools import cache

import jax
import numpy as np
import pytest

from apformer import cli
from apformer.commands import train as experiment
from apformer.formats import arrays
from apformer.runs import checkpoint, fit, healing, manifest, restore, selection
from apformer.tasks.progressions import training
from tests.helpers.small_models import circuit_run
from tests.runs import test_resume

pytestmark = pytest.mark.long

SETTINGS = dataclasses.replace(
    test_resume.SETTINGS, training=dataclasses.replace(test_resume.SETTINGS.training, keep=3)
)


@pytest.fixture(autouse=True)
def only_train(monkeypatch):
    """`finish` without the evaluation, few validation rows, and the largest loss as the best, which is the first."""
    for module in (fit, healing):
        monkeypatch.setattr(module, "score", lambda found: -np.asarray(found["loss"], np.float64))
    monkeypatch.setattr(training, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(experiment, "finish", lambda *args: fit.fit(*args))


def train(path, **changes):
    changed = dataclasses.replace(SETTINGS.training, run_dir=str(path), **changes)
    experiment.train(dataclasses.replace(SETTINGS, training=changed))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of the run that tests copy and damage: trained by the first of them, under its `only_train`."""
    return cache(lambda: train(tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture
def whole(trained, tmp_path):
    """A finished run that holds the steps 4 (the best), 20, 24 and 28."""
    path = shutil.copytree(trained(), tmp_path / "run")
    assert selection.steps(path / "checkpoints") == [4, 20, 24, 28] and selection.best(path / "checkpoints") == 4
    return path


def facts(path):
    """What the manifests of a run say, but for the files, to which orbax gives random names."""
    folder = path / "checkpoints"
    found = {step: selection.facts_of(folder / str(step), manifest.verify) for step in selection.steps(folder)}
    return {step: {k: v for k, v in fact.items() if k != "files"} for step, fact in found.items()}


def damage(path, step):
    """One bit of the largest file of a checkpoint."""
    files = [file for file in (path / "checkpoints" / str(step)).rglob("*") if file.is_file()]
    largest = max(files, key=lambda file: (file.stat().st_size, file))
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)


def lose_manifest(path, step):
    (path / "checkpoints" / str(step) / manifest.NAME).unlink()


@pytest.mark.parametrize("harm", [damage, lose_manifest])
@pytest.mark.parametrize("steps", [[28], [4, 24], [4, 20, 24, 28]])
def test_whatever_is_damaged_is_computed_again_and_the_rest_stays(whole, steps, harm, capsys):
    before, metrics = facts(whole), (whole / "metrics.jsonl").read_bytes()
    sound = {s: (whole / "checkpoints" / str(s) / manifest.NAME).read_bytes() for s in before if s not in steps}
    for step in steps:
        harm(whole, step)
    assert cli.main(["resume", str(whole)]) == 0
    said = capsys.readouterr().err
    for step in steps:
        assert f"checkpoints/{step} is damaged" in said and f"step {step} is there again" in said
    assert "resumed at step 28 of 28" in said
    assert facts(whole) == before and (whole / "metrics.jsonl").read_bytes() == metrics
    assert sound == {s: (whole / "checkpoints" / str(s) / manifest.NAME).read_bytes() for s in sound}
    assert {entry.name for entry in (whole / "checkpoints").iterdir()} == {"4", "20", "24", "28"}
    assert cli.main(["resume", str(whole)]) == 0 and "again" not in capsys.readouterr().err


def test_only_the_steps_from_the_sound_one_before_are_done_again(whole, capsys):
    damage(whole, 24)
    damage(whole, 4)
    assert cli.main(["resume", str(whole)]) == 0
    said = capsys.readouterr().err
    assert "step 4 is computed again from step 0" in said and "step 24 is computed again from step 20" in said


def stop_at(step, monkeypatch):
    """SIGTERM while the chunk that ends at this step runs."""
    steps = fit.run_steps

    def run_steps(state, *args):
        if int(np.max(state.step)) == step - 2:
            signal.raise_signal(signal.SIGTERM)
        return steps(state, *args)

    monkeypatch.setattr(fit, "run_steps", run_steps)


def test_a_checkpoint_that_a_stop_saved_is_computed_again(trained, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        stop_at(14, patch)
        train(tmp_path / "run")
    before = facts(tmp_path / "run")
    assert list(before) == [4, 8, 12, 14] and before[14]["temporary"]
    lose_manifest(tmp_path / "run", 14)
    rows, settings = restore.load_rows(tmp_path / "run"), restore.load_settings(tmp_path / "run")
    abstract = fit.abstract_state(settings)
    healing.heal(tmp_path / "run", settings, rows, abstract, None)
    assert facts(tmp_path / "run") == before
    assert cli.main(["resume", str(tmp_path / "run")]) == 0
    assert "resumed at step 14 of 28" in capsys.readouterr().err
    assert facts(tmp_path / "run") == facts(trained())


def test_a_population_is_healed_alike(tmp_path):
    path = train(tmp_path / "run", members=3, member_mode="map")
    before = facts(path)
    damage(path, 4)
    lose_manifest(path, 28)
    assert cli.main(["resume", str(path)]) == 0
    assert facts(path) == before


def test_what_a_kill_left_set_aside_is_computed_again(whole):
    before = facts(whole)
    (whole / "checkpoints" / "20").rename(whole / "checkpoints" / "20.corrupt")
    (whole / "checkpoints" / "20.tmp").mkdir()
    with open(whole / "metrics.jsonl", "a") as file:
        file.write('{"step": 3')  # torn
    assert cli.main(["resume", str(whole)]) == 0
    assert facts(whole) == before


def test_a_step_to_go_on_from_is_computed_again_and_no_other(whole, capsys):
    before = facts(whole)
    for step in (4, 20, 24):
        damage(whole, step)
    assert cli.main(["resume", str(whole), "--step", "20"]) == 0
    said = capsys.readouterr().err
    assert "step 20 is there again" in said and "resumed at step 20 of 28" in said and said.count("again") == 2
    assert cli.main(["resume", str(whole)]) == 0
    assert "step 4 is there again" in capsys.readouterr().err and facts(whole) == before


def test_other_bits_than_the_manifest_promises_are_kept_beside_and_not_used(whole, capsys):
    folder = whole / "checkpoints"
    abstract = fit.abstract_state(SETTINGS)
    _, state = checkpoint.load(folder, abstract, 24)
    state = state._replace(params=jax.tree.map(lambda leaf: leaf * 1.5, state.params))
    checkpoint.write(folder, *checkpoint.describe(24, state, [-1.5]))  # as another machine might have come to
    promised = facts(whole)[24]["arrays_sha256"]
    damage(whole, 24)
    assert cli.main(["resume", str(whole)]) == 0
    said = capsys.readouterr().err
    assert "step 24 came out other than its manifest says: it is kept as" in said and said.count("\n") == 4
    assert selection.steps(folder) == [4, 20, 28] and (folder / "24.corrupt").is_dir()
    assert selection.facts_of(folder / "recomputed" / "24")["arrays_sha256"] != promised
    assert cli.main(["resume", str(whole)]) == 0 and "again" not in capsys.readouterr().err  # not a second time


def test_parameters_that_no_training_led_to_are_not_replaced_by_others(tmp_path, capsys):
    path = circuit_run(tmp_path / "run", SETTINGS.data)
    lose_manifest(path, 1)
    assert cli.main(["resume", str(path)]) == 4
    said = capsys.readouterr().err
    assert "step 1 came out other than metrics.jsonl says" in said and "holds no valid checkpoint" in said
    assert (path / "checkpoints" / "1.corrupt" / "state").is_dir()


def test_a_run_that_ended_with_a_proof_ends_with_it_again(tmp_path, monkeypatch):
    asked = []

    def proven(step):
        asked.append(step)
        return step == 12

    monkeypatch.setattr(experiment, "finish", lambda *args: fit.fit(*args, proven))
    path = train(tmp_path / "run")
    before = facts(path)
    assert before[12]["scores"] == [selection.PROVEN] and list(before) == [4, 8, 12]
    damage(path, 12)
    assert cli.main(["resume", str(path)]) == 0
    assert facts(path) == before and asked == [4, 8, 12]
    lose_manifest(path, 12)  # which alone said that it is proven: so that is asked again
    assert cli.main(["resume", str(path)]) == 0
    assert facts(path) == before and asked == [4, 8, 12, 12]


def test_a_proof_leaves_no_better_checkpoint_before_it_to_be_missed(tmp_path, monkeypatch, capsys):
    for module in (fit, healing):  # no score is below that of a proof
        monkeypatch.setattr(module, "score", lambda found: 1 / (1 + np.asarray(found["loss"], np.float64)))
    monkeypatch.setattr(experiment, "finish", lambda *args: fit.fit(*args, lambda step: step == 12))
    path = train(tmp_path / "run", keep=1)
    assert selection.steps(path / "checkpoints") == [12]  # 4 has the better score
    assert cli.main(["resume", str(path)]) == 0
    assert "again" not in capsys.readouterr().err and selection.steps(path / "checkpoints") == [12]


@pytest.mark.parametrize("keep", [1, 3])
def test_due_are_those_that_training_keeps(tmp_path, keep):
    rng, records = np.random.default_rng(keep), []
    run = dataclasses.replace(SETTINGS.training, keep=keep)
    with checkpoint.Checkpoints(tmp_path, keep=keep) as checkpoints:
        for step in range(2, 41, 2):
            loss = float(rng.choice([0.1, 0.2, 0.3, np.nan]))
            scheduled, stopped = step % 4 == 0, rng.random() < 0.3
            records.append({"step": step, "loss": 1.0} | ({"validation_loss": loss} if scheduled else {}))
            if scheduled or stopped:
                score = healing.score({"loss": loss}) if scheduled else 1.0
                checkpoints.save(step, {"params": np.ones(2, np.float32)}, score, temporary=not scheduled)
                checkpoints.wait()
                assert healing.due(records, run) == {*selection.steps(tmp_path)}


def test_orbax_that_reads_other_numbers_is_found_out(whole, monkeypatch, capsys):
    orbax = arrays.orbax()

    class Other:
        def load(self, *args, **options):
            return {name: array + (array.dtype == "float32") for name, array in orbax.load(*args, **options).items()}

    monkeypatch.setattr(arrays, "orbax", Other)
    assert cli.main(["resume", str(whole)]) == 4
    assert "28 is sound, but orbax reads other numbers from it" in capsys.readouterr().err
