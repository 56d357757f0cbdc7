"""A few cases of each trial of experiments/faults, of which `python experiments/reliability.py` makes thousands."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
reliability, runs = importlib.import_module("reliability"), importlib.import_module("faults._runs")
# Of each trial: the cases of its small form, the figures that must be 0, and the least that others must be.
SMALL = {
    "calls": (8, ("lost", "unequal", "unsaid", "silent"), {"cases": 4, "calls": 300}),
    "corruption": (54, ("silent",), {"back": 1, "refused": 1, "newest": 20, "older": 8}),
    "healing": (3, (), {"healed": 3, "again": 3}),
    "kills": (5, ("lost", "unequal"), {"cases": 5, "most": 1}),
    "plain": (
        5 * 18,
        ("apformer",),
        {"apformer cases": 18, "orbax": 1},
    ),  # orbax is damaged unnoticed: faults are found
    "stale": (1, ("silent",), {"cases": 1}),
    "stops": (6, ("lost", "unequal", "unsaid"), {"cases": 6, "pipes": 1, "twice": 1}),
}


def trial(name: str) -> ModuleType:
    return importlib.import_module(f"faults.{name}")


@pytest.mark.parametrize("name", SMALL)
# Reads that orbax began beside one that failed end when nobody waits for them any more, each with a traceback.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_promise_of_a_trial_holds_in_a_few_cases(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cases, never, least = SMALL[name]
    if name in ("calls", "stale"):
        _, reason = runs.shim(tmp_path)
        if reason is not None:
            pytest.skip(reason)
    if name == "stops":
        monkeypatch.setattr(trial(name), "KINDS", ("train",))
        monkeypatch.setattr(trial(name), "WAYS", ("once", "twice", "fresh", "full err", "closed out", "terminal"))
    found = trial(name).measure(cases, tmp_path)
    assert {figure: found[figure] for figure in never} == dict.fromkeys(never, 0)
    assert {figure: count for figure, count in least.items() if found[figure] < count} == {}, found


def test_each_trial_is_tried_and_says_what_it_promises():
    assert {*SMALL} | {"planted", "fuzz"} == {*reliability.NAMES}
    for module in map(trial, reliability.NAMES):
        assert module.QUESTION.endswith("?") and module.CASES > 0 and re.search(r"\{cases:", module.CLAIM)
        assert module.__doc__ and callable(module.measure)


def test_what_was_found_before_a_stop_is_not_sought_again(tmp_path: Path):
    assert runs.over([("kill", 1), ("kill", 2)], lambda server, item: item[1], tmp_path, desc="some") == [1, 2]
    with open(tmp_path / runs.FOUND, "a") as kept:
        kept.write('[["kill", 3], ')  # a line that a stop has cut
    for new in (4, 5):
        assert runs.over([("kill", 2), ("kill", new)], lambda server, item: item[1], tmp_path, desc="some") == [2, new]


def test_what_a_directory_has_gained_and_lost_is_forgotten(tmp_path: Path):
    for name, files in (("earlier", ("both", "removed")), ("later", ("both", "new"))):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(name)
    assert trial("stale")._changed(tmp_path / "earlier", tmp_path / "later") == [""]
    trial("stale")._forget(tmp_path / "earlier", tmp_path / "later")
    texts = {path.name: path.read_text() for path in (tmp_path / "later").iterdir()}
    assert texts == {"both": "later", "removed": "earlier"}
