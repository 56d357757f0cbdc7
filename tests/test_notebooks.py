"""What a notebook owes its reader, and its repository; tests/notebooks runs them."""

import importlib.util
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    """The text of the cells of a kind."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_seven_notebooks_ask_a_question_and_answer_it_and_their_first_cell_is_the_same():
    assert [path.stem[0] for path in NOTEBOOKS] == [*"1234567"]
    install = cells(NOTEBOOKS[0], "code")[0]
    assert '("jax", "jaxlib", "numpy")' in install and PIP in install
    assert "metadata.version(name)" in install and "jax.devices()" in install
    for path in NOTEBOOKS:
        texts, code = cells(path, "markdown"), cells(path, "code")
        assert texts[0].startswith("# ") and texts[0].splitlines()[0].endswith("?"), path
        assert "## The answer" in texts[-1], path
        assert "OWNER" not in path.read_text() and "github.com" not in path.read_text(), path
        assert code[0] == install, path
        assert 'SMALL = bool(os.environ.get("APFORMER_SMALL"))' in code[1], path
        assert 'drive.mount("/content/drive")' in code[1] and "train_or_resume" in "".join(code), path
        lines = [line for text in code for line in text.splitlines()]
        assert sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines) <= 100, path
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == [] and cell["execution_count"] is None, path


PIP = '%pip install -q {keep} "apformer[text] @ {where}"'


def installed_from(source, monkeypatch, importable):
    """Where the first cell would install apformer from: a list of one URL, or of none."""
    asked = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if importable else None)
    cell = cells(NOTEBOOKS[0], "code")[0].replace(PIP, "asked.append(where)").replace('".."', repr(source))
    exec(cell, {"asked": asked})
    return asked


def test_the_first_cell_installs_only_what_is_not_there(monkeypatch):
    assert installed_from("..", monkeypatch, importable=True) == []


@pytest.mark.parametrize("source", ["git+https://example.org/apformer", "https://example.org/apformer.whl"])
def test_the_first_cell_installs_from_a_url(source, monkeypatch):
    assert installed_from(source, monkeypatch, importable=False) == [source]


@pytest.mark.parametrize("source", ["..", "apformer-0.3.0-py3-none-any.whl"])
def test_the_first_cell_installs_from_a_folder_or_a_wheel(source, monkeypatch, tmp_path):
    (tmp_path / "notebooks here").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks here")
    assert installed_from(source, monkeypatch, importable=False) == [Path(source).resolve().as_uri()]
