"""README.md and apformer/README.md, the maps of the project, against the files that there are."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "apformer"


def test_the_map_names_every_room_and_no_other():
    """A room is a folder or a file of the package itself."""
    block = re.search(r"## Rooms\n\n```\n(.*?)```", (PACKAGE / "README.md").read_text("utf-8"), re.DOTALL)[1]
    named = re.findall(r"^(\S+)", block, re.MULTILINE)
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    files = {path.name for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert sorted(named) == sorted(folders | files)


def test_the_map_names_files_that_there_are():
    text = (PACKAGE / "README.md").read_text("utf-8")
    names = re.findall(r"`((?:tests|docs|commands|layers|tasks)/[\w./]+)`", text)
    names = [name for name in names if "NAME" not in name]
    assert names
    assert [name for name in names if not ((PACKAGE / name).exists() or (ROOT / name).exists())] == []


def file(name):
    """A path of README.md: in the package, or else in the repository."""
    return PACKAGE / name if (PACKAGE / name).exists() else ROOT / name


def named_in_readme(text):
    """[(path of a Python file in backticks, names that follow it)]; a bare name is in the folder of the one before."""
    folder = ""
    found = []
    for name, after in re.findall(r"`([\w/]+\.py)`(?:\]\([^)]*\))?((?:,? `[A-Za-z_]\w*`)*)", text):
        if "/" in name or (PACKAGE / name).exists():
            folder = name.rpartition("/")[0]
        else:
            name = f"{folder}/{name}"
        found.append((name, re.findall(r"\w+", after)))
    return found


def test_the_readme_names_functions_that_there_are():
    """Of each file that it names; and so does the page of the sketch."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/from-your-sketch.md")]
    named = [each for text in texts for each in named_in_readme(text)]
    assert sum(len(names) for _, names in named) > 20
    faults = []
    for path, names in named:
        nodes = ast.parse(file(path).read_text("utf-8")).body
        there = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        faults += [f"{path} has no {name}" for name in names if name not in there]
    assert not faults


def test_the_reading_path_is_short():
    text = (ROOT / "README.md").read_text("utf-8")
    paths = named_in_readme(re.search(r"in order:\*\*(.*?)\n\n", text, re.DOTALL)[1])
    lines = sum(len((PACKAGE / path).read_text("utf-8").splitlines()) for path, _ in paths)
    assert len(paths) >= 6 and lines <= 1500


def test_every_axis_letter_is_in_the_glossary():
    """And every letter of the glossary is in use."""
    glossary = set(re.findall(r"^\| `(.)` \|", (PACKAGE / "README.md").read_text("utf-8"), re.MULTILINE))
    names = [
        getattr(node, "id", None) or getattr(node, "arg", None) or ""
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    suffixes = [name.rpartition("_")[2] for name in names if re.fullmatch(r"[a-z]\w*_[A-Z0-9]+", name)]
    assert set(re.sub(r"\d", "", "".join(suffixes))) == glossary
