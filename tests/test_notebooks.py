"""What a notebook owes its reader, and its repository; tests/notebooks runs them."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
SKETCH, *NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    """The text of the cells of a kind."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_notebooks_ask_a_question_and_answer_it_and_their_first_cell_is_the_same():
    assert [path.stem[0] for path in NOTEBOOKS] == [*"1234567"]
    install = cells(SKETCH, "code")[0]
    for path in NOTEBOOKS:
        texts, code = cells(path, "markdown"), cells(path, "code")
        assert texts[0].startswith("# ") and texts[0].splitlines()[0].endswith("?"), path
        assert "## The answer" in texts[-1], path
        assert "github.com" not in path.read_text(), path
        assert code[0] == install, path
        assert 'SMALL = bool(os.environ.get("APFORMER_SMALL"))' in code[1], path
        assert 'drive.mount("/content/drive")' in code[1] and "train_or_resume" in "".join(code), path
        lines = [line for text in code[1:] for line in text.splitlines()]
        assert sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines) <= 100, path


def test_notebooks_hold_their_outputs():
    for path in (SKETCH, *NOTEBOOKS):
        code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        kinds = {kind for cell in code for output in cell["outputs"] for kind in output.get("data", {})}
        assert "image/png" in kinds and all(cell["execution_count"] for cell in code), path
        assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"]), path


def test_the_sketch_s_programs_are_those_of_its_page():
    page = (ROOT / "docs/from-your-sketch.md").read_text("utf-8").split("## Where everything stands")[0]
    programs = re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert cells(SKETCH, "code")[1:] == programs and "## Step 6" in "".join(cells(SKETCH, "markdown"))


def first_cell(source, monkeypatch, importable=False, code=0, said=""):
    """What pip is asked for by the first cell of a reader: the arguments of each call."""
    asked = []

    def run(args, **_):
        asked.append(args[args.index("-q") + 1 :])
        return SimpleNamespace(returncode=code, stderr=said)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: importable or None)
    monkeypatch.setattr(subprocess, "run", run)
    exec(cells(SKETCH, "code")[0].replace('SOURCE = "apformer"', f"SOURCE = {source!r}"), {})
    return asked


def test_the_first_cell_installs_only_what_is_not_there(monkeypatch):
    assert first_cell("apformer", monkeypatch, importable=True) == []


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("apformer", "apformer[text]"),
        ("apformer==0.3.0", "apformer[text]==0.3.0"),
        ("git+https://example.org/apformer", "apformer[text] @ git+https://example.org/apformer"),
        ("apformer-0.3.0-py3-none-any.whl", "apformer[text] @ {here}/apformer-0.3.0-py3-none-any.whl"),
        ("a folder", "apformer[text] @ {here}/a%20folder"),
    ],
)
def test_the_first_cell_installs_a_release_a_url_a_wheel_or_a_folder(source, asked, monkeypatch, tmp_path):
    (tmp_path / "a folder").mkdir()
    (tmp_path / "apformer-0.3.0-py3-none-any.whl").touch()
    monkeypatch.chdir(tmp_path)
    assert first_cell(source, monkeypatch) == [[asked.format(here=tmp_path.as_uri())]]


def test_the_first_cell_stops_with_a_sentence(monkeypatch):
    sentence = r"pip could not install apformer from apformer \(ERROR: No matching .*\): upload a wheel of apformer"
    with pytest.raises(SystemExit, match=sentence):
        first_cell("apformer", monkeypatch, code=1, said="ERROR: No matching distribution\n[notice] A new pip")
