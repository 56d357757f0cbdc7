"""README.md and apformer/README.md, the maps of the project, against the files that there are."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "apformer"


def mapped():
    """The files that the map names, from the indentation of its lines."""
    block = re.search(r"## Files\n\n```\n(.*?)```", (PACKAGE / "README.md").read_text("utf-8"), re.DOTALL)[1]
    folders, files = [], set()
    for line in filter(None, block.splitlines()):
        indent, name = re.match(r"( *)(\S+)", line).groups()
        folders = folders[: len(indent) // 2]
        if name.endswith("/"):
            folders.append(name)
        else:
            files.add("".join([*folders, name]))
    return files


def test_the_map_names_every_file_of_the_package_and_no_other():
    modules = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")}
    named = {name for name in mapped() if name.endswith(".py")}
    assert sorted(named - modules) == [], "these lines of apformer/README.md name no file"
    assert sorted(modules - named) == [], "these files have no line in apformer/README.md"


def named_in_readme(text):
    """Paths of Python files in backticks, relative to the package; a bare name is in the folder of the one before."""
    folder, paths = "", []
    for name in re.findall(r"`([\w/]+\.py)`", text):
        if "/" in name or (PACKAGE / name).exists():
            folder = name.rpartition("/")[0]
            paths.append(name)
        else:
            paths.append(f"{folder}/{name}")
    return paths


def test_the_readme_names_files_that_there_are():
    text = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in named_in_readme(text) if not (PACKAGE / name).exists()] == []
    links = re.findall(r"\]\(((?!https?:|#)[^)#]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_reading_path_is_short():
    text = (ROOT / "README.md").read_text("utf-8")
    paths = named_in_readme(re.search(r"\*\*Read in this order\*\*(.*?)\n\n", text, re.DOTALL)[1])
    lines = sum(len((PACKAGE / path).read_text("utf-8").splitlines()) for path in paths)
    assert len(paths) >= 6 and lines <= 1500


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1500


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
