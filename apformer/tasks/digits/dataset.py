"""Training rows of a text file: a progression a line, each line of a width of its own, digits in the order of the run.

Such a run sees no other row. A step draws from these, and the best checkpoint is the one with the least loss on them.
"""

import hashlib
from pathlib import Path

import jax
import numpy as np

from apformer.errors import DATA, UserError
from apformer.tasks.digits.generator import SPACE, Batch
from apformer.tasks.progressions import text_file
from apformer.tokenizers import digits as tokenizer


def load(settings):
    """(settings, the rows of the file as a Batch of numpy arrays; None where rows are drawn). Raises UserError."""
    name = settings.options.dataset
    if name is None:
        return settings, None
    lines = text_file.lines_of(name)
    for number, line in enumerate(lines, 1):
        _, _, terms = text_file.read_line(line, f"{name}, line {number}", settings.data.digits, settings.data.order)
        if not 3 <= terms <= settings.options.crop_terms:
            remedy = "give three or more" if terms < 3 else f"give --crop_terms {terms} or more"
            raise UserError(f"{name}, line {number}: holds {terms} terms: {remedy}", DATA)
    return settings, encode(lines)


def encode(lines):
    """Lines of progressions, which are sound, as a Batch of numpy arrays."""
    shape_BT = len(lines), max(map(len, lines))
    batch = Batch(*(np.zeros(shape_BT, dtype) for dtype in (np.int32, np.float32, np.int32)))
    for b, line in enumerate(lines):
        tokens_T = tokenizer.encode(line)
        term_T = np.cumsum(tokens_T == SPACE)
        batch.tokens_BT[b, : len(line)], batch.term_BT[b, : len(line)] = tokens_T, term_T
        batch.weights_BT[b, : len(line)] = term_T >= 2
    return batch


def draw(key, rows, size):
    """`size` of these rows, with replacement."""
    index_B = jax.random.randint(key, (size,), 0, len(rows.tokens_BT))
    return jax.tree.map(lambda leaf: leaf[index_B], rows)


def train_rows(rows):
    """The rows of a file as arrays; None where fresh rows are drawn."""
    return None if rows is None else jax.device_put(rows)


def describe(settings, rows):
    """What config.json says of the data: how many different rows, and a hash, by which a resumed run knows it again."""
    if rows is None:
        return {"source": "sampler"}
    content = Path(settings.options.dataset).read_bytes()
    distinct = len(np.unique(rows.tokens_BT, axis=0))
    return {"source": settings.options.dataset, "rows": distinct, "sha256": hashlib.sha256(content).hexdigest()}
