"""The progress bar shows in a terminal and in a notebook, and says what it waits for."""

import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

from apformer.report import progress
from apformer.runs import metrics
from apformer.tasks.progressions import recipes

PACKAGE = Path(__file__).parents[1] / "apformer"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stderr", "notebook", "seen"),
    [(Terminal(), False, True), (io.StringIO(), True, True), (io.StringIO(), False, False), (None, False, False)],
    ids=["terminal", "notebook", "file", "closed"],
)
def test_a_bar_shows_where_someone_sees_it(stderr, notebook, seen, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with progress.bar(total=3, desc="certify") as bar:
        assert bar.disable != seen
        bar.update(3)
    assert progress.bar(range(3), disable=True).disable
    if stderr is not None:
        assert ("certify: 100%" in stderr.getvalue()) == seen


def test_training_says_that_it_compiles_until_the_first_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with metrics.Log(tmp_path / "metrics.jsonl", recipes.exact(), 0, 1e-3) as lines:
        assert progress.COMPILING in sys.stderr.getvalue() and "minute" in progress.COMPILING
        before = len(sys.stderr.getvalue())
        lines.pending = 10, {"loss": [2.0]}, None
        lines.flush()
        lines.bar.refresh()
    after = sys.stderr.getvalue()[before:]
    assert "loss 2.0000" in after.splitlines()[-1].split("\r")[-1] and progress.COMPILING not in after.split("\r")[-1]


def test_every_bar_is_this_one():
    users = {path.name for path in PACKAGE.rglob("*.py") if "import tqdm" in path.read_text()}
    assert users == {"progress.py"}
