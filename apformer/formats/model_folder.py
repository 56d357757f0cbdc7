"""Read the folder of a model: JSON, and named tensors in one file of safetensors or in several files with an index.

    model.safetensors
    model.safetensors.index.json     {"weight_map": {tensor: file, ...}}      model-00001-of-00002.safetensors ...

A large model is saved as several files, its shards. Before any tensor is read, the index is compared with the tensors
of each shard; it may name only files in the same folder. Nothing in a folder is executed: a pickle is not opened.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from apformer import files
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import safetensors

WEIGHTS = "model.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
AGAIN = "fetch the folder again"


class Header(NamedTuple):
    """File, shape and type of a tensor that is not read yet."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """Name of the type in safetensors, such as F32."""


class Tensors(NamedTuple):
    """The named tensors of a folder."""

    path: Path
    """The file that lists them."""
    headers: dict[str, Header]
    metadata: dict[str, str]

    def read(self, name: str, dtype: type) -> np.ndarray:
        """Return a tensor, converted to a dtype. Raises UserError (CHECKPOINT) if a number is not finite."""
        file = self.headers[name].file
        with safetensors.reading(file) as opened:
            array = opened.get_tensor(name).astype(dtype, copy=False)
        if not np.isfinite(array).all():
            raise UserError(f"{file}: {name} holds numbers that are not finite: {AGAIN}", CHECKPOINT)
        return array


def read(folder: Path, name: str = WEIGHTS) -> Tensors:
    """List the tensors of a folder, in the file with this name or in the files of its index.

    Raises UserError: USAGE without the `text` extra; CHECKPOINT if there is neither file, a file is damaged, or the
    index and the shards do not agree.
    """
    if (folder / name).exists():
        return read_file(folder / name)
    index = folder / f"{name}.index.json"
    if not index.exists():
        remedy = "save it anew with `model.save_pretrained(folder)`"
        reason = "a pickle is not opened, for it may execute anything"
        raise UserError(f"{folder} holds no {name}: {remedy}; {reason}", CHECKPOINT)
    shard_of, present = read_json(index, AGAIN).get("weight_map"), {file.name for file in folder.iterdir()}
    if not isinstance(shard_of, dict) or not shard_of:
        raise UserError(f"{index} is damaged, it has no weight_map from tensors to files: {AGAIN}", CHECKPOINT)
    for file in shard_of.values():
        if not isinstance(file, str) or file not in present:
            raise UserError(f"{index} names {file!r}, which is not a file beside it: {AGAIN}", CHECKPOINT)
    shards = [read_file(folder / file) for file in sorted({*shard_of.values()})]
    headers = {(tensor, header.file.name): header for shard in shards for tensor, header in shard.headers.items()}
    if different := headers.keys() ^ shard_of.items():
        tensor, file = min(different)
        raise UserError(f"{index} and {file} do not agree on {tensor}: {AGAIN}", CHECKPOINT)
    return Tensors(index, {tensor: header for (tensor, _), header in headers.items()}, {})


def read_file(path: Path) -> Tensors:
    """List the tensors of one file. Raises UserError as `read` does."""
    with safetensors.reading(path) as file:
        headers = {}
        for name in file.keys():
            part = file.get_slice(name)
            headers[name] = Header(path, tuple(part.get_shape()), part.get_dtype())
        return Tensors(path, headers, file.metadata() or {})


def read_json(path: Path, remedy: str) -> files.Json:
    """Return the dict in a file of JSON, or {} if it is no dict. Raises UserError (exit CHECKPOINT) with the remedy."""
    content = files.read_json(path, remedy)
    return content if isinstance(content, dict) else {}
