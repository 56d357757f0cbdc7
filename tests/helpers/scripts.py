"""Scripts of experiments, which are no package."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

from apformer import flags
from apformer.files import read_json

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def load(*names):
    """The modules of these names, of experiments or of its studies."""
    folders = [str(EXPERIMENTS), str(EXPERIMENTS / "studies")]
    sys.path[:0] = folders
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        del sys.path[: len(folders)]


def run_alone(monkeypatch, path, *args):
    """The exit code of a script that is run as a program, by its path."""
    monkeypatch.setattr("sys.argv", [path.name, *map(str, args)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(path), run_name="__main__")
    return done.value.code


def main(monkeypatch, script, config, *args):
    """The exit code of a script."""
    monkeypatch.setattr("sys.argv", [f"{script.__name__}.py", *map(str, args)])
    return flags.script(f"{script.__name__}.py", config, script.run)


def left(path, name):
    """(numbers, table) that a study leaves, beside its figure."""
    assert (path / "figures" / f"{name}.png").stat().st_size > 5000
    table = read_json(path / "table.json")
    assert len({len(row) for row in table}) == 1
    return read_json(path / "evaluation.json"), table
