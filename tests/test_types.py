"""A type checker finds the faults of a user's program, and that every task is what `tasks.Task` says.

It is no part of the extras, and is left out where it is not there.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from apformer import tasks
from apformer.files import write_json

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pip install pyright"),
]

ROOT = Path(__file__).parents[1]
PROGRAM = """
import jax
import apformer
from apformer import model

cfg = model.Config(n_heads={n_heads}, position={position})
run = apformer.load("runs/latest")
print(run.{model}.apply(run.params))
print(model.apply(model.init(jax.random.key(0), cfg), {tokens}, cfg))
"""
RIGHT = {"n_heads": "4", "position": '"rotary"', "model": "model", "tokens": "jax.numpy.zeros((1, 3), int)"}
WRONG = {"n_heads": '"four"', "position": '"rotry"', "model": "modle", "tokens": '"007 010"'}
TASKS = [*tasks.OWN, "reverse", "batch"]  # that of docs/own_task, and a module that is none
LINES = ["import reverse", f"from apformer.tasks import Task, {', '.join([*tasks.OWN, 'batch'])}"]
LINES += [f"{name}_: Task = {name}" for name in TASKS]
PROGRAMS = {"right": PROGRAM.format(**RIGHT), "wrong": PROGRAM.format(**WRONG), "tasks": "\n".join(LINES)}


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """{program: [(line, message)] of the errors that the type checker finds}"""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(text)
    paths = [str(ROOT), str(ROOT / "docs" / "own_task")]
    write_json(folder / "pyrightconfig.json", {"include": ["*.py"], "extraPaths": paths})
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    found = {name: [] for name in PROGRAMS}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).stem].append((each["range"]["start"]["line"] + 1, each["message"]))
    return found


def test_the_four_faults_of_a_program_are_found_and_none_in_a_right_one(faults):
    assert faults["right"] == [] and sorted(line for line, _ in faults["wrong"]) == [6, 6, 8, 9]


def test_every_task_is_a_task(faults):
    """And a module that is none is found, at its line and no other."""
    ((line, message),) = faults["tasks"]
    assert line == len(LINES) and '"check" is not present' in message
