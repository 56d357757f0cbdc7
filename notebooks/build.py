"""Write the common first cells of all notebooks, notebook 0 from its page, and the outputs of all.

    python notebooks/build.py                   # all, each run in its small form in an empty folder
    python notebooks/build.py 0_from_your_sketch

It needs the `notebooks` extra. Edit the other notebooks by hand, but HOW and INSTALL, their first two cells, here.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
SKETCH = "0_from_your_sketch"
HOW = """## Install
This cell installs apformer unless it is already there. `SOURCE` is what pip installs: the name of a release, a wheel
next to this notebook, the folder of the repository, or a URL such as `git+https://example.org/apformer`. An installed
JAX keeps its version. The outputs come from the small form (`APFORMER_SMALL=1`), if there is one."""
INSTALL = """import importlib
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

SOURCE = "apformer"  # the name of a release, a wheel, a folder, or a URL such as git+https://...
if util.find_spec("apformer") is None:
    keep = [f"{name}=={metadata.version(name)}" for name in ("jax", "jaxlib", "numpy") if util.find_spec(name)]
    where = Path(SOURCE).resolve().as_uri() if Path(SOURCE).exists() else SOURCE
    wanted = f"apformer[text] @ {where}" if "://" in where else where.replace("apformer", "apformer[text]", 1)
    pip = [sys.executable, "-m", "pip", "install", "--no-color", "-q"]
    done = subprocess.run([*pip, *keep, wanted], capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")][:1]
        remedy = "upload a wheel of apformer beside this notebook, give SOURCE its name, and run this cell again"
        raise SystemExit(f"pip could not install apformer from {SOURCE} ({' '.join(said)}): {remedy}")
    importlib.invalidate_caches()

import jax

print({name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax")}, jax.devices())"""


def sketch():
    """Return notebook 0: the steps of docs/from-your-sketch.md, whose programs are its cells."""
    page = (HERE.parent / "docs/from-your-sketch.md").read_text("utf-8").split("## Where everything stands")[0]
    title, page = page.split("\n## ", 1)
    title = title.strip().rpartition("\n\n")[0]  # without how to paste the programs
    cells = [new_markdown_cell(title), new_markdown_cell(HOW), new_code_cell(INSTALL)]
    page = re.sub(r"^```text\n.*?^```\n|^!\[[^\n]*\n", "", f"## {page}", flags=re.MULTILINE | re.DOTALL)
    for prose, program in re.findall(r"(.*?)(?:^```python\n(.*?)^```\n|\Z)", page, re.MULTILINE | re.DOTALL):
        cells += [new_markdown_cell(prose.strip())] * bool(prose.strip())
        cells += [new_code_cell(program.strip())] * bool(program)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells, metadata=metadata)


def build(name):
    """Write a notebook with the outputs of its small form."""
    path = HERE / f"{name}.ipynb"
    notebook = sketch() if name == SKETCH else nbformat.read(path, as_version=4)
    install = next(n for n, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    notebook.cells[install - 1].source, notebook.cells[install].source = HOW, INSTALL
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                output.text = ""  # progress and paths of this machine
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("text") != ""]
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, path)
    print(path)


if __name__ == "__main__":
    os.environ["APFORMER_SMALL"] = "1"
    for each in sys.argv[1:] or [SKETCH, *sorted(path.stem for path in HERE.glob("[1-9]*.ipynb"))]:
        build(each)
