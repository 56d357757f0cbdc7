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

# Imports only go down. A part is a folder or a file of the package; those of one rank may import one another.
RANKS = (
    ("errors", "files", "flags", "machine", "plugins"),
    ("layers", "loss", "optimizer", "settings", "tokenizers", "train"),
    ("model", "recurrent", "seq2seq", "word2vec"),
    ("analysis", "decoding", "formats", "proof", "report"),
    ("tasks",),
    ("runs",),
    ("commands",),
    ("__main__", "cli", "sweep"),
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
MODELS = {"formats", "layers", "model", "recurrent", "seq2seq", "word2vec"}
SHELF = 14  # modules of a folder, about


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


FOLDERS = sorted({path.parent for path in modules()})
each_module = pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))


def test_every_part_has_a_rank():
    assert {part(path) for path in modules()} - {"__init__"} == set(RANK)


@each_module
def test_imports_go_down(path):
    if part(path) == "__init__":
        assert not our_parts(path), "importing apformer imports nothing"
        return
    above = {name for name in our_parts(path) - {"__version__"} if RANK[name] > RANK[part(path)]}
    assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)} from above"


def test_no_parts_import_each_other():
    graph = {name: set() for name in RANK}
    for path in modules():
        graph.get(part(path), set()).update(our_parts(path) - {part(path)})
    list(graphlib.TopologicalSorter(graph).static_order())  # raises on a cycle, and names it


def test_no_modules_import_each_other():
    files = {full_name(path): path for path in modules()}
    graph = {name: imports(path) & files.keys() - {name, *packages(name)} for name, path in files.items()}
    list(graphlib.TopologicalSorter(graph).static_order())


def full_name(path):
    """apformer.runs.fit, or apformer.runs of its __init__.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def packages(name):
    """The packages that a module lies in: they are imported before it, whatever it says."""
    parts = name.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


@pytest.mark.parametrize("name", ["layers", "loss", "optimizer", "tokenizers", "train"])
def test_parts_know_no_task_and_tokenizers_no_model(name):
    allowed = {"tokenizers": {"errors", "files"}, "train": set()}.get(name, {"errors", "layers"})
    for path in (path for path in modules() if part(path) == name):
        assert our_parts(path) <= {name, *allowed}, path.relative_to(ROOT)


# A translator alone judges the one architecture that reads two texts.
HANDED_IN = ["train.py", "decoding/*.py", "tasks/*/certificate.py", "tasks/*/continuation.py"]
HANDED_IN += [f"tasks/{task}/evaluation.py" for task in ("digits", "progressions", "text")]


@pytest.mark.parametrize("pattern", HANDED_IN)
def test_models_are_handed_in(pattern):
    found = sorted(PACKAGE.glob(pattern))
    assert found
    for path in found:
        name = path.relative_to(ROOT)
        assert not our_parts(path) & MODELS, f"{name} is handed functions, and imports no model"


# Rows, and what is known of them without a model.
DATA = ["batch", "batches", "bayes", "contexts", "corpus", "crops", "dataset", "first_two_terms", "generator"]
DATA += ["number_words", "shards", "text_file"]


@pytest.mark.parametrize("name", DATA)
def test_data_know_no_model(name):
    found = [path for path in modules() if part(path) == "tasks" and path.stem == name]
    allowed = {"decoding", "errors", "files", "flags", "report", "tasks", "tokenizers"}
    assert found
    for path in found:
        assert our_parts(path) <= allowed, path.relative_to(ROOT)


@each_module
def test_flax_stays_in_the_models_and_orbax_in_one_file(path):
    if part(path) not in ("layers", "model", "seq2seq", "recurrent", "word2vec"):
        assert "flax" not in outside(path)
    if path != PACKAGE / "formats" / "arrays.py":
        assert "orbax" not in outside(path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_shelf_is_short(folder):
    found = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(found) <= SHELF, f"{folder.relative_to(ROOT)} holds {len(found)} modules: make a folder of some"


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
