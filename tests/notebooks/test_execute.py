"""Every notebook in its small form, from top to bottom, in a kernel of its own: pytest -m notebooks tests/notebooks."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.notebooks
nbformat = pytest.importorskip("nbformat", reason="needs the notebooks extra: pip install -e '.[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra: pip install -e '.[notebooks]'")
FOLDER = Path(__file__).parents[2] / "notebooks"


# The small form is for a reader, who wants to see that a model learns; so few steps show that the cells run.
FEWER = {
    f"--steps {steps}": f"--steps {fewer}" for steps, fewer in ((800, 40), (600, 60), (400, 40), (300, 40), (250, 20))
}
FEWER |= {f"--save_every {steps}": f"--save_every {fewer}" for steps, fewer in ((200, 20), (100, 20), (50, 20))}
FEWER |= {
    "--longest 48": "--longest 48 --widths 48",  # one program instead of six
    '("60", "10")': '("20", "10")',
    "--largest 999": "--largest 199",
    "--numbers 900": "--numbers 150",
    # smaller programs: no hard and no long rows, few layers, and AdamW
    "--mined_per_hard 4": "--hard_fraction 0",
    "--prefix_rows 0": "--prefix_rows 0 --long_rows 0 --n_layers 2 --rule adamw",
    "--test_sequences 50": "--test_sequences 50 --prefix_rows 0 --hard_fraction 0 --rule adamw",
    "--byte_pairs 400": "--byte_pairs 400 --n_encoder_layers 1 --n_decoder_layers 1 --rule adamw",
    "--vocab_size 512": "--vocab_size 512 --rule adamw",
    "--n_layers 2": "--n_layers 1",
    "--members 3": "--members 2",
}


def execute(name, folder, monkeypatch):
    """The code cells of a notebook after they ran in a folder. Raises CellExecutionError where one fails."""
    monkeypatch.setenv("APFORMER_SMALL", "1")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r'--\w+ \d+\b|\("60", "10"\)', lambda found: FEWER.get(found[0], found[0]), cell.source)
    where = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=where).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def has_pictures_and_an_answer(cells):
    assert "'jax'" in printed(cells[0]) and "Cpu" in printed(cells[0])
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert printed(cells[-1]).strip()


# The programs of notebook 0 are those of its page, which tests/test_docs.py runs; the first has a test of its own.
NAMES = {path.stem for path in FOLDER.glob("*.ipynb")} - {"0_from_your_sketch", "1_quick_start"}


@pytest.mark.parametrize("name", sorted(NAMES, key=lambda name: "462573".find(name[0])))  # the longest first
def test_a_notebook_runs_head_to_tail_with_pictures_and_an_answer(name, tmp_path, monkeypatch):
    has_pictures_and_an_answer(execute(name, tmp_path, monkeypatch))


def test_the_first_does_and_its_cells_go_on_with_what_a_disconnect_left(tmp_path, monkeypatch):
    first = execute("1_quick_start", tmp_path, monkeypatch)
    has_pictures_and_an_answer(first)
    newest = max((tmp_path / "runs/quick-start-small/checkpoints").iterdir(), key=lambda path: int(path.name))
    newest.rename(newest.with_name("lost"))
    again = execute("1_quick_start", tmp_path, monkeypatch)
    assert "resumed at step 40 of 60" in printed(again[2])
    assert printed(again[-1]) == printed(first[-1])
