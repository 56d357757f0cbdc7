"""Read and write safetensors: a header with the names, shapes and dtypes of arrays, then their bytes, and no code.

https://huggingface.co/docs/safetensors. Its writer copies the memory of an array, so a transposed view would be saved
wrongly: arrays are made contiguous here.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax
import numpy as np

from apformer.errors import CHECKPOINT, DISK, UserError
from apformer.files import AnyPath, replacing


@contextmanager
def reading(path: AnyPath) -> Iterator[Any]:
    """Open a file for reading.

    The object has keys(), metadata(), get_slice(name) for shape and dtype, and get_tensor(name) for a numpy array.
    Raises UserError: USAGE without the `text` extra, CHECKPOINT if the file is missing, cannot be read or is damaged.
    """
    safetensors = _safetensors(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot read {path} ({reason}): restore it, or give another", CHECKPOINT) from None
    except safetensors.SafetensorError as error:
        remedy = "it is damaged or of another format, fetch it anew"
        raise UserError(f"{path} cannot be read as safetensors ({error}): {remedy}", CHECKPOINT) from None


def write(path: AnyPath, arrays: Mapping[str, jax.Array | np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write named arrays with metadata to a new file, atomically.

    Raises UserError: USAGE if the file exists, or without the `text` extra; DISK if it cannot be written.
    """
    safetensors = _safetensors(path)
    refuse_to_overwrite(path)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with replacing(path) as temporary:
        temporary.touch()  # raises OSError with the reason if the file cannot be written
        mode = temporary.stat().st_mode
        try:
            safetensors.numpy.save_file(arrays, temporary, metadata)
        except safetensors.SafetensorError as error:  # its text has the reason of the system
            raise UserError(f"cannot write {path} ({error}): fix that, or use another directory", DISK) from None
        temporary.chmod(mode)  # the library makes the file readable for its owner only


def refuse_to_overwrite(path: AnyPath) -> None:
    """Raise UserError (exit USAGE) if `path` exists."""
    if os.path.lexists(path):
        raise UserError(f"{path} is there already and is not overwritten: give another name")


def _safetensors(path: AnyPath) -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError:
        remedy = 'needs the text extra: pip install "apformer[text]"'
        raise UserError(f"{path} is a file of safetensors, which {remedy}") from None
    return safetensors
