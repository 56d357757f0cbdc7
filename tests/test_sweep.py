"""A sweep trains each combination as a run alone would be, is stopped without loss, and says what it measured."""

import json
import shutil
import signal

import jax
import numpy as np
import pytest

from apformer import files, optimizer
from apformer.commands import sweep
from apformer.commands.train import go_on
from apformer.errors import CHECKPOINT, NON_FINITE, USAGE, UserError
from apformer.files import read_json, write_json
from apformer.runs import checkpoint, directory, fit, recipes, restore, selection
from apformer.tasks.progressions import training as task
from apformer.tasks.progressions.recipes import exact as exact_recipe
from tests.helpers.refusals import refused
from tests.helpers.small_models import bits

pytestmark = pytest.mark.long

TINY = (
    "--recipe sketch --rule adamw --n_layers 1 --hard_fraction 0 --prefix_rows 0 --long_rows 0 "
    "--d_model 8 --digits 2 --max_difference 30 --crop_terms 4 --batch_size 4 --test_sequences 20 "
    "--steps 6 --log_every 2 --save_every 4 --warmup_steps 0"
)
FLAGS = f"{TINY} --window 5 --learning_rate 1e-3,1e-2 --members 2 --seed 3".split()
FOLDER = "01"


def main(path, *more):
    sweep.main([*FLAGS, "--run_dir", str(path), *more])


@pytest.fixture
def quick(monkeypatch, without_pictures):
    monkeypatch.setattr(task, "VALIDATION_ROWS", 32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a sweep that nothing stopped: two learning rates of two seeds, all in one program."""
    path = tmp_path_factory.mktemp("sweep") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "VALIDATION_ROWS", 32)
        main(path)
    return path


def read(path):
    """sweep.json without what a clock writes."""
    result = read_json(path / "sweep.json")
    assert all(record.pop("seconds") >= 0 for record in result["members"])
    return result


def last_state(path):
    """The state of the newest checkpoint."""
    step, state = checkpoint.load(path / "checkpoints", fit.abstract_state(restore.load_settings(path)))
    assert step == 6
    return state


# Flags


def test_lists_become_combinations_and_numbers_of_the_state_share_a_program():
    args = "--window=None,9 --position none,alibi --learning-rate 0.1,0.2 --weight_decay 0.5 --members 3"
    flags = sweep.read(args.split())
    assert flags == {
        "learning_rate": ["0.1", "0.2"],
        "members": "3",
        "position": ["none", "alibi"],
        "weight_decay": "0.5",
        "window": ["None", "9"],
    }
    words = sweep.command(flags).split()
    assert words[:2] == ["apformer", "sweep"] and sweep.read(words[2:]) == flags
    assert [*sweep.read(reversed([f"--{flag}=1" for flag in flags]))] == [*flags]  # in any order
    several = sweep.read(["--validation", "a b", "c"])
    assert several == {"validation": "'a b' c"} and sweep.command(several) == "apformer sweep --validation 'a b' c"
    found = sweep.programs(flags)
    assert [program.folder for program in found] == [
        "01-position=none,window=None",
        "02-position=none,window=9",
        "03-position=alibi,window=None",
        "04-position=alibi,window=9",
    ]
    hyper = [{"learning_rate": "0.1"}, {"learning_rate": "0.2"}]
    assert found[1].combinations == [{"position": "none", "window": "9"} | numbers for numbers in hyper]
    assert sweep.name(found[1].combinations[0]) == "position none, window 9, learning_rate 0.1"
    rates = [(s.optimizer.learning_rate, s.optimizer.weight_decay) for s in found[1].settings]
    assert rates == [(0.1, 0.5), (0.2, 0.5)]
    assert {(s.model.position, s.model.window) for s in found[1].settings} == {("none", 9)}
    assert found[1].joint.training.members == 6 and found[1].settings[0].training.members == 3


def test_a_value_may_be_a_switch_or_bring_flags_of_its_own():
    flags = sweep.read(["--position", "sinusoidal,sinusoidal --position_offset 40", "--final_norm=True,False"])
    found = sweep.programs(flags)
    chosen = [(p.joint.model.final_norm, p.joint.options.position_offset) for p in found]
    assert chosen == [(True, 0), (True, 40), (False, 0), (False, 40)]
    assert found[3].folder == "04-final_norm=False,position=sinusoidal_--position_offset_40"
    found = sweep.programs({"learning_rate": ["0.1", "0.2 --d_model 32"]})
    assert [program.joint.model.d_model for program in found] == [64, 32]


def test_a_rule_of_a_package_has_a_program_for_each_learning_rate(monkeypatch):
    monkeypatch.setattr(optimizer, "RULES", ())
    found = sweep.programs({"learning_rate": ["0.1", "0.2"]})
    assert [program.folder for program in found] == ["01-learning_rate=0.1", "02-learning_rate=0.2"]
    assert [program.joint.optimizer.learning_rate for program in found] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        ("--position none,learned --max_len 99", "^position learned: --max_len 99 ends before the longest row"),
        ("--max_difference 300,8", "^max_difference 8: these differences have no validation lines"),
        ("--window 5,", "^window : .*--window"),
        ("--average 1,2", "^average 2: --average is not a flag of a sweep"),
        ("--window 5,6 7", "^7 belongs to no flag"),
        ("--window 5 6", "^no flag takes the words 6"),
    ],
)
def test_what_no_run_can_follow_is_refused_before_a_directory_is_made(flags, pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(USAGE, pattern):
        sweep.main(flags.split())
    assert not list(tmp_path.iterdir())


def test_a_model_that_training_begins_with_is_refused(monkeypatch):
    settings = exact_recipe(3)
    monkeypatch.setattr(recipes, "parse", lambda *_: settings)
    monkeypatch.setattr("apformer.tasks.progressions.init_from", lambda settings: "gpt2")
    with pytest.raises(UserError, match="^--init_from is not a flag of a sweep, which measures new models"):
        sweep.programs({})


# A sweep


def test_a_member_is_the_run_alone_of_its_seed_and_learning_rate(whole, tmp_path, quick):
    population = last_state(whole / FOLDER)
    assert population.hyper["learning_rate"].tolist() == np.float32([1e-3, 1e-3, 1e-2, 1e-2]).tolist()
    members = read(whole)["members"]
    described = [(m["member"], m["seed"], m["combination"]) for m in members]
    slow, fast = {"learning_rate": "1e-3"}, {"learning_rate": "1e-2"}
    assert described == [(0, 3, slow), (1, 4, slow), (2, 3, fast), (3, 4, fast)]
    settings = recipes.parse(f"{TINY} --window 5 --learning_rate 1e-2 --seed 4".split())
    alone = fit.fit(tmp_path, settings, None, fit.initial_state(settings))
    assert directory.find(whole / FOLDER) == whole / FOLDER  # a run of its own
    third, other = (jax.tree.map(lambda leaf, k=k: leaf[k], population) for k in (3, 1))
    assert bits(third) == bits(alone)
    assert jax.tree.all(jax.tree.map(lambda one, two: (one != two).any(), third.params, other.params))


def test_a_sweep_that_was_stopped_ends_like_one_that_was_not(whole, quick, tmp_path, monkeypatch, capsys):
    path, steps = tmp_path / "stopped", fit.run_steps

    def stopped(state, *args):
        if int(np.max(state.step)) == 2:
            signal.raise_signal(signal.SIGINT)
        return steps(state, *args)

    monkeypatch.setattr(fit, "run_steps", stopped)
    with pytest.raises(SystemExit) as stop:
        main(path)
    assert stop.value.code == 130 and selection.steps(path / FOLDER / "checkpoints") == [4]
    assert read(path)["members"] == [] and f"the same flags with --run_dir {path} continue" in capsys.readouterr().err
    monkeypatch.setattr(fit, "run_steps", steps)
    main(path)
    assert read(path) == read(whole)
    assert bits(last_state(path / FOLDER)) == bits(last_state(whole / FOLDER))


def test_what_is_measured_is_not_measured_again(whole, quick, tmp_path, monkeypatch):
    path = shutil.copytree(whole, tmp_path / "copy")
    result = read_json(path / "sweep.json")
    write_json(path / "sweep.json", result | {"members": []})
    main(path)  # of its last checkpoint
    assert read(path) == read(whole)
    monkeypatch.setattr(sweep, "train", None)
    before = (path / "sweep.json").read_bytes()
    main(path)
    assert (path / "sweep.json").read_bytes() == before


def test_damaged_records_are_named_and_left_as_they_are(whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "copy")
    before = json.dumps(read_json(path / "sweep.json") | {"members": 4})
    (path / "sweep.json").write_text(before)
    with refused(CHECKPOINT, "sweep.json is damaged: restore it from a copy"):
        main(path)
    assert (path / "sweep.json").read_text() == before


def test_a_directory_of_other_flags_is_refused_and_left_as_it_is(whole, tmp_path):
    before = {file: file.read_bytes() for file in whole.rglob("*") if file.is_file() and file.name != ".lock"}
    with refused(USAGE, "whole was begun with other flags .*--members 2.* give another --run_dir"):
        main(whole, "--steps", "8")
    assert before == {file: file.read_bytes() for file in before}
    # A default that has changed since leaves the flags alike and the settings not.
    copy = shutil.copytree(whole, tmp_path / "copy")
    config, result = (read_json(copy / file) for file in (f"{FOLDER}/config.json", "sweep.json"))
    config["flags"]["optimizer"]["beta1"] = 0.5
    write_json(copy / FOLDER / "config.json", config)
    write_json(copy / "sweep.json", result | {"members": []})
    with pytest.raises(UserError, match="01 was trained with other settings"):
        main(copy)
    shutil.rmtree(copy / FOLDER / "checkpoints")
    with refused(USAGE, "01 is a part of a sweep: give its flags again, with its --run_dir"):
        go_on(copy / FOLDER)


@pytest.mark.usefixtures("without_pictures")
def test_a_loss_that_is_not_finite_costs_its_member_alone(tmp_path, monkeypatch):
    """Or its program, where no member's is finite."""

    def train(path, program):
        if "n_heads=2" in path.name:
            raise UserError("the loss of seed 0 is not finite", NON_FINITE)
        path.mkdir()
        last = {"validation_exact": [0.5, None, 0.5, 0.25], "validation_loss": [1.0, None, 1.0, 2.0]}
        for step, clock in ((2, 7), (4, 9), (6, 3)):  # a run that was gone on with after step 4
            files.append_record(path / "metrics.jsonl", {"step": step, "seconds": clock} | last)

    monkeypatch.setattr(sweep, "train", train)
    flags = f"{TINY} --n_heads 1,2 --learning_rate 1e-3,1e-2 --members 2 --run_dir {tmp_path / 'sweep'}"
    names = [f"n_heads 1, learning_rate 1e-3; n_heads 2, learning_rate {rate}" for rate in ("1e-3", "1e-2")]
    pattern = f"^{names[0]}; {names[1].partition('; ')[2]}: a loss was not finite, lower --learning_rate there"
    for _ in range(2):  # what failed is not trained again
        with refused(NON_FINITE, pattern):
            sweep.main(flags.split())
        monkeypatch.setattr(sweep, "train", None)
    members = read_json(tmp_path / "sweep" / "sweep.json")["members"]
    assert [m["failed"] for m in members] == [False, True, False, False] + 4 * [True]
    assert members[1]["validation"] == {} and members[3]["validation"] == {"loss": 2.0, "exact": 0.25}
    assert members[0]["seconds"] == 3.0 and members[4]["seconds"] == 0.0  # 7 + 2 + 3 seconds, of four members
    table = (tmp_path / "sweep" / "table.md").read_text()
    for row in (
        "1, learning_rate 1e-3 | 2 (1 failed)",
        "1, learning_rate 1e-2 | 2",
        "2, learning_rate 1e-3 | 2 (2 failed)",
    ):
        assert f"| n_heads {row} |" in table


# The report


def test_a_sweep_leaves_its_table_and_figure(whole):
    assert "| learning_rate 1e-2 | 2 |" in (whole / "table.md").read_text()
    assert (whole / "figures" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert read(whole)["versions"]["jax"] == jax.__version__
