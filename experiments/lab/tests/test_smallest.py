"""The recipe `smallest`: every training row in a step, and Gauss-Newton steps at the end."""

import json

import jax
import numpy as np
import pytest
from jax import export

from apformer import cli, tasks
from apformer.analysis import certificate
from apformer.errors import USAGE, UserError
from apformer.runs import fit, recipes
from apformer.runs.restore import bind_run
from apformer.tasks.progressions import crops, generator
from apformer.tasks.progressions.generator import Progressions, split_of
from apformer.tokenizers import digits as tokenizer
from apformer_lab import smallest

DATA = "--recipe smallest --digits 2 --min_difference 20 --max_difference 30"
SMALL = f"{DATA} --batch_size 8 --steps 8 --newton_steps 4 --log_every 2 --save_every 4".split()


def strings(batch, reach):
    """What each prediction that counts depends on, whether a row begins there, and what is predicted."""
    for tokens_T, weights_T in zip(*map(np.asarray, batch), strict=True):
        text = tokenizer.decode(tokens_T)
        for t in np.flatnonzero(weights_T):
            yield text[max(0, t - 1 - reach) : t], t - 1 - reach < 0, text[t]


def test_every_row_asks_each_string_of_training_lines_once_and_none_else():
    settings = recipes.parse([*DATA.split(), "--min_difference", "-14", "--max_difference", "25"])
    rows = []
    for difference in range(-14, 26):
        for first in range(100):
            terms = 1 + (first if difference < 0 else 99 - first) // abs(difference) if difference else 5
            if terms > 2 and split_of(np.array([difference]), np.array([first]))[0] == 0:
                rows.append((first, difference, terms))
    encoded = generator.encode_rows(Progressions(*np.int32(rows).T), 2, 100)
    expected = set(strings(crops.predictable(encoded, 2), reach=5))
    found = list(strings(smallest.every_row(settings).rows, reach=5))
    assert set(found) == expected and len(found) == len(expected)


@pytest.mark.parametrize("batches", ["3", "0"])
def test_the_last_steps_of_a_run_are_gauss_newton_steps(batches):
    """They leave the state of Adam alone, and lower the loss of every training row."""
    settings = recipes.parse([*SMALL, "--newton_batches", batches])
    task = tasks.load(settings.task)
    state = fit.initial_state(settings)
    moments = []
    losses = []
    rows = task.train_rows(task.load(settings)[1])
    for _ in range(4):
        state, metrics = fit.run_steps(state, rows, settings, 2)
        moments.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.opt_state)]))
        losses += np.asarray(metrics["loss"]).tolist()
    assert [np.array_equal(moments[k], moments[k + 1]) for k in range(3)] == [False, True, True]
    assert int(state.step) == 8 and np.isfinite(losses).all()
    if batches == "0":
        assert losses[4] >= losses[5] >= losses[6] >= losses[7]
    assert (np.asarray(metrics["learning_rate"]) == 0).all()


def test_without_gauss_newton_steps_the_usual_step_is_returned():
    settings = recipes.parse([*SMALL, "--newton_steps", "0"])
    assert smallest.train_step(settings, None, smallest.smallest) is smallest.smallest


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--newton_steps 10", "--newton_steps 10 is out of range: give 0 to --steps, 8"),
        ("--digits 4 --max_difference 500", "--newton_batches 0, every row of training lines, are 4,559,880 rows"),
        ("--min_difference 60 --max_difference 70", "--newton_batches 0, every row of training lines, are none: no"),
        ("--dataset rows.txt", "--newton_steps sees rows of the generator, not those of --dataset rows.txt: give 0"),
        ("--ema 0.9", "--ema 0.9 averages no Gauss-Newton steps"),
        ("--members 2 --member_mode vmap", "--member_mode vmap would compute both kinds of steps"),
    ],
)
def test_what_does_not_fit_is_refused(flags, sentence):
    with pytest.raises(UserError) as error:
        recipes.parse([*SMALL, *flags.split()])
    assert str(error.value).startswith(sentence) and error.value.exit_code == USAGE


def test_a_run_is_trained_and_certified_as_those_of_the_home_task(tmp_path, capsys):
    """One of so few steps is wrong, and says how often."""
    run = str(tmp_path / "run")
    assert cli.main(["train", *SMALL, "--test_sequences", "20", "--run_dir", run]) == 0
    assert cli.main(["certify", run]) == 8
    certificate = json.loads((tmp_path / "run/certificate.json").read_text())
    assert not certificate["certified"] and certificate["errors"] > 0
    assert cli.main(["predict", run, "07 30", "--terms", "1"]) == 0


def test_the_network_is_that_of_the_proof_of_the_home_task_and_is_exported_for_any_shape():
    settings = recipes.parse(DATA.split())
    params = fit.initial_state(settings).params
    case, bound = certificate.case(settings, smallest.contexts, params), bind_run(settings, params)
    gaps = [gap for _, gap in certificate.compare(case, bound)]
    assert case.fault is None and 0 < max(gaps) < 1e-4
    export.export(jax.jit(bound.apply))(jax.ShapeDtypeStruct(export.symbolic_shape("B, T"), np.int32))
