"""A sweep trains each combination as a run alone would be, is stopped without loss, and says what it measured."""

import dataclasses
import json
import shutil
import signal
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import files, model
from apformer.decoding import bind
from apformer.errors import CHECKPOINT, NON_FINITE, USAGE, UserError
from apformer.report import figures, tables
from apformer.runs import checkpoint, directory, fit, recipes, restore, selection
from apformer.sweep import grid, sweep
from apformer.tasks.progressions import evaluation, generalization, generator
from apformer.tasks.progressions import training as task
from apformer.tasks.progressions.recipes import exact as exact_recipe
from tests.helpers import circuit

pytestmark = pytest.mark.long

TINY = (
    "--recipe sketch --d_model 8 --digits 2 --max_difference 30 --crop_terms 4 --batch_size 4 --test_sequences 20 "
    "--steps 6 --log_every 2 --save_every 4 --warmup_steps 0"
)
FLAGS = f"{TINY} --window 5 --learning_rate 1e-3,1e-2 --members 2 --seed 3".split()
FOLDER = "01"


def one_suite(settings, rows=None):
    """In place of `suites.suites`, of which each costs a compilation."""
    rows = task.test_rows(settings, rows)
    cut = rows._replace(terms_B=np.minimum(rows.terms_B, 4))
    return {"in distribution": generalization.Suite("held-out lines", cut, 2), "more terms": None}


@pytest.fixture
def quick(monkeypatch, without_pictures):
    monkeypatch.setattr(task, "VALIDATION_ROWS", 32)
    monkeypatch.setattr(generalization, "suites", one_suite)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a sweep that nothing stopped: two learning rates of two seeds, all in one program."""
    path = tmp_path_factory.mktemp("sweep") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "VALIDATION_ROWS", 32)
        patch.setattr(generalization, "suites", one_suite)
        sweep.sweep([*FLAGS, "--run_dir", str(path)])
    return path


def read(path):
    """sweep.json without what a clock writes."""
    result = json.loads((path / "sweep.json").read_text())
    assert all(record.pop("seconds") >= 0 for record in result["members"])
    return result


def last_state(path):
    """The newest checkpoint's state as arrays of numpy by name."""
    abstract = fit.abstract_state(restore.load_settings(path))
    step, state = checkpoint.load(path / "checkpoints", abstract)
    assert step == 6
    return leaves(state)


def leaves(state):
    flat, _ = jax.tree_util.tree_flatten_with_path(state._replace(key=jax.random.key_data(state.key)))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in flat}


def untrained(path, program):
    """In place of `sweep.train`, where training is not what is tested."""
    path.mkdir()
    members = program.joint.training.members
    measured = {"exact": [0.5] * members, "validation_loss": [1.0] * members}
    files.append_record(path / "metrics.jsonl", {"step": 2, "seconds": 7} | measured)
    return SimpleNamespace(params={"weight": np.zeros((members, 5)) if members > 1 else np.zeros(5)}, mean=None), None


# Flags


def test_lists_become_combinations_and_numbers_of_the_state_share_a_program():
    args = "--window=None,9 --position none,alibi --learning-rate 0.1,0.2 --weight_decay 0.5 --no-certify --members 3"
    flags = grid.read(args.split())
    assert flags == {
        "learning_rate": ["0.1", "0.2"],
        "members": "3",
        "no_certify": None,
        "position": ["none", "alibi"],
        "weight_decay": "0.5",
        "window": ["None", "9"],
    }
    words = grid.command(flags).split()
    assert words[:2] == ["apformer", "sweep"] and grid.read(words[2:]) == flags
    assert [*grid.read(reversed([f"--{flag}=1" for flag in flags]))] == [*flags]  # in any order
    found = grid.programs(flags)
    assert [program.folder for program in found] == [
        "01-position=none,window=None",
        "02-position=none,window=9",
        "03-position=alibi,window=None",
        "04-position=alibi,window=9",
    ]
    hyper = [{"learning_rate": "0.1"}, {"learning_rate": "0.2"}]
    assert found[1].combinations == [{"position": "none", "window": "9"} | numbers for numbers in hyper]
    assert grid.name(found[1].combinations[0]) == "position none, window 9, learning_rate 0.1"
    rates = [(s.optimizer.learning_rate, s.optimizer.weight_decay) for s in found[1].settings]
    assert rates == [(0.1, 0.5), (0.2, 0.5)]
    assert {(s.model.position, s.model.window, s.options.test_sequences) for s in found[1].settings} == {
        ("none", 9, 512)
    }
    assert found[1].joint.training.members == 6 and found[1].settings[0].training.members == 3


def test_without_lists_there_is_one_program():
    (program,) = grid.programs(grid.read(["--run_dir", "a,b", "--test_sequences", "7"]))
    assert (program.folder, program.combinations) == ("01", [{}])
    exact = exact_recipe(3)
    assert program.joint == dataclasses.replace(exact, options=dataclasses.replace(exact.options, test_sequences=7))


def test_a_value_may_be_a_switch_or_bring_flags_of_its_own():
    flags = grid.read(["--position", "sinusoidal,sinusoidal --position_offset 40", "--final_norm=True,False"])
    found = grid.programs(flags)
    chosen = [(p.joint.model.final_norm, p.joint.options.position_offset) for p in found]
    assert chosen == [(True, 0), (True, 40), (False, 0), (False, 40)]
    assert found[3].folder == "04-final_norm=False,position=sinusoidal_--position_offset_40"


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        ("--position none,learned --max_len 99", "^position learned: --max_len 99 ends before the longest row"),
        ("--max_difference 300,8", "^max_difference 8: these differences have no validation lines"),
        ("--window 5,", "^window : .*--window"),
        ("--average 1,2", "^average 2: --average is no flag of a sweep"),
        ("--window 5 6", "^6 belongs to no flag"),
    ],
)
def test_what_no_run_can_follow_is_refused_before_a_directory_is_made(flags, pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=pattern) as caught:
        sweep.sweep(flags.split())
    assert caught.value.exit_code == USAGE and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_model_that_training_begins_with_is_refused(monkeypatch):
    settings = exact_recipe(3)
    monkeypatch.setattr(recipes, "parse", lambda *_: settings)
    monkeypatch.setattr("apformer.tasks.progressions.init_from", lambda settings: "gpt2")
    with pytest.raises(UserError, match="^--init_from is no flag of a sweep, which measures new models"):
        grid.programs({})


def test_help_says_both_what_a_sweep_is_and_the_flags_it_takes(capsys):
    with pytest.raises(SystemExit) as done:
        sweep.sweep(["--help"])
    out = capsys.readouterr().out
    assert not done.value.code and "sweep.json" in out and "--position_offset" in out


# Suites


def asked(*flags):
    found = generalization.suites(recipes.parse(["--test_sequences", "64", *flags]))
    assert list(found) == [
        "in distribution",
        "more terms",
        "unseen differences",
        "negative differences",
        "one more digit",
    ]
    return found


def test_suites_are_what_they_claim():
    flags, unseen, longest = "--max_difference 120 --min_difference 90 --crop_terms 5", (121, 239), 12
    flags = flags.split()
    cfg, crop = (settings := recipes.parse(flags)).data, settings.options.crop_terms
    found, top = asked(*flags), 10**cfg.digits - 1
    for name, suite in found.items():
        first_B, difference_B, terms_B = suite.rows
        assert len(first_B) == 64 and suite.digits == cfg.digits + (name == "one more digit")
        last_B = first_B + (terms_B - 1) * difference_B
        assert np.minimum(first_B, last_B).min() >= 0 and np.maximum(first_B, last_B).max() < 10**suite.digits
        assert suite.known == (crop if name == "more terms" else 0) and (name == "more terms" or terms_B.max() <= crop)
        if name in ("in distribution", "more terms"):
            assert (generator.split_of(difference_B, first_B) == 2).all()
        if name in ("in distribution", "more terms", "one more digit"):
            assert cfg.min_difference <= difference_B.min() and difference_B.max() <= cfg.max_difference
    assert (found["more terms"].rows.terms_B == longest).all() and crop < longest <= 10 * crop
    rows = found["unseen differences"].rows
    assert unseen[0] <= rows.difference_B.min() and rows.difference_B.max() <= unseen[1]
    assert unseen[0] > cfg.max_difference and rows.terms_B.min() >= 3 and 2 * unseen[1] <= top
    assert found["unseen differences"].what == f"differences {unseen[0]} to {unseen[1]}"
    rows = found["negative differences"].rows
    assert -cfg.max_difference <= rows.difference_B.min() and rows.difference_B.max() <= -cfg.min_difference
    assert (found["one more digit"].rows.first_B > top).any()


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ("", {"unseen differences"}),  # 500 is beyond the largest that leaves three terms
        ("--min_difference -400 --max_difference 400", {"negative differences"}),
        ("--max_difference 400 --crop_terms 100", {"more terms"}),
        ("--digits 9", {"one more digit"}),
        ("--max_terms 3 --max_difference 400 --position learned --max_len 14", {"more terms"}),
    ],
)
def test_a_suite_without_rows_is_none(flags, missing, monkeypatch):
    def draw(key, cfg, count, split):
        """What is refused is refused; else rows that cost no compilation."""
        if split and not generator.has_split(cfg, split):
            raise UserError("there are none", USAGE)
        return generator.Progressions(*np.ones((3, count), np.int32))

    monkeypatch.setattr(generalization, "_draw", draw)
    monkeypatch.setattr(task, "_draw", draw)
    found = asked(*flags.split())
    assert {name for name, suite in found.items() if suite is None} == missing
    if "unseen differences" not in missing:
        expected = "501 to 999" if flags == "--digits 9" else "401 to 499"
        assert found["unseen differences"].what == f"differences {expected}"


@pytest.fixture(scope="module")
def circuits():
    """Settings of the circuit for two digits, and parameters of two members: as it is, and with noise."""
    settings = recipes.parse("--digits 2 --max_difference 30 --test_sequences 20 --crop_terms 4".split())
    random, exact = np.random.default_rng(0), jax.tree.map(np.asarray, circuit.params(2))
    noisy = jax.tree.map(lambda leaf: leaf + np.float32(0.002) * random.standard_normal(leaf.shape, np.float32), exact)
    params_M = jax.tree.map(lambda *pair: jnp.asarray(np.stack(pair)), exact, noisy)
    return dataclasses.replace(settings, model=circuit.config(2)), params_M


def test_a_suite_measures_what_evaluate_does(circuits):
    settings, params_M = circuits
    size_B = np.arange(1, 31, dtype=np.int32)
    suite = generalization.Suite("down", generator.Progressions(99 - size_B, -size_B, 2 + size_B % 3), 2)
    first, second = (jax.tree.map(lambda leaf, k=k: leaf[k], params_M) for k in (0, 1))
    exact, noisy = (generalization.measure(suite, params, settings) for params in (first, second))
    assert exact["teacher_forced"] == exact["free_running"] == 1 and exact["terms"] == noisy["terms"]
    result = evaluation.measure(suite.rows, 2, bind.bind(model, second, settings.model))
    assert noisy.pop("what") == "down" and noisy.pop("terms") == result["terms"] == 30
    assert noisy == {mode: result[f"exact_{mode}"] for mode in noisy} and 0 < noisy["free_running"] < 1


def test_terms_that_do_not_count_are_not_counted(circuits, monkeypatch):
    rows = generator.Progressions(*np.array([[10, 20, 30], [1, 2, 3], [2, 4, 7]], np.int32))
    counts_BN = np.arange(3, 8) <= rows.terms_B[:, None]
    term_BN = np.broadcast_to(np.arange(3, 8), counts_BN.shape)
    row_N, term_N = np.nonzero(counts_BN)

    def measured(known, *right):
        right = {mode: right_BN[counts_BN] for mode, right_BN in zip(evaluation.MODES, right, strict=True)}
        outcomes = evaluation.Outcomes(None, row_N, term_N + 3, right, [])
        monkeypatch.setattr(evaluation, "outcomes", lambda *_: outcomes)
        params = jax.tree.map(lambda leaf: leaf[0], circuits[1])
        return generalization.measure(generalization.Suite("some", rows, 2, known), params, circuits[0])

    # One model is right on every term; the other after the fourth, and free-running on the fifth alone.
    for known, counted, forced, free in ((0, 7, 3, 1), (3, 5, 3, 1), (5, 2, 2, 0)):
        facts = {"what": "some", "terms": counted}
        assert measured(known, term_BN > 2, term_BN > 2) == facts | {"teacher_forced": 1, "free_running": 1}
        other = measured(known, term_BN > 4, term_BN == 5)
        assert other == facts | {"teacher_forced": forced / counted, "free_running": free / counted}
    assert measured(7, term_BN > 2, term_BN > 2) is None


def test_the_circuit_is_certified(circuits):
    settings, params_M = circuits
    result = generalization.certificate(jax.tree.map(lambda leaf: leaf[0], params_M), settings)
    assert result.pop("smallest_margin") > 0 and result.pop("contexts") > 1000
    assert result == {"certified": True, "errors": 0}


@pytest.mark.parametrize(
    ("flags", "can"),
    [
        ("", True),
        ("--position alibi", True),
        ("--window None", False),
        ("--position rotary", False),
        ("--digits 4", False),  # too many
        ("--recipe recurrent", False),
    ],
)
def test_contexts_are_enumerated_where_they_are_finitely_many_and_few(flags, can):
    assert generalization.can_enumerate(recipes.parse(flags.split())) == can


# A sweep


def test_a_member_is_the_run_alone_of_its_seed_and_learning_rate(whole, tmp_path, quick):
    population = last_state(whole / FOLDER)
    assert population[".hyper['learning_rate']"].tolist() == np.float32([1e-3, 1e-3, 1e-2, 1e-2]).tolist()
    members = read(whole)["members"]
    described = [(m["member"], m["seed"], m["combination"]) for m in members]
    slow, fast = {"learning_rate": "1e-3"}, {"learning_rate": "1e-2"}
    assert described == [(0, 3, slow), (1, 4, slow), (2, 3, fast), (3, 4, fast)]
    settings = recipes.parse(f"{TINY} --window 5 --learning_rate 1e-2 --seed 4".split())
    alone = leaves(fit.fit(tmp_path, settings, None, fit.initial_state(settings)))
    assert directory.find(whole / FOLDER) == whole / FOLDER  # a run of its own
    assert alone.keys() == population.keys()
    for name, leaf in alone.items():
        assert leaf.tobytes() == population[name][3].tobytes(), name
        assert not name.startswith(".params") or (population[name][3] != population[name][1]).any(), name


def test_a_sweep_that_was_stopped_ends_like_one_that_was_not(whole, quick, tmp_path, monkeypatch, capsys):
    path, steps = tmp_path / "stopped", fit.run_steps

    def stopped(state, *args):
        if int(np.max(state.step)) == 2:
            signal.raise_signal(signal.SIGINT)
        return steps(state, *args)

    monkeypatch.setattr(fit, "run_steps", stopped)
    with pytest.raises(SystemExit) as stop:
        sweep.sweep([*FLAGS, "--run_dir", str(path)])
    assert stop.value.code == 130 and selection.steps(path / FOLDER / "checkpoints") == [4]
    assert read(path)["members"] == [] and f"the same flags with --run_dir {path} go on" in capsys.readouterr().err
    monkeypatch.setattr(fit, "run_steps", steps)
    sweep.sweep(["--run_dir", str(path), *FLAGS])
    assert read(path) == read(whole)
    one, other = last_state(path / FOLDER), last_state(whole / FOLDER)
    assert {name: leaf.tobytes() for name, leaf in one.items()} == {n: leaf.tobytes() for n, leaf in other.items()}


def test_what_is_measured_is_not_measured_again(whole, quick, tmp_path, monkeypatch):
    path = shutil.copytree(whole, tmp_path / "copy")
    result = json.loads((path / "sweep.json").read_text())
    kept, result["members"] = result["members"], result["members"][:3]
    result["members"][0]["mark"] = "kept"
    (path / "sweep.json").write_text(json.dumps(result))
    sweep.sweep([*FLAGS, "--run_dir", str(path)])
    members = read(path)["members"]
    assert members[0].pop("mark") == "kept" and members == read(whole)["members"] and len(kept) == 4
    monkeypatch.setattr(sweep, "train", None)
    before = (path / "sweep.json").read_bytes()
    sweep.sweep([*FLAGS, "--run_dir", str(path)])
    assert (path / "sweep.json").read_bytes() == before


@pytest.mark.parametrize(
    "harm",
    [
        lambda result: {},
        lambda result: result | {"members": 4},
    ],
)
def test_damaged_records_are_named_and_left_as_they_are(whole, tmp_path, harm):
    path = shutil.copytree(whole, tmp_path / "copy")
    before = json.dumps(harm(json.loads((path / "sweep.json").read_text())))
    (path / "sweep.json").write_text(before)
    with pytest.raises(UserError, match="sweep.json is damaged: restore it from a copy") as caught:
        sweep.sweep([*FLAGS, "--run_dir", str(path)])
    assert caught.value.exit_code == CHECKPOINT and (path / "sweep.json").read_text() == before


def test_a_directory_of_other_flags_is_refused_and_left_as_it_is(whole, tmp_path):
    before = {file: file.read_bytes() for file in whole.rglob("*") if file.is_file() and file.name != ".lock"}
    with pytest.raises(UserError, match="whole is of other flags .*--members 2.* give another --run_dir") as caught:
        sweep.sweep([*FLAGS, "--run_dir", str(whole), "--steps", "8"])
    assert caught.value.exit_code == USAGE
    assert before == {file: file.read_bytes() for file in before}
    # A default that has changed since leaves the flags alike and the settings not.
    copy = shutil.copytree(whole, tmp_path / "copy")
    config, result = (json.loads((copy / file).read_text()) for file in (f"{FOLDER}/config.json", "sweep.json"))
    config["flags"]["optimizer"]["beta1"] = 0.5
    (copy / FOLDER / "config.json").write_text(json.dumps(config))
    (copy / "sweep.json").write_text(json.dumps(result | {"members": []}))
    with pytest.raises(UserError, match="01 was trained with other settings"):
        sweep.sweep([*FLAGS, "--run_dir", str(copy)])


@pytest.mark.usefixtures("without_pictures")
def test_a_loss_that_is_not_finite_costs_its_member_alone(tmp_path, monkeypatch):
    """Or its program, where no member's is finite."""

    def train(path, program):
        if "n_heads=2" in path.name:
            raise UserError("the loss of seed 0 is not finite", NON_FINITE)
        found = untrained(path, program)
        measured = {"exact": [0.5, None, 0.5, 0.25], "validation_loss": [1.0, None, 1.0, 1.0]}
        files.append_record(path / "metrics.jsonl", {"step": 4, "seconds": 9} | measured)
        return found

    monkeypatch.setattr(sweep, "train", train)
    monkeypatch.setattr(generalization, "suites", lambda *_: {"in distribution": "rows"})
    shares = [{"what": "some", "terms": 4, "teacher_forced": 0.5, "free_running": k / 4} for k in range(3)]
    measured = iter(shares)
    monkeypatch.setattr(generalization, "measure", lambda *_: next(measured))
    flags = f"{TINY} --n_heads 1,2 --learning_rate 1e-3,1e-2 --members 2 --no_certify --run_dir {tmp_path / 'sweep'}"
    names = [f"n_heads 1, learning_rate 1e-3; n_heads 2, learning_rate {rate}" for rate in ("1e-3", "1e-2")]
    pattern = f"^{names[0]}; {names[1].partition('; ')[2]}: a loss was not finite, lower --learning_rate there"
    for _ in range(2):  # what failed is not trained again
        with pytest.raises(UserError, match=pattern) as caught:
            sweep.sweep(flags.split())
        assert caught.value.exit_code == NON_FINITE
        monkeypatch.setattr(sweep, "train", None)
    members = read(tmp_path / "sweep")["members"]
    assert [m["failed"] for m in members] == [False, True, False, False] + 4 * [True]
    assert members[1]["suites"] == {} and members[3]["suites"]["in distribution"] == shares[2]
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert "| n_heads 1, learning_rate 1e-3 | 2 (1 failed) |" in table
    assert (
        "| n_heads 1, learning_rate 1e-2 | 2 |" in table and "| n_heads 2, learning_rate 1e-3 | 2 (2 failed) |" in table
    )


@pytest.mark.usefixtures("without_pictures")
def test_contexts_are_asked_of_members_that_were_not_wrong(tmp_path, monkeypatch):
    suite = {"what": "some", "terms": 4, "free_running": 0.5}
    measured = iter(2 * [suite | {"teacher_forced": share} for share in (1.0, 0.75, 1.0)])
    certificates = iter([{"certified": True, "errors": 0}, {"certified": False, "errors": 5}])
    monkeypatch.setattr(sweep, "train", untrained)
    monkeypatch.setattr(generalization, "suites", lambda *_: {"in distribution": "rows"})
    monkeypatch.setattr(generalization, "measure", lambda *_: next(measured))
    monkeypatch.setattr(generalization, "certificate", lambda params, settings: next(certificates))
    flags = f"{TINY} --members 3 --window 5 --position relative --run_dir".split()
    sweep.sweep([*flags, str(tmp_path / "one")])
    told = [(m["certified"], m.get("errors")) for m in read(tmp_path / "one")["members"]]
    assert told == [(True, 0), (False, None), (False, 5)]
    sweep.sweep([*flags, str(tmp_path / "two"), "--no_certify"])
    assert [m["certified"] for m in read(tmp_path / "two")["members"]] == [None] * 3


# The report


def record(window, free_running, certified, **changes):
    suite = {"what": "differences 31 to 49", "terms": 10, "teacher_forced": 1.0, "free_running": free_running}
    names = {"in distribution": suite | {"what": "held-out lines"}, "unseen differences": suite, "more terms": None}
    combination = {"window": window}
    facts = {"combination": combination, "parameters": 1234, "suites": names, "certified": certified}
    return facts | {"seconds": 10.4, "failed": False}


MEMBERS = [
    record("None", 0.25, None),
    record("9", 0.99999, False),
    record("None", 0.5, None),
    record("9", 1.0, True),
    record("9", 1.0, True),
    record("7", 0.004, False),
]


def test_the_table_has_a_row_for_each_combination():
    assert tables.sweep(MEMBERS, grid.name, "python experiments/sweep.py --window None,9,7") == (
        """`python experiments/sweep.py --window None,9,7`

Predictable terms exactly right, free-running, in %: median over the seeds (worst to best, where they differ). Seconds
are those of training and measuring all seeds.

| combination | seeds | parameters | in distribution | unseen differences | more terms | certified | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| window None | 2 | 1,234 | 37.5 (25.0 to 50.0) | 37.5 (25.0 to 50.0) | - | - | 21 |
| window 9 | 3 | 1,234 | 100.0 (99.9 to 100.0) | 100.0 (99.9 to 100.0) | - | 2 of 3 | 31 |
| window 7 | 1 | 1,234 | 0.4 | 0.4 | - | 0 of 1 | 10 |

- in distribution: held-out lines
- unseen differences: differences 31 to 49
- more terms: there are none"""
    )


def test_the_table_of_a_task_without_suites_has_its_validation_rows():
    facts = {"combination": {"d_model": "8"}, "parameters": 7, "suites": {}, "certified": None, "failed": False}
    found = [{"loss": 0.5, "exact": 0.25}, {"loss": 0.25, "exact": 1.0}]
    members = [facts | {"validation": validation, "seconds": 1.0} for validation in found]
    members.append(members[0] | {"combination": {"d_model": "9"}, "validation": {"loss": 0.125}})
    table = tables.sweep(members, grid.name, "apformer sweep --d_model 8,9")
    assert table.endswith(
        """
| combination | seeds | parameters | validation loss | exact | seconds |
| --- | ---: | ---: | ---: | ---: | ---: |
| d_model 8 | 2 | 7 | 0.3750 (0.5000 to 0.2500) | 62.5 (25.0 to 100.0) | 2 |
| d_model 9 | 1 | 7 | 0.1250 | - | 1 |"""
    )


def test_the_figure_shows_every_member():
    suites = [[m["suites"] for m in MEMBERS if m["combination"]["window"] == window] for window in ("None", "7")]
    rows = [("window None", [(50, [0.0, 0.5])], suites[0]), ("window 7", [(50, [0.25])], suites[1])]
    training, plain, _, missing = figures.sweep(rows).axes
    dots = [sorted(points.get_offsets()[:, 0]) for points in plain.collections if hasattr(points, "get_sizes")]
    assert [[100, 100], [25, 50]] == dots[:2] and dots[-1] == [0.4]
    assert [text.get_text() for text in missing.texts] == ["none", "none"]
    assert [label.get_text() for label in training.get_yticklabels()] == ["window None", "window 7"]


def test_a_sweep_leaves_its_table_and_figure(whole):
    assert "| learning_rate 1e-2 | 2 |" in (whole / "table.md").read_text()
    assert (whole / "figures" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert read(whole)["versions"]["jax"] == jax.__version__
