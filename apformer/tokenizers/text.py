"""Encode texts by characters, or by byte pairs (see `byte_pairs`).

    encode(text, allowed_special=()) -> tokens_T, int32    decode(tokens_T) -> text    vocab_size    special_tokens

Both tokenizers have these names, and decode(encode(text)) is the text: for characters if the vocabulary has all of
them, for byte pairs always. Byte pairs are trained and run by the `tokenizers` library.

Special tokens: see `chunks.refuse_special`. `with_end` adds one for the end of a text if there is none.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN, library, refuse_special, refuse_surrogates
from apformer.tokenizers.digits import Tokens, codes, refuse_unknown, require_known

_BLOCK = 1 << 18  # characters given to the library at a time, since it needs some 200 bytes of memory for each
_END = "<|endoftext|>"  # the end of a text in byte pairs
_END_CHARACTER = chr(0x10FFFF)  # the end of a text in characters: the last code point, which no text may contain
_LONG = re.compile(r"(\S{256}(?=\S)|\s{256}(?=\s))")
_LINE_END = re.compile(r"(?<=[^\W_])(?=[\r\n])")


@dataclass(frozen=True)
class Characters:
    """A tokenizer with a token for each of its characters, which are in the order of their code points."""

    characters: str

    by_characters = True

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    @property
    def special_tokens(self) -> frozenset[int]:
        """Ids of special tokens."""
        return frozenset({self.vocab_size - 1} if self.characters.endswith(_END_CHARACTER) else ())

    def with_rows(self, rows: int) -> "Characters | None":
        """Return the tokenizer for a model with this number of rows; None if they do not match."""
        return self if rows == self.vocab_size else None

    def with_end(self) -> tuple["Characters", int]:
        """Return (tokenizer whose last token ends a text, the id of that token); it is added if there is none."""
        characters = self.characters.removesuffix(_END_CHARACTER) + _END_CHARACTER
        return Characters(characters), len(characters) - 1

    def encode(self, text: str, *, allowed_special: str | Collection[str] = ()) -> np.ndarray:
        """Return tokens_T, int32. Raises UserError (exit DATA) that names the first unknown character."""
        refuse_special(text, _END_CHARACTER if self.special_tokens else (), allowed_special)
        codes_V, codes_T = codes(self.characters), codes(text)
        tokens_T = np.minimum(np.searchsorted(codes_V, codes_T), self.vocab_size - 1).astype(np.int32)
        remedy = f"use the {self.vocab_size} characters of the text it was made from"
        refuse_unknown(text, codes_V[tokens_T] != codes_T, remedy)
        return tokens_T

    def decode(self, tokens_T: Tokens) -> str:
        """Return the text of tokens. Raises UserError (exit DATA) that names the first id outside the vocabulary."""
        return codes(self.characters)[require_known(tokens_T, self.vocab_size)].tobytes().decode("utf-32-le")

    def bytes_of(self, token: int) -> bytes:
        """Return the UTF-8 of one token. Raises as `decode` does."""
        return self.decode([token]).encode()

    def to_json(self) -> str:
        """Return the text of a file that `pretrained.load` reads."""
        return json.dumps({"characters": self.characters}) + "\n"


@dataclass(frozen=True)
class BytePairs:
    """A tokenizer by byte pairs: a byte-level `tokenizers.Tokenizer` of `train_byte_pairs` or `pretrained.load`.

    rows: number of tokens that have a row in the embedding table of a model; None for all.
    """

    tokenizer: Any
    rows: int | None = None

    by_characters = False

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    @property
    def special_tokens(self) -> frozenset[int]:
        """Ids of special tokens."""
        return frozenset(token for token, added in self._added.items() if added.special)

    def with_rows(self, rows: int) -> "BytePairs | None":
        """Return the tokenizer for a model with this number of rows; only added tokens may have no row.

        None if other tokens have no row, or if more than half of the rows have no token.
        """
        least = max({*range(self.vocab_size)} - self._added.keys(), default=-1) + 1
        return BytePairs(self.tokenizer, rows) if least <= rows <= 2 * self.vocab_size else None

    @cached_property
    def _added(self) -> dict[int, Any]:
        return self.tokenizer.get_added_tokens_decoder()

    @cached_property
    def _bytes(self) -> list[bytes]:
        """The bytes of each token. The name of a token has letters for bytes, unless the token was added."""
        byte_of, names = byte_of_letter(), map(self.tokenizer.id_to_token, range(self.vocab_size))
        return [
            bytes(map(byte_of.__getitem__, name))
            if token not in self._added and byte_of.keys() >= {*name}
            else name.encode()
            for token, name in enumerate(names)
        ]

    def with_end(self) -> tuple["BytePairs", int]:
        """Return (tokenizer with the token <|endoftext|>, its id); the token is added if there is none."""
        tokenizer = library().Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.add_special_tokens([_END])  # no change if it is one
        return BytePairs(tokenizer), tokenizer.token_to_id(_END)

    def encode(self, text: str, *, allowed_special: str | Collection[str] = ()) -> np.ndarray:
        """Return tokens_T, int32.

        Raises UserError (exit DATA) for a lone surrogate, a special token that is not allowed, a token without a row,
        and an added token that includes the spaces beside it, so that decoding would not return the text.
        """
        refuse_special(text, map(self.tokenizer.id_to_token, sorted(self.special_tokens)), allowed_special)
        blocks = (self.tokenizer.encode(block, add_special_tokens=False).ids for block in _blocks(text))
        tokens_T = np.array([token for block in blocks for token in block], np.int32)
        for token in sorted(self._added.keys() & {*tokens_T.tolist()}):
            added = self._added[token]
            if token >= (self.rows or self.vocab_size):
                fault = f"the model has {self.rows:,} rows, none for the token {added.content}, id {token:,}"
                raise UserError(f"{fault}: remove it from the text", DATA)
            if (added.lstrip or added.rstrip) and self.decode(tokens_T) != text:
                fault = f"the token {added.content} removes the spaces beside it, and decoding does not restore them"
                raise UserError(f"{fault}: remove them, or set its lstrip and rstrip to false in the tokenizer", DATA)
        return tokens_T

    def decode(self, tokens_T: Tokens) -> str:
        """Return the text of tokens, with U+FFFD for invalid UTF-8. Raises UserError (exit DATA) as Characters does."""
        tokens = require_known(tokens_T, self.vocab_size).tolist()
        return b"".join(map(self._bytes.__getitem__, tokens)).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of one token, perhaps a part of a character. Raises as `decode` does."""
        return self._bytes[int(require_known([token], self.vocab_size)[0])]

    def to_json(self) -> str:
        """Return the text of a `tokenizer.json`, which `pretrained.load` and the HuggingFace libraries read."""
        return self.tokenizer.to_str(pretty=True) + "\n"


Tokenizer = Characters | BytePairs


def train_characters(text: str) -> Characters:
    """Make a tokenizer of the characters of a text. Raises UserError (exit DATA) for no text, or a lone surrogate."""
    _refuse_no_text(text)
    return Characters("".join(sorted(set(text))))


def train_byte_pairs(text: str, vocab_size: int) -> BytePairs:
    """Learn byte pairs from a text, with GPT-4's pattern; fewer than `vocab_size` tokens if the text is too short.

    Raises UserError: USAGE if vocab_size is under 256 or the text extra is missing, DATA as `train_characters`.
    """
    if vocab_size < len(BYTES):
        raise UserError(f"--vocab_size {vocab_size} is under 256, the number of bytes: give 256 or more")
    _refuse_no_text(text)
    return train_byte_pairs_on([text], min(vocab_size, len(BYTES) + len(text.encode())))  # each merge shortens it


def train_byte_pairs_on(texts: Iterable[str], vocab_size: int) -> BytePairs:
    """Learn byte pairs from an iterable of texts, of which one at a time is in memory.

    Longer words and runs of spaces are cut every 256 characters: the time of learning grows with the square of their
    length.
    """
    tokenizers = library()
    tokenizer = byte_level(tokenizers.models.BPE(), GPT4_PATTERN)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    parts = (part for text in texts for block in _blocks(text) for part in _LONG.split(block) if part)
    tokenizer.train_from_iterator(parts, trainer)
    return BytePairs(tokenizer)


def byte_level(model: Any, pattern: str) -> Any:
    """Return the library's tokenizer with a model of byte pairs and a pattern that cuts texts."""
    tokenizers = library()
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer(pattern), tokenizers.decoders.ByteLevel()
    return tokenizer


def pre_tokenizer(pattern: str) -> Any:
    """Return the library's pre-tokenizer, which cuts a text into chunks of bytes, written as letters."""
    tokenizers = library()
    classes = tokenizers.pre_tokenizers
    to_bytes = classes.ByteLevel(add_prefix_space=False, use_regex=pattern == GPT2_PATTERN)
    if pattern in ("", GPT2_PATTERN):
        return to_bytes
    return classes.Sequence([classes.Split(tokenizers.Regex(pattern), "isolated"), to_bytes])


def pieces(parts: Iterable[str], least: int = 1 << 22) -> Iterator[str]:
    """Cut a long text, given in parts, into pieces of about `least` characters that have the tokens of the whole text.

    A piece ends at a line end, where `encode` may cut. If there is none, it ends anywhere.
    """
    rest = ""
    for part in parts:
        rest += part
        if len(rest) >= least:
            end = max((cut.start() for cut in _LINE_END.finditer(rest, len(rest) // 2)), default=len(rest))
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def for_model(tokenizer: Tokenizer, rows: int, model: str) -> Tokenizer:
    """Return the tokenizer for a model with this number of rows in its embedding table; model: its name in messages.

    With byte pairs, up to half of the rows may have no token. Added tokens may have no row, if the model was not
    resized: a text with one of them is refused when it is encoded.

    Raises UserError (exit DATA) if the sizes of model and tokenizer do not fit.
    """
    fitted = tokenizer.with_rows(rows)
    if fitted is None:
        sizes = f"{model} has a vocabulary of {rows:,} tokens and the tokenizer one of {tokenizer.vocab_size:,}"
        raise UserError(f"{sizes}: give the tokenizer that the model was trained with", DATA)
    return fitted


@cache
def byte_of_letter() -> dict[str, int]:
    """Return {letter: byte} of the letters by which the library writes bytes: `BYTES` in the order of code points."""
    return dict(zip(sorted(library().pre_tokenizers.ByteLevel.alphabet()), BYTES, strict=True))


def _blocks(text: str) -> Iterator[str]:
    """Cut a text into blocks between a letter or digit and a line end, which no pattern of the GPT family joins."""
    refuse_surrogates(text)
    start = 0
    while start < len(text):
        cut = _LINE_END.search(text, start + _BLOCK)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def _refuse_no_text(text: str) -> None:
    if not text:
        raise UserError("the text is empty: give one to make a vocabulary from", DATA)
    refuse_surrogates(text)
