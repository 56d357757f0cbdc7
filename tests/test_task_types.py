"""A type checker finds that every task, and that of docs/own_task, is what `tasks.Task` says."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from apformer import tasks

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed"),
]


def test_every_task_is_a_task_to_a_type_checker(tmp_path):
    """And a module that is none is found, at its line and no other."""
    names = [*tasks.OWN, "batch"]
    lines = ["import reverse", f"from apformer.tasks import Task, {', '.join(names)}", "own: Task = reverse"]
    lines += [f"{name}_: Task = {name}" for name in names]
    (tmp_path / "check.py").write_text("\n".join(lines) + "\n")
    settings = {"include": ["check.py"], "extraPaths": [str(ROOT), str(ROOT / "docs" / "own_task")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    others = [each["message"] for each in found if each["range"]["start"]["line"] != len(lines) - 1]
    assert not others, "\n\n".join(others)
    assert len(found) == 1 and '"check" is not present' in found[0]["message"], found
