"""A few cases of trials of experiments/faults, of which `python experiments/reliability.py` makes thousands."""

import importlib
import re
import shutil
from functools import cache, partial

import pytest

pytestmark = pytest.mark.faults
reliability, runs = map(importlib.import_module, ["reliability", "faults._runs"])
# Of each trial: the cases of its small form, the figures that must be 0, and the least that others must be.
SMALL = {
    "calls": (4, ("lost", "unequal", "unsaid", "silent"), {"cases": 3, "calls": 300}),
    "corruption": (36, ("silent",), {"back": 1, "refused": 1, "newest": 15, "older": 5}),
    "resumes": (3, (), {"equal": 3, "again": 1}),
    "kills": (4, ("lost", "unequal"), {"cases": 4, "most": 1}),
    "stops": (5, ("lost", "unequal", "unsaid"), {"cases": 5, "pipes": 2, "twice": 1, "terminal": 1}),
}
OTHERS = {"fuzz", "planted"}  # with tests of their own
LARGE = {"plain", "stale"}  # other libraries, and two kills a case: for experiments/reliability.py alone


@pytest.fixture(scope="module", autouse=True)
def one_run(tmp_path_factory):
    """The run that several trials damage is trained once."""
    damage = importlib.import_module("faults._damage")
    made = cache(partial(damage.run, tmp_path_factory.mktemp("damage") / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "run", lambda path: shutil.copytree(made(), path))
        yield


def trial(name):
    return importlib.import_module(f"faults.{name}")


@pytest.mark.parametrize("name", SMALL)
def test_the_promise_of_a_trial_holds_in_a_few_cases(name, tmp_path, monkeypatch):
    cases, never, least = SMALL[name]
    if name == "calls":
        _, reason = runs.shim(tmp_path)
        if reason is not None:
            pytest.skip(reason)
    if name == "stops":
        monkeypatch.setattr(trial(name), "KINDS", ("train",))
        monkeypatch.setattr(trial(name), "WAYS", ("once", "twice", "full err", "closed out", "terminal"))
    found = trial(name).measure(cases, tmp_path)
    assert {figure: found[figure] for figure in never} == dict.fromkeys(never, 0)
    assert {figure: count for figure, count in least.items() if found[figure] < count} == {}, found


def test_each_trial_is_tried_and_says_what_it_promises():
    assert {*SMALL} | OTHERS | LARGE == {*reliability.NAMES}
    for module in map(trial, reliability.NAMES):
        assert module.QUESTION.endswith("?") and module.CASES > 0 and re.search(r"\{cases:", module.CLAIM)
        assert module.__doc__ and callable(module.measure)


def test_what_was_found_before_a_stop_is_not_sought_again(tmp_path):
    assert runs.map_cached([("kill", 1), ("kill", 2)], lambda server, item: item[1], tmp_path, desc="some") == [1, 2]
    with open(tmp_path / runs.FOUND, "a") as kept:
        kept.write('[["kill", 3], ')  # a line that a stop has cut
    for new in (4, 5):
        items = [("kill", 2), ("kill", new)]
        assert runs.map_cached(items, lambda server, item: item[1], tmp_path, desc="some") == [2, new]
