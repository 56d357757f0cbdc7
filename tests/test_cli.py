"""The command line: what works prints what was asked for, and every fault is one sentence with its exit code."""

import contextlib
import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

import apformer
from apformer import cli, tasks
from apformer.commands import train
from apformer.errors import CHECKPOINT, DATA, USAGE
from apformer.files import read_json
from apformer.runs import directory
from apformer.runs.metrics import read_metrics
from apformer.tasks.progressions import training
from tests.helpers.own_process import ROOT, python

MODEL = "--d_model 16 --n_layers 2 --n_heads 2 --position relative --window 7 --dropout 0.1"
TASK = "--digits 2 --max_difference 30 --max_terms 6 --test_sequences 50"
PACE = (
    "--steps 80 --batch_size 8 --log_every 2 --save_every 40 --learning_rate 0.01 --warmup_steps 5 --weight_decay 0.1"
)
FLAGS = f"--recipe sketch --rule adamw --hard_fraction 0 --prefix_rows 0 --long_rows 0 {MODEL} {TASK} {PACE}".split()


@pytest.fixture(autouse=True)
def few_validation_rows(monkeypatch):
    monkeypatch.setattr(training, "VALIDATION_ROWS", 32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory in which `apformer train` was called once, and what it printed."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(training, "VALIDATION_ROWS", 32)
        with open("out", "w") as out, open("err", "w") as err:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            assert cli.main(["train", *FLAGS]) == 0
    return folder


@pytest.fixture
def run(trained, monkeypatch):
    """The name of the trained run, from the directory it was called in."""
    monkeypatch.chdir(trained)
    return str(directory.find())


@pytest.fixture
def copy(trained, run, tmp_path):
    """A copy of the trained run, to be spoilt."""
    return shutil.copytree(trained / run, tmp_path / "copy")


def test_help_does_not_wait_for_jax():
    program = "import sys; from apformer import cli; assert cli.main(['--help']) == 0; assert 'jax' not in sys.modules"
    assert python("-c", program).stderr == ""


def test_no_command_prints_the_help_and_fails(capsys):
    assert cli.main([]) == USAGE
    assert capsys.readouterr().err == cli.help_text()


def test_the_version_is_that_of_the_package(says):
    assert says("--version") == f"apformer {apformer.__version__}\n"


def test_the_help_of_train_names_every_recipe(says):
    shown = says("train", "--help")
    for recipe in tasks.recipes():
        assert re.search(rf"^  {recipe} +[A-Za-z]", shown, re.MULTILINE), recipe


def test_the_commands_are_the_files_of_their_folder():
    """Whatever is dropped there is a command; those of everyday use come first."""
    files = {path.stem for path in (ROOT / "apformer" / "commands").glob("*.py") if path.stem[0] != "_"}
    assert set(cli.commands()) == files and len(cli.commands()) == len(files)
    others = cli.commands()[len(cli.ORDER) :]
    assert cli.commands()[:3] == ["train", "resume", "predict"] and "doctor" in others and others == sorted(others)


def test_every_command_has_a_line_of_help_a_help_of_its_own_and_refuses_flags_that_are_not_there(capsys, fails):
    for command in cli.commands():
        module = importlib.import_module(f"apformer.commands.{command}")
        line = rf"^  {command} +{re.escape(module.__doc__.splitlines()[0])}$"
        assert module.__doc__[0].isupper() and re.search(line, cli.help_text(), re.MULTILINE), command
        assert cli.main([command, "--help"]) == 0
        out, err = capsys.readouterr()
        assert f"usage: apformer {command}" in out and err == ""
        fails(f"apformer {command} --help", USAGE, command, "--qwerty", "1")


def test_a_command_that_is_not_there(fails):
    fails("no command predcit: did you mean predict", USAGE, "predcit")
    fails("no command 42: give one of train, resume", USAGE, "42")
    fails("did you mean --version", USAGE, "--verion")


def test_a_run_is_finished_though_nobody_reads_what_it_prints(monkeypatch):
    ours, theirs = os.pipe()
    os.close(ours)
    with contextlib.suppress(BrokenPipeError), open(theirs, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        train._tell("the table")
        train._tell("where the page is")


def test_train_prints_the_table_and_what_to_try(trained, run):
    out, err = (trained / "out").read_text(), (trained / "err").read_text()
    assert "predictable terms" in out and "nats per character" in out
    assert f'apformer predict {run} "07 10 13" --terms 3' in out
    assert [line for line in err.splitlines() if "saving" in line] == [
        line for line in err.splitlines() if line.startswith(("step 40:", "step 80:"))
    ]
    assert "\r" not in err and "%|" not in err  # no bar in a file
    assert "parameters, 80 steps" in err


def test_a_run_holds_what_the_readme_says(run):
    path = Path(run)
    assert {file.name for file in path.iterdir()} >= {"config.json", "metrics.jsonl", "checkpoints", "evaluation.json"}
    assert {file.name for file in (path / "figures").iterdir()} >= {"loss.png", "accuracy_by_position.png"}
    config = read_json(path / "config.json")
    assert (config["task"], config["architecture"]) == ("progressions", "model")
    assert config["flags"]["model"]["d_model"] == 16 and config["flags"]["training"]["steps"] == 80
    assert config["data"] == {"source": "sampler"} and config["versions"]["jax"]
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == list(range(2, 81, 2))
    assert [line["step"] for line in lines if "validation_loss" in line] == [40, 80]
    assert lines[-1]["loss"] < lines[0]["loss"]


KEYS = {"terms", "exact_teacher_forced", "exact_free_running", "nats_per_char", "bayes_floor", "excess"}


def test_evaluate_prints_one_json_object_equal_to_the_file(run, says):
    result = json.loads(says("evaluate", run, "--json"))
    assert KEYS <= set(result) and result["sequences"] == 50
    assert result == read_json(Path(run) / "evaluation.json")
    assert result["excess"] == pytest.approx(result["nats_per_char"] - result["bayes_nats_per_char"])


def test_arguments_of_predict(run, fails):
    fails("prompt in quotes", USAGE, "predict", run)
    fails("3 arguments", USAGE, "predict", "07", "10", "13")
    fails("words that; give the prompt in quotes", USAGE, "generate", "this", "that")
    fails("--terms 0 is out of range: give at least 1", USAGE, "predict", run, "07 10", "--terms", "0")
    fails("--file rows.txt takes the place", USAGE, "predict", run, "07 10", "--file", "rows.txt")
    fails("rows.txt cannot be read", DATA, "predict", run, "--file", "rows.txt")


def changed(config, part, name, value):
    """The text of a config.json with another value."""
    flags = config["flags"] | {part: config["flags"][part] | {name: value}}
    return json.dumps(config | {"flags": flags})


@pytest.mark.parametrize("command", [["resume"], ["evaluate"], ["predict", "07 10"]], ids=lambda command: command[0])
def test_what_is_wrong_with_a_run_directory_is_said_by_every_command_that_reads_one(command, fails, copy, tmp_path):
    """What else may be wrong: tests/runs."""
    fails("nothing is not a directory", USAGE, command[0], tmp_path / "nothing", *command[1:])
    with contextlib.chdir(tmp_path):
        fails("has no latest run: train one", USAGE, *command)
    config = read_json(copy / "config.json")
    for text, exit_code, sentence in (
        (changed(config, "model", "d_model", 32), CHECKPOINT, "is of another model: "),
        (json.dumps(config | {"task": "os"}), USAGE, "config.json: there is no task 'os' here, only "),
        (json.dumps(config | {"architecture": "this"}), USAGE, "no architecture 'this' here, only model, "),
        (json.dumps(config | {"architecture": "seq2seq"}), CHECKPOINT, "architecture seq2seq is none of model"),
    ):
        (copy / "config.json").write_text(text)
        fails(sentence, exit_code, command[0], copy, *command[1:])
    assert "this" not in sys.modules  # which a run cannot import


def test_a_dataset_that_cannot_be_read(fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content, sentence in (
        (None, "rows.txt cannot be read"),
        (b"007 010\n", "rows.txt has terms of 3 digits where --digits is 2: give --digits 3"),
        (b"07 10\n", "rows.txt has no validation rows"),
    ):
        if content is not None:
            Path("rows.txt").write_bytes(content)
        fails(sentence, DATA, "train", *FLAGS, "--dataset", "rows.txt")
    assert not Path("runs").exists()
