"""A task of a user's own: the folder docs/own_task, built, installed and used from outside of the repository."""

import functools
import json
import os
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import cli, tasks
from apformer.decoding.bind import Model
from apformer.errors import DATA, USAGE
from apformer.files import read_json, write_json
from apformer.runs import recipes
from apformer.tasks import settings_file
from tests.helpers.own_process import ROOT, python

FOLDER = ROOT / "docs" / "own_task"
TINY = "--recipe reverse --longest 2 --d_model 8 --n_layers 1 --n_heads 1 --batch_size 4 --test_sequences 20"
PACE = "--steps 2 --log_every 1 --save_every 1 --warmup_steps 0"

# All commands in one process, since each process compiles.
PROGRAM = """
import contextlib, io, json, sys
from apformer import cli
found = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


@pytest.mark.long
def test_the_folder_is_installed_and_every_command_works_on_its_task(tmp_path):
    pip = "-m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --no-index --target".split()
    python(*pip, tmp_path / "site", FOLDER, cwd=tmp_path)
    commands = (
        f"train {TINY} {PACE} --run_dir run",
        "evaluate run --json",
        "predict run 12=",
        "predict run 12a=",
        "predict run 123456",
        "report run",
        "resume run --step 1",
        "doctor run",
        f"sweep {TINY} {PACE} --learning_rate 0.001,0.01 --members 2 --run_dir sweep",
    )
    paths = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    done = python("-c", PROGRAM, json.dumps([words.split() for words in commands]), cwd=tmp_path, PYTHONPATH=paths)
    train, evaluate, predict, wrong, long, report, resume, doctor, sweep = json.loads(done.stdout)
    assert train[0] == 0 and "Try it: apformer predict run " in train[1] and "No page" not in train[1], train
    assert evaluate[0] == 0 and json.loads(evaluate[1])["strings"] == 20
    assert predict[0] == 0 and re.fullmatch(r"[0-9=]*\n", predict[1])
    assert wrong[:2] == [DATA, ""] and "line 1: has the character 'a'; the characters are 0123456789=" in wrong[2]
    assert long[:2] == [DATA, ""]
    assert report[0] == 0 and "continues strings of the task reverse" in (tmp_path / "run/report.html").read_text()
    assert resume[0] == 0 and "resumed at step 1 of 2" in resume[2]
    assert doctor[0] == 0 and "FAULT" not in doctor[1], doctor
    assert sweep[0] == 0, sweep
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert "| learning_rate 0.01 | 2 |" in table and "| validation loss | exact | seconds |" in table
    members = read_json(tmp_path / "sweep" / "sweep.json")["members"]
    assert [set(member["validation"]) for member in members] == [{"loss", "exact"}] * 4
    assert (tmp_path / "sweep" / "figures" / "sweep.png").exists()


def test_the_folder_is_short():
    lines = {path.name: path.read_text().splitlines() for path in FOLDER.glob("*.*")}
    assert {*lines} == {"README.md", "pyproject.toml", "reverse.py"} and sum(map(len, lines.values())) < 120


@pytest.fixture
def bring(tmp_path, monkeypatch):
    """A function (package, task, module, its text or None) that installs a package of this process."""

    def install(package, task, module, text=None):
        facts = tmp_path / f"{package}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[apformer.tasks]\n{task} = {module}\n")
        if text is not None:
            (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.fixture
def reverse(bring):
    """The module of the task, found by its entry point."""
    bring("apformer-reverse", "reverse", "reverse", (FOLDER / "reverse.py").read_text())
    return tasks.load("reverse")


def texts(batch, vocabulary):
    return ["".join(vocabulary[token] for token in row) for row in np.asarray(batch.tokens_BT)]


def test_its_strings_are_reversed_and_what_follows_the_sign_counts(reverse):
    settings = recipes.parse("--recipe reverse --longest 3".split())
    batch = reverse.sample(jax.random.key(0), settings, None)
    rows = texts(batch, reverse.VOCABULARY)
    assert {len(row.partition("=")[0]) for row in rows} == {1, 2, 3}
    for row, weights_T in zip(rows, np.asarray(batch.weights_BT), strict=True):
        given, _, answer = row.rstrip("\n").partition("=")
        assert answer == given[::-1] and len(row) == 8
        expected = [len(given) < place <= 2 * len(given) + 1 for place in range(8)]
        assert weights_T.tolist() == expected
    assert reverse.check(settings) == 8


def test_its_flags_are_refused_by_name(reverse, fails):
    for words, sentence in (
        ("--longest 0", "--longest 0 is out of range: give 1 to 100"),
        ("--vocab_size 9", "--vocab_size 9 is out of range: give 12"),
    ):
        fails(sentence, USAGE, "train", "--recipe", "reverse", *words.split())


def test_strings_are_judged_whole(reverse):
    settings = recipes.parse(TINY.split())
    end = Partial(lambda tokens_BT: jax.nn.one_hot(jnp.zeros_like(tokens_BT), 12))  # each character ends the string
    params = reverse.initial_params(jax.random.key(0), settings)
    found = reverse.evaluate(Model(end, end, end, params, settings.model), settings, None, lambda done, total: None)
    assert found.result["exact"] == 0
    assert [group["length"] for group in found.result["by_length"]] == [2, 3] and len(found.result["errors"]) == 20
    for error in found.result["errors"]:
        given, expected = error["given"], error["expected"]
        assert expected == given[-2::-1] + "\n" and error["predicted"] == "\n" * len(expected)
    assert "| " not in found.table and "all strings" in found.table and set(found.figures) == {"attention"}
    page = reverse.page(settings, None, None, found.result, Path())
    assert page["right"]["blocks"][0]["at"] == [2, 3] and len(page["wrong"]["rows"]) == 20


@pytest.mark.parametrize("field", ["task", "architecture", "flags model position", "flags optimizer rule"])
def test_the_doctor_imports_nothing_that_is_not_installed_for_a_run(field, tmp_path, capsys):
    config = settings_file.to_dict(recipes.parse([])) | {"versions": {}, "data": {}}
    *parts, name = field.split()
    functools.reduce(dict.get, parts, config)[name] = "this"
    write_json(tmp_path / "config.json", config)
    (tmp_path / "checkpoints" / "1").mkdir(parents=True)
    assert cli.main(["doctor", str(tmp_path)]) == USAGE
    said = capsys.readouterr().out
    sentence = "config.json: there is no [a-z]+ 'this' here, only .*: the package that brings it may not be installed"
    assert re.search(sentence, said) and said.count("\n") == 1
    assert "this" not in sys.modules
