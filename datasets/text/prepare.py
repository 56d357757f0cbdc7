"""Write a folder of tokens from texts of any size, for `apformer train --recipe text --text FOLDER`.

    python datasets/text/prepare.py FILE... --out FOLDER --tokenizer gpt2

A FILE is a document in UTF-8. A file *.jsonl has a document in each line, in its field "text". After each document
comes a token that ends a text. Files are read piece by piece, so they may be larger than memory.
"""

import codecs
import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tyro.conf import Positional

from apformer import files, flags
from apformer.errors import DATA, USAGE, UserError
from apformer.files import FilePath
from apformer.report import progress
from apformer.tasks.text import shards
from apformer.tokenizers import pretrained, text

PART = 1 << 20  # bytes that are read at once


@dataclass(frozen=True)
class Prepare:
    """Write a folder of tokens from texts of any size, for `apformer train --recipe text --text FOLDER`."""

    texts: Positional[tuple[FilePath, ...]] = ()
    """Files in UTF-8, a document each; a file *.jsonl has a document a line, in its field "text"."""
    out: FilePath | None = None
    """New folder for the tokens."""
    tokenizer: str = "characters"
    """Tokenizer: characters, byte_pairs (--vocab_size of them), or a file or folder that holds one."""
    vocab_size: int | None = None
    """Number of tokens that --tokenizer byte_pairs makes, the 256 bytes and the end of a text among them."""
    special_tokens: bool = False
    """Read special tokens in the texts, such as <|endoftext|>. Without this flag, a text that has some is refused."""
    validation_tokens: int = 2**20
    """Number of tokens at the end that are kept for validation, but at most a tenth of all. They begin with a document
    if one begins in their first half."""


def prepare(args):
    """Write the folder. Raises UserError that names the flag, or the file and the line."""
    _check(args)
    folder = _new_folder(args.out)
    tokenizer, end = _tokenizer(args).with_end()
    tail, documents = Tail(shards.Writer(folder, tokenizer), args.validation_tokens, end), 0
    for place, piece, ends in _read(args.texts, "encode"):
        tokens_N = _with_place(
            place, partial(tokenizer.encode, piece, allowed_special="all" if args.special_tokens else ())
        )
        tail.add(tokens_N)
        if ends:
            tail.add(np.array([end]))
            documents += 1
    validation_N = tail.close()
    if not len(validation_N):
        raise UserError(f"{args.texts[0]} and the texts after it are too short for validation: give more text", DATA)
    characters = len(tokenizer.decode(validation_N[validation_N != end]))
    tail.writer.close(validation_N, characters)
    counts = f"{tail.total - len(validation_N):,} tokens to train on, {len(validation_N):,} for validation"
    print(f"{folder}: {documents:,} documents, {counts}")
    print(f"{tokenizer.vocab_size:,} tokens in the vocabulary; {end} ends a document")


def _check(args):
    """Raise UserError that names the wrong flag (exit USAGE) or the missing file (exit DATA)."""
    if not args.texts:
        raise UserError("no text is named: give text files, or *.jsonl files", USAGE)
    if args.out is None:
        raise UserError("--out is missing: name the new folder", USAGE)
    flags.require("validation_tokens", 2 <= args.validation_tokens <= 2**27, args, "2 to 134217728")
    if args.tokenizer != "byte_pairs" and args.vocab_size is not None:
        raise UserError(f"--vocab_size {args.vocab_size} is for --tokenizer byte_pairs: drop it", USAGE)
    if args.tokenizer == "byte_pairs" and args.vocab_size is None:
        raise UserError("--vocab_size is missing: say how many byte pairs to learn, such as 8192", USAGE)
    if args.tokenizer == "byte_pairs":
        flags.require("vocab_size", 257 <= args.vocab_size < 2**31, args, "257 or more")
    for name in args.texts:
        if not os.path.isfile(name):
            raise UserError(f"{name} is not a file: give text files, or *.jsonl files", DATA)


def _new_folder(out):
    """Return the empty folder. Raises UserError (exit DATA) if it holds something."""
    with files.disk_errors(out):
        Path(out).mkdir(parents=True, exist_ok=True)
        if os.listdir(out):
            raise UserError(f"{out} is not empty: give another --out", DATA)
    return Path(out)


def _tokenizer(args):
    """Return the tokenizer of --tokenizer; to learn one, read all texts once."""
    if args.tokenizer == "characters":
        found = set()
        for _, piece, _ in _read(args.texts, "characters"):
            found |= set(piece)
        return text.train_characters("".join(found))
    if args.tokenizer == "byte_pairs":
        pieces = (piece for _, piece, _ in _read(args.texts, "byte pairs"))
        return text.train_byte_pairs_on(pieces, args.vocab_size - 1)
    return pretrained.load(args.tokenizer)


def _read(names, what):
    """Yield (place in the texts, piece of text, whether a document ends with it) for all pieces of all documents."""
    size = sum(os.path.getsize(name) for name in names)
    with progress.bar(total=size, desc=what, unit="B", unit_scale=True) as bar:
        for name in names:
            try:
                with open(name, "rb") as file:
                    yield from (_lines if name.lower().endswith(".jsonl") else _pieces)(name, file, bar)
            except OSError as error:
                raise UserError(f"{name} cannot be read ({error.strerror}): give another file", DATA) from None


def _pieces(name, file, bar):
    """Yield the pieces of a file that is one document, and an empty one that ends it."""
    position = 0
    for piece in text.pieces(_decode(name, file, bar)):
        yield f"{name}, after character {position:,}", piece, False
        position += len(piece)
    yield name, "", True


def _decode(name, file, bar):
    decoder, offset = codecs.getincrementaldecoder("utf-8")(), 0
    while True:
        data = file.read(PART)
        try:
            pending = len(decoder.getstate()[0])  # bytes of a character that began in the piece before
            piece = decoder.decode(data, final=not data)
            yield piece if offset else piece.removeprefix("\ufeff")  # a byte order mark
        except UnicodeDecodeError as error:
            place = offset - pending + error.start
            raise UserError(f"{name} is not UTF-8 at byte offset {place}: convert it, or give another", DATA) from None
        if not data:
            return
        offset += len(data)
        bar.update(len(data))


def _lines(name, file, bar):
    """Yield the documents of a file with one in each line; skip blank lines."""
    for number, line in enumerate(file, 1):
        bar.update(len(line))
        if line.strip():
            yield f"{name}, line {number}", _document(f"{name}, line {number}", line), True


def _document(place, line):
    try:
        content = json.loads(line)["text"]
        content.encode("utf-8")  # fails for a half of a character, a lone surrogate
        return content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f'{place}: is not a JSON object with a field "text": fix or remove the line', DATA) from None


def _with_place(place, call):
    """Return call(); a UserError is raised again with its place in the texts."""
    try:
        return call()
    except UserError as error:
        raise UserError(f"{place}: {error}", error.exit_code) from None


class Tail:
    """Pass tokens on to a Writer, all but the last, which become the validation part."""

    def __init__(self, writer, most, end):
        self.writer, self.most, self.end = writer, most, end
        self.buffer, self.count, self.total = [np.zeros(0, np.uint32)], 0, 0

    def add(self, tokens_N):
        """Add the next tokens."""
        self.buffer.append(tokens_N.astype(np.uint32))
        self.count += len(tokens_N)
        self.total += len(tokens_N)
        if self.count > self.most + shards.SHARD_TOKENS // 32:
            self._pass_on(self.most)

    def close(self):
        """Return the validation part, after all tokens before it are passed on."""
        most = min(self.most, self.total // 10)
        self._pass_on(most)
        tail_N = self.buffer[0]
        (ends,) = np.nonzero(tail_N[: most // 2] == self.end)
        if len(ends):
            self._pass_on(most - int(ends[0]) - 1)
        return self.buffer[0]

    def _pass_on(self, size):
        tail_N = np.concatenate(self.buffer)
        self.writer.add(tail_N[: len(tail_N) - size])
        self.buffer, self.count = [tail_N[len(tail_N) - size :]], size


if __name__ == "__main__":
    sys.exit(flags.script("prepare.py", Prepare, prepare))
