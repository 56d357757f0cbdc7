"""Damage the files of a checkpoint as a disk may do, and train a small run to damage."""

import contextlib
import io
from pathlib import Path

from apformer import cli

PAGE = 4096
FLAGS = """--digits 2 --max_difference 30 --max_terms 6 --d_model 16 --n_layers 2 --n_heads 2 --steps 60 --batch_size 8
 --log_every 5 --save_every 10 --keep 4 --warmup_steps 5 --test_sequences 50 --dropout 0.1 --prefix_rows 0
 --hard_fraction 0"""


def run(path):
    """Train a run of 60 steps with evaluation, page and five checkpoints (20 is the best), and return its path."""
    with quiet():
        if code := cli.main(["train", *FLAGS.split(), "--run_dir", str(path)]):
            raise RuntimeError(f"training ended with {code}")
    return Path(path)


@contextlib.contextmanager
def quiet():
    """Capture what is printed in this context: yield the buffer that holds it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


def inflict(rng, kind, checkpoint, other, manifest):
    """Damage the files of the directory `checkpoint`, and return {path: bytes before} for `undo`.

    kind: One of KINDS. other: Directory of another step. manifest: Name of the file that lists the other files.
    """
    files = sorted(file for file in Path(checkpoint).rglob("*") if file.is_file())
    before = {file: file.read_bytes() for file in files}
    for _ in range(1000):  # until bytes differ: a page of zeros or a copy may equal what it replaces
        after = KINDS[kind](rng, before, checkpoint, other, manifest)
        changed = {file: data for file, data in after.items() if data != before[file]}
        if changed:
            break
    else:
        raise ValueError(f"{kind}: nothing in {checkpoint} can differ")
    for file, data in changed.items():
        if data is None:
            file.unlink()
        else:
            file.write_bytes(data)
    return {file: before[file] for file in changed}


def undo(before):
    """Restore the bytes of files."""
    for file, data in before.items():
        file.write_bytes(data)


def _anywhere(rng, before):
    """Return (file, position) of a byte, drawn uniformly from all files."""
    sizes = [len(data) for data in before.values()]
    at = int(rng.integers(sum(sizes)))
    for file, size in zip(before, sizes, strict=True):
        if at < size:
            return file, at
        at -= size


def _any(rng, before):
    return [*before][rng.integers(len(before))]


def _bit(rng, before, *_):
    file, at = _anywhere(rng, before)
    data = bytearray(before[file])
    data[at] ^= 1 << int(rng.integers(8))
    return {file: bytes(data)}


def _page(rng, before, *_):
    file, at = _anywhere(rng, before)
    begin, data = at - at % PAGE, before[file]
    return {file: data[:begin] + bytes(len(data[begin : begin + PAGE])) + data[begin + PAGE :]}


def _cut(rng, before, *_):
    file, at = _anywhere(rng, before)
    return {file: before[file][:at]}


def _missing(rng, before, *_):
    return {_any(rng, before): None}


def _junk(rng, before, *_):
    file = _any(rng, before)
    return {file: before[file] + rng.bytes(int(rng.integers(1, PAGE)))}


def _swap(rng, before, *_):
    one, two = _any(rng, before), _any(rng, before)
    return {one: before[two], two: before[one]}


def _of_another_step(rng, before, checkpoint, other, _):
    """Replace a file by that of the same name in another step, or, since Orbax draws some names, of the same folder."""
    file = _any(rng, before)
    same = Path(other) / file.relative_to(checkpoint)
    choices = [same] if same.is_file() else sorted(entry for entry in same.parent.iterdir() if entry.is_file())
    return {file: choices[rng.integers(len(choices))].read_bytes()}


def _manifest_of_another_step(rng, before, checkpoint, other, manifest):
    file = next(file for file in before if file.name == manifest)
    return {file: (Path(other) / file.relative_to(checkpoint)).read_bytes()}


def _manifest_byte(rng, before, checkpoint, other, manifest):
    file = next(file for file in before if file.name == manifest)
    data = bytearray(before[file])
    data[rng.integers(len(data))] = int(rng.integers(256))
    return {file: bytes(data)}


KINDS = {
    "a bit": _bit,
    "a page of zeros": _page,
    "cut": _cut,
    "a file missing": _missing,
    "junk at the end": _junk,
    "a file of another step": _of_another_step,
    "two files swapped": _swap,
    "the manifest of another step": _manifest_of_another_step,
    "a byte of the manifest": _manifest_byte,
}
NEED_SEVERAL_FILES = [*KINDS][-3:]  # kinds of damage that need several files
