"""The shape of the house: who may import whom, and what a module owes its reader."""

import ast
import graphlib
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "apformer"

# Imports only go down. What is not named here stands on top, with the command line.
LEVELS = {
    "errors": 0,
    **dict.fromkeys(("layers", "data", "loss", "optimizer"), 1),
    **dict.fromkeys(("model", "seq2seq", "recurrent", "word2vec"), 2),
    **dict.fromkeys(("train", "evaluate", "agreement", "certify", "generate", "beam", "checkpoint", "manifest"), 3),
    "selection": 3,
    **dict.fromkeys(("wide_evaluate", "wide_certify", "runs", "report", "circuit"), 3),
    **dict.fromkeys(("gpt2", "gpt2_tensors", "tensor_file", "adapters", "ablate"), 3),
}
TOP = 4
MODELS = {"model", "seq2seq", "recurrent", "word2vec", "gpt2", "gpt2_tensors", "circuit", "layers"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def part(path):
    """The module or folder of the package that a file belongs to: layers/block.py is of `layers`."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path):
    """Every module that a file imports, at any place in the file, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: write the full name instead of a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def our_parts(path):
    return {name.split(".")[1] for name in imports(path) if name.startswith("apformer.")}


def outside(path):
    return {name.split(".")[0] for name in imports(path)}


each_module = pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))


@each_module
def test_imports_go_down(path):
    if part(path) == "__init__":
        assert not our_parts(path), "apformer/__init__.py is the map of the package; importing it imports nothing"
    level = LEVELS.get(part(path), TOP)
    above = {name for name in our_parts(path) if LEVELS.get(name, TOP) > level}
    assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)} from above"


def test_no_modules_import_each_other():
    graph = {path.stem: our_parts(path) for path in PACKAGE.glob("*.py")}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises on a cycle, and names it


@each_module
def test_parts_know_no_task_and_tasks_no_model(path):
    allowed = {
        "layers": {"layers"},
        "data": {"data", "errors"},
        "loss": {"errors", "layers"},
        "optimizer": {"errors", "layers"},
    }
    if part(path) in allowed:
        assert our_parts(path) <= allowed[part(path)]


@pytest.mark.parametrize("name", ["train", "evaluate", "certify", "generate", "beam", "wide_evaluate", "wide_certify"])
def test_models_are_handed_in(name):
    for path in (path for path in modules() if part(path) == name):
        assert not our_parts(path) & MODELS, f"{name} is handed functions, and imports no model"


@each_module
def test_flax_stays_in_the_models_and_orbax_in_one_file(path):
    if part(path) not in ("layers", "model", "seq2seq", "recurrent", "word2vec"):
        assert "flax" not in outside(path)
    if part(path) != "checkpoint":
        assert "orbax" not in outside(path)


@each_module
def test_nothing_imports_the_data_sets_or_the_experiments(path):
    assert not outside(path) & {"datasets", "experiments", "tests", "torch"}


@each_module
def test_a_module_is_short_and_says_what_it_is(path):
    tree = ast.parse(path.read_text())
    assert len(path.read_text().splitlines()) <= 300
    if tree.body:
        assert ast.get_docstring(tree), "a module begins with its idea, its equation and its source"
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    undocumented = [node.name for node in functions if not ast.get_docstring(node)]
    assert not undocumented, f"{undocumented} want a docstring: one sentence, then shapes, units and what is raised"


def test_scripts_are_short_and_say_what_they_are():
    for path in (*ROOT.glob("experiments/**/*.py"), *ROOT.glob("datasets/**/*.py")):
        assert ast.get_docstring(ast.parse(path.read_text())), path.relative_to(ROOT)
        assert len(path.read_text().splitlines()) <= 300, path.relative_to(ROOT)


def test_the_folder_of_data_sets_is_no_package():
    """Else `import datasets` from the root would find it instead of the library of that name."""
    assert not list(ROOT.glob("datasets/**/__init__.py"))


def test_the_lowest_versions_that_are_tested_are_those_that_are_promised():
    promised = " ".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    tested = re.findall(r"^([\w-]+)==(.+)$", (ROOT / ".ci" / "floors.txt").read_text(), re.MULTILINE)
    assert {"jax", "numpy"} < {name for name, _ in tested}
    for name, version in tested:
        assert f"{version}.".startswith(re.search(rf"(?<!\S){name}>=([\d.]+)", promised)[1] + "."), name


def test_notebooks_define_nothing():
    """They call the library; what is worth a name stands in a module, where it is tested."""
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                lines = "".join(cell["source"]).splitlines()
                tree = ast.parse("\n".join(line for line in lines if line.lstrip()[:1] not in ("!", "%")))
                definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
                assert not [node for node in ast.walk(tree) if isinstance(node, definitions)], path.relative_to(ROOT)
