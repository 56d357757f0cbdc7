"""The shape of the house: who may import whom, and what a module owes its reader."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "apformer"

# Imports only go down. A part is a folder or a file of the package; those of one rank may import one another.
RANKS = (
    "errors files flags machine plugins",
    "layers loss optimizer settings tokenizers train",
    "model recurrent seq2seq word2vec",
    "analysis decoding formats proof report",
    "tasks",
    "runs",
    "commands",
    "__main__ cli",
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names.split()}
MODELS = {"formats", "layers", "model", "recurrent", "seq2seq", "word2vec"}


@cache
def modules():
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text())


def part(path):
    """The module or folder of the package that a file belongs to: layers/block.py is of `layers`."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def imports(path):
    """Every module that a file imports, at any place in the file, by its full name."""
    found = set()
    for node in ast.walk(tree(path)):
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


def none_of(faults):
    """Fail with one line for each fault."""
    assert not faults, "\n".join(faults)


def test_every_part_has_a_rank():
    assert {part(path) for path in modules()} - {"__init__"} == set(RANK)


def test_imports_go_down():
    code = "import sys, apformer; sys.exit(any(n.startswith(('apformer.', 'jax', 'numpy')) for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, (
        "importing apformer imports nothing"
    )
    none_of(
        [
            f"{path.relative_to(ROOT)} imports {name} from above"
            for path in modules()
            for name in our_parts(path) - {"__version__"}
            if path != PACKAGE / "__init__.py" and RANK[name] > RANK[part(path)]
        ]
    )


def test_no_parts_and_no_modules_import_each_other():
    graph = {name: set() for name in RANK}
    for path in modules():
        graph.get(part(path), set()).update(our_parts(path) - {part(path)})
    list(graphlib.TopologicalSorter(graph).static_order())  # raises on a cycle, and names it
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


def test_parts_know_no_task_and_tokenizers_no_model():
    allowed = dict.fromkeys(("layers", "loss", "optimizer"), {"errors", "layers", "plugins"})
    allowed |= {"tokenizers": {"errors", "files"}, "train": set()}
    none_of(
        [
            f"{path.relative_to(ROOT)} imports {name}"
            for path in modules()
            if part(path) in allowed
            for name in our_parts(path) - allowed[part(path)] - {part(path)}
        ]
    )


# A translator alone judges the one architecture that reads two texts.
def test_models_are_handed_in():
    evaluations = [f"tasks/{task}/evaluation.py" for task in ("progressions", "text")]
    for pattern in ("train.py", "decoding/*.py", "tasks/*/continuation.py", *evaluations):
        found = sorted(PACKAGE.glob(pattern))
        assert found, pattern
        for path in found:
            models = our_parts(path) & MODELS
            assert not models, f"{path.relative_to(ROOT)} is handed functions, and imports no {models}"


def test_libraries_stay_where_they_belong():
    """flax in the models, orbax in one file; and the package imports no experiment."""
    faults = []
    for path in modules():
        wrong = outside(path) & {"datasets", "experiments", "tests", "torch"}
        if part(path) not in ("layers", "model", "seq2seq", "recurrent", "word2vec"):
            wrong |= outside(path) & {"flax"}
        if path != PACKAGE / "runs" / "checkpoint.py":
            wrong |= outside(path) & {"orbax"}
        faults += [f"{path.relative_to(ROOT)} imports {name}" for name in wrong]
    none_of(faults)


BROUGHT_BY = {"orbax": "orbax-checkpoint", "ml_dtypes": "jaxlib"}


def test_what_is_imported_is_promised():
    """By a dependency or an extra; the tests' by `test`, so that no other extra hides that it is missing there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def promised(words):
        found = set()
        for word in words:
            name, brought = re.match(r"([\w.-]+)(?:\[(.*?)\])?", word).groups()
            found.add(name)
            for extra in (brought or "").split(",") if name == "apformer" else ():
                found |= promised(extras[extra])
        return found

    needs = project["dependencies"]
    anywhere = promised([*needs, *(word for extra in extras.values() for word in extra)])
    in_tests = promised([*needs, *extras["test"]])
    tests = [path for path in sorted((ROOT / "tests").rglob("*.py")) if not {"parity", "notebooks"} & {*path.parts}]
    ours = {"apformer", "tests", "reproduce", "tables", "contexts", *sys.stdlib_module_names}
    faults = []
    for path, known in [*((path, anywhere) for path in modules()), *((path, in_tests) for path in tests)]:
        missing = {name for name in outside(path) - ours if BROUGHT_BY.get(name, name) not in known}
        faults += [
            f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not promise" for name in missing
        ]
    none_of(faults)


def test_a_file_is_short_and_says_what_it_is():
    """Ruff asks a docstring of each function of the package."""
    for path in (*modules(), *ROOT.glob("experiments/**/*.py"), *ROOT.glob("datasets/**/*.py")):
        assert not path.read_text() or ast.get_docstring(tree(path)), path
        assert len(path.read_text().splitlines()) <= 300, path


def test_a_script_imports_files_of_its_own_folder_alone():
    """As Python runs it: a test has every folder of scripts on the path, a user does not."""
    files = [path for path in ROOT.glob("experiments/**/*.py") if "lab" not in path.parts]
    ours = {path.stem for path in files}
    for script in (path for path in files if "__main__" in path.read_text()):
        reached = [script]
        for path in reached:
            found = {name: script.parent / f"{name.replace('.', '/')}.py" for name in imports(path)}
            reached += [file for file in found.values() if file.exists() and file not in reached]
            assert not [name for name in ours & {*found} if not found[name].exists()], (script.name, path.name)


def test_the_folder_of_data_sets_is_no_package():
    """Else `import datasets` from the root would find it instead of the library of that name."""
    assert not list(ROOT.glob("datasets/**/__init__.py"))


def test_the_lowest_versions_that_are_tested_are_those_that_are_promised():
    promised = " ".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    tested = re.findall(r"^([\w-]+)==(.+)$", (ROOT / ".ci" / "floors.txt").read_text(), re.MULTILINE)
    assert {"jax", "numpy"} < {name for name, _ in tested}
    for name, version in tested:
        assert f"{version}.".startswith(re.search(rf"(?<!\S){name}>=([\d.]+)", promised)[1] + "."), name
