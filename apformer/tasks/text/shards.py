"""Tokens in files, for texts larger than memory: written once, and read window by window in training.

    DIR/000000.bin 000001.bin ...   the training part: token after token, uint16 or uint32, little-endian
        validation.bin              the validation part
        tokenizer.json              the tokenizer
        manifest.json               the list of files, each with its size and sha256; it is written last

The shards are one sequence of tokens, cut where a file is full, so a window may cross from one file into the next.
Windows are read, not mapped: pages of a mapped file count as memory of the process, 64 KB of them for each access.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from apformer import files
from apformer.errors import DATA, UserError
from apformer.tokenizers import pretrained
from apformer.tokenizers.text import Tokenizer

FORMAT = 1
SHARD_TOKENS = 2**27
DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
PREPARE = "python datasets/text/prepare.py FILE... --out"


@dataclass(frozen=True)
class Shards:
    """Training part of a text, in files."""

    paths: tuple[Path, ...]
    begins: tuple[int, ...]  # index of the first token of each file, then the number of all tokens
    dtype: np.dtype
    vocab_size: int

    def __len__(self) -> int:
        return self.begins[-1]

    def windows(self, start_R: np.ndarray, length: int) -> np.ndarray:
        """Return windows of `length` tokens from each start on: (R, length), in the dtype of the files.

        Raises UserError (exit DATA) for a file that is missing, cut, or has tokens beyond the vocabulary.
        """
        tokens_RT, size = np.empty((len(start_R), length), self.dtype), self.dtype.itemsize
        for path, (begin, end) in zip(self.paths, pairwise(self.begins), strict=True):
            rows = np.flatnonzero((start_R < end) & (start_R + length > begin))
            if not len(rows):
                continue
            with _readable(path), open(path, "rb", buffering=0) as file:
                for row in rows:
                    start = int(start_R[row])
                    first, last = max(begin, start), min(end, start + length)
                    file.seek((first - begin) * size)
                    tokens = np.fromfile(file, self.dtype, last - first)
                    if len(tokens) < last - first:
                        raise _fault(path, "is cut short")
                    _refuse_foreign(tokens, path, self.vocab_size)
                    tokens_RT[row, first - start : last - start] = tokens
        return tokens_RT


class Prepared(NamedTuple):
    """Tokens of a text, in memory or in a folder that a Writer wrote."""

    train: Shards | np.ndarray
    validation: np.ndarray
    validation_characters: int
    tokenizer: Tokenizer
    sha256: str  # of the text; of a folder, that of its manifest, which has those of all files
    ends: Sequence[int] = ()  # tokens that end a text of the model at init_from


def are_in(folder: str) -> bool:
    """Return whether a path is a folder of tokens, even an unfinished one."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("000000.bin", "validation.bin"))


def read(folder: str | Path, rows: int = 2**32) -> Prepared:
    """Read a folder that a Writer wrote; the files of the training part are only checked for their sizes.

    Args:
        folder: Folder of the files.
        rows: Number of tokens that have a row in the embedding table of a model.

    Raises:
        UserError: Exit code DATA for a file that is missing, damaged, cut or foreign, with the remedy.
    """
    folder = Path(folder)
    try:
        content = (folder / "manifest.json").read_bytes()
    except OSError:
        lacking = f"{folder} holds tokens of texts without a manifest.json, so perhaps not all of them"
        remedy = f"make a new folder of all files with `{PREPARE} NEW_FOLDER`, or give the texts themselves"
        raise UserError(f"{lacking}: {remedy}", DATA) from None
    try:
        manifest = files.parse_json(content)
        if manifest["format"] != FORMAT:
            raise ValueError(f"format {manifest['format']}")
        dtype, last = DTYPES[manifest["dtype"]], manifest["validation"]
        listed = [_listed(folder, entry) for entry in (*manifest["train"], last)]
        validation_sha256, characters = last["sha256"], int(last["characters"])
        if not 0 < characters < 2**63:
            raise ValueError(f"{characters} characters")
        tokenizer_sha256 = manifest["tokenizer_sha256"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise _fault(folder / "manifest.json", f"is damaged or of another version of apformer ({error!r})") from None
    for path, tokens in listed:
        size = tokens * dtype.itemsize
        with _readable(path):
            if (found_size := os.path.getsize(path)) != size:
                raise _fault(path, f"has {found_size:,} bytes instead of {size:,}")
    _verified(folder / "tokenizer.json", tokenizer_sha256)
    tokenizer = pretrained.load(folder / "tokenizer.json")
    vocab_size = min(tokenizer.vocab_size, rows)
    paths, lengths = zip(*listed, strict=True)
    validation = np.frombuffer(_verified(paths[-1], validation_sha256), dtype)
    _refuse_foreign(validation, paths[-1], vocab_size)
    train = Shards(paths[:-1], (0, *accumulate(lengths[:-1])), dtype, vocab_size)
    return Prepared(train, validation, characters, tokenizer, hashlib.sha256(content).hexdigest())


def _listed(folder: Path, entry: dict) -> tuple[Path, int]:
    """Return (path, tokens) of a file of the manifest. Raises ValueError for a name that no Writer gives."""
    if not re.fullmatch(r"(\d+|validation)\.bin", entry["name"], re.ASCII):
        raise ValueError(f"a file {entry['name']!r}")
    return folder / entry["name"], int(entry["tokens"])


def _verified(path: Path, sha256: str) -> bytes:
    """Return the bytes of a file. Raises UserError (exit DATA) if their sha256 differs."""
    with _readable(path):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _fault(path, "is not the file that was written there (its sha256 differs from the manifest)")
    return content


def _refuse_foreign(tokens: np.ndarray, path: Path, vocab_size: int) -> None:
    if (most := tokens.max(initial=0)) >= vocab_size:
        fault = f"has token {most}, and its tokenizer or the model to train further has {vocab_size:,} tokens"
        raise _fault(path, f"{fault} (if the model lacks the end of a text, give the texts themselves)")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a UserError (exit DATA)."""
    try:
        yield
    except OSError as error:
        raise _fault(path, f"cannot be read ({error.strerror})") from None


def _fault(path: Path, fault: str) -> UserError:
    return UserError(f"{path} {fault}: restore it, or make a new folder with `{PREPARE} NEW_FOLDER`", DATA)


class Writer:
    """Write a folder for `read`: the tokens part by part, and the manifest last.

    The folder must be empty. Raises UserError (exit DISK) if a file cannot be written.
    """

    def __init__(self, folder: str | Path, tokenizer: Tokenizer, shard_tokens: int = SHARD_TOKENS) -> None:
        self.folder = Path(folder)
        self.tokenizer = tokenizer
        self.most = shard_tokens
        self.tokens = 0
        self.dtype = DTYPES["uint16" if tokenizer.vocab_size <= 2**16 else "uint32"]

    def add(self, tokens_N: np.ndarray) -> None:
        """Append tokens to the training part."""
        while len(tokens_N):
            number, size = divmod(self.tokens, self.most)
            path, part = self.folder / f"{number:06d}.bin", tokens_N[: self.most - size]
            with files.disk_errors(path), open(path, "ab") as file:
                file.write(part.astype(self.dtype).tobytes())
            self.tokens += len(part)
            tokens_N = tokens_N[len(part) :]

    def close(self, validation_N: np.ndarray, characters: int) -> None:
        """Write the validation part (of this many characters), the tokenizer and the manifest."""
        train = [self._entry(path) for path in sorted(self.folder.glob("*.bin"))]
        path, text = self.folder / "validation.bin", self.tokenizer.to_json().encode()
        files.write_bytes(path, validation_N.astype(self.dtype).tobytes())
        files.write_bytes(self.folder / "tokenizer.json", text)
        manifest = {
            "format": FORMAT,
            "dtype": self.dtype.name,
            "tokenizer_sha256": hashlib.sha256(text).hexdigest(),
            "train": train,
            "validation": self._entry(path) | {"characters": characters},
        }
        files.write_json(self.folder / "manifest.json", manifest)

    def _entry(self, path: Path) -> dict:
        """Flush a file of tokens to the disk, and return its entry in the manifest."""
        with files.disk_errors(path):
            files.fsync(path)
            sha256 = files.sha256(path)
        return {"name": path.name, "tokens": path.stat().st_size // self.dtype.itemsize, "sha256": sha256}
