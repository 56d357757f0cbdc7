"""The tensors of a folder: of model.safetensors, or of the several files that an index names.

    model.safetensors.index.json     {"weight_map": {tensor: file, ...}}      model-00001-of-00002.safetensors ...

A large model is saved as several files, shards, none of which is larger than some size. What the index says is compared
with what each shard holds before any tensor is read. A name in the index is that of a file beside it, and of no other.
"""

from pathlib import Path
from typing import NamedTuple

from apformer import files
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import safetensors

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
AGAIN = "fetch the folder again"


class Header(NamedTuple):
    """What is known of a tensor before it is read."""

    path: Path  # the file that holds it
    shape: tuple
    dtype: str  # as safetensors calls it, such as F32


def headers(folder):
    """(the file that lists them, {name: Header}) of the tensors of a folder. Without one of the two files, None.

    Raises UserError (exit CHECKPOINT) for a damaged file, a missing shard, a tensor in two shards, and an index that
    names other tensors than its shards.
    """
    folder = Path(folder)
    if (folder / WHOLE).exists():
        return folder / WHOLE, of_file(folder / WHOLE)
    if (folder / INDEX).exists():
        return folder / INDEX, _of_shards(folder / INDEX)
    return None


def read(header, name):
    """A tensor as a numpy array."""
    with safetensors.reading(header.path) as file:
        return file.get_tensor(name)


def of_file(path):
    """{name: Header} of one file of safetensors."""
    with safetensors.reading(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}
        return {name: Header(path, tuple(found.get_shape()), found.get_dtype()) for name, found in slices.items()}


def _of_shards(index):
    shard_of = _weight_map(index)
    names = sorted({*shard_of.values()})
    if missing := [name for name in names if not (index.parent / name).exists()]:
        raise UserError(f"{index} names {', '.join(missing)}, and there is no such file: {AGAIN}", CHECKPOINT)
    found = {}
    for name in names:
        held = of_file(index.parent / name)
        if twice := sorted(found.keys() & held.keys()):
            other = found[twice[0]].path.name
            raise UserError(f"{index.parent} holds {twice[0]} in {other} and in {name}: {AGAIN}", CHECKPOINT)
        if absent := sorted(tensor for tensor, shard in shard_of.items() if shard == name and tensor not in held):
            raise UserError(f"{index} says that {name} holds {', '.join(absent)}, and it does not: {AGAIN}", CHECKPOINT)
        found |= held
    if unlisted := sorted(found.keys() - shard_of.keys()):
        place = found[unlisted[0]].path.name
        raise UserError(f"{index} does not name {', '.join(unlisted)}, which {place} holds: {AGAIN}", CHECKPOINT)
    return found


def _weight_map(index):
    """{tensor: file} of an index. Raises UserError (exit CHECKPOINT) for one that is damaged or leaves the folder."""
    try:
        content = files.parse_json(index.read_bytes().decode("utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {index} ({error.strerror}): {AGAIN}", CHECKPOINT) from None
    except ValueError as error:
        raise UserError(f"{index} is not valid JSON ({error}): {AGAIN}", CHECKPOINT) from None
    shard_of = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shard_of, dict) or not shard_of or not all(isinstance(name, str) for name in shard_of.values()):
        raise UserError(f"{index} is damaged: it has no weight_map from tensors to files; {AGAIN}", CHECKPOINT)
    for name in shard_of.values():
        if name in ("", ".", "..") or Path(name).name != name or "\\" in name or "\0" in name or len(name) > 255:
            raise UserError(f"{index} names {name!r}, which is no file beside it: {AGAIN}", CHECKPOINT)
    return shard_of
