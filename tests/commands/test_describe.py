"""`describe` tells the parts of any model, and the package has its doors."""

import jax
import numpy as np
import pytest

import apformer
from apformer.runs import restore


@pytest.mark.parametrize("recipe", ["sketch", "recurrent", "words", "translate --numbers 200 --largest 99"])
def test_the_numbers_of_the_parts_are_the_products_of_their_shapes_and_add_up(recipe, says):
    head, *rows, whole = (line.split("  ") for line in says(*f"describe --recipe {recipe}".split()).splitlines())
    shapes, counts = zip(*([cell.strip() for cell in row if cell.strip()][1:] for row in rows), strict=True)
    counts = [int(count.replace(",", "")) for count in counts]
    assert [np.prod([int(size) for size in shape.split(" x ")]) for shape in shapes] == counts
    assert int(whole[-1].replace(",", "")) == sum(counts)


def test_the_doors_of_the_package(made_run):
    """A run is loaded by name, says what it is in a line, and its metrics are records, as pandas takes them."""
    run = apformer.load(made_run("members"), member=1)
    count = sum(leaf.size for leaf in jax.tree.leaves(run.params))
    assert repr(run).endswith(f"task='progressions', step=1, member=1, parameters={count:,})")
    assert [line["step"] for line in apformer.read_metrics(run.path)] == [1, 2]
    assert {"model", "load_language_model"} < {*apformer.__all__} and apformer.model.Config().d_model == 64
    assert apformer.load is apformer.runs.load and isinstance(run, restore.Run)
    with pytest.raises(AttributeError, match="no attribute 'modle'"):
        _ = apformer.modle
