"""Write dataset.txt: arithmetic progressions as text, one in each line. The same seed writes the same bytes.

The rows are drawn from all splits. Training finds the split of each row from its line: all numbers with the same
remainder modulo the difference.
"""

import hashlib
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro

from apformer import files
from apformer.errors import DATA, UserError
from apformer.machine import process
from apformer.tasks.progressions import generator, text_file

DATASET = Path(__file__).with_name("dataset.txt")


def generate(
    config: Annotated[generator.Config, tyro.conf.arg(name="")],
    sequences: int = 10_000,
    seed: int = 0,
    out: Path = DATASET,
    overwrite: bool = False,
) -> None:
    """Write arithmetic progressions to a text file, one in each line.

    Args:
        config: The generator.
        sequences: Number of progressions.
        seed: Seed of the draw.
        out: The file to write.
        overwrite: Replace a file that holds something else.
    """
    generator.check(config)
    if sequences < 1:
        raise UserError(f"--sequences {sequences} is out of range: give at least 1")
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed} is out of range: give 0 to 2147483647")
    rows = jax.tree.map(np.asarray, generator.draw(jax.random.key(seed), config, sequences))
    content = text_file.to_text(rows, config.digits).encode("ascii")
    if out.is_file() and out.read_bytes() != content and not overwrite:
        raise UserError(f"{out} holds another dataset; give --overwrite to replace it, or another --out", DATA)
    files.write_bytes(out, content)
    counts = np.bincount(generator.split_of(rows.difference_B, rows.first_B), minlength=3)
    print(f"{out}: {sequences} rows, {len(content)} bytes")
    print(", ".join(f"{split} {count}" for split, count in zip(generator.SPLITS, counts, strict=True)))
    print(f"sha256 {hashlib.sha256(content).hexdigest()}")


def main(arguments: list[str] | None = None) -> int:
    call = partial(tyro.cli, generate, args=arguments, use_underscores=True, description=__doc__)
    return process.guard("generate.py", call)


if __name__ == "__main__":
    sys.exit(main())
