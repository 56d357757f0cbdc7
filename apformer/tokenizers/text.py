"""Text to tokens and back: the characters of a text, or byte pairs (`byte_pairs` says what those are).

    encode(text, allowed_special=()) -> tokens_T, int32    decode(tokens_T) -> text    vocab_size    special_tokens

Both tokenizers have these names, and decode(encode(text)) is the text: of characters for every text of the vocabulary,
of byte pairs for every text there is. Byte pairs are trained and run by the `tokenizers` library.

A special token, such as GPT-2's <|endoftext|>, is not a piece of a text but a sign for the model. A text that spells
one is refused unless `allowed_special` names it or is "all", as in `tiktoken`: whoever writes a part of a text could
otherwise end it. `with_end` sees to it that there is one for the end of a text.
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
from apformer.tokenizers.digits import Tokens, codes, inside, refuse_unknown

_BLOCK = 1 << 18  # characters handed to the library at a time: it holds some 200 bytes for each
_END = "<|endoftext|>"  # of a text, in byte pairs
_END_CHARACTER = chr(0x10FFFF)  # the same in characters: the last code point, which Unicode keeps out of all texts
_LONG = re.compile(r"(\S{256})(?=\S)")
_LINE_END = re.compile(r"(?<=[^\W_])(?=[\r\n])")


@dataclass(frozen=True)
class Characters:
    """A token for each character of `characters`, which are in the order of their code points."""

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
        """Return the tokenizer for a model of so many rows, or None."""
        return self if rows == self.vocab_size else None

    def with_end(self) -> tuple["Characters", int]:
        """Return (the tokenizer with a token for the end of a text, its id): the last, made if there is none."""
        characters = self.characters.removesuffix(_END_CHARACTER) + _END_CHARACTER
        return Characters(characters), len(characters) - 1

    def encode(self, text: str, *, allowed_special: str | Collection[str] = ()) -> np.ndarray:
        """Return tokens_T, int32. Raises UserError (exit DATA) that names the first character which is unknown."""
        refuse_special(text, _END_CHARACTER if self.special_tokens else (), allowed_special)
        codes_V, codes_T = codes(self.characters), codes(text)
        tokens_T = np.minimum(np.searchsorted(codes_V, codes_T), self.vocab_size - 1).astype(np.int32)
        remedy = f"use the {self.vocab_size} characters of the text it was made from"
        refuse_unknown(text, codes_V[tokens_T] != codes_T, remedy)
        return tokens_T

    def decode(self, tokens_T: Tokens) -> str:
        """Return the text of tokens. Raises UserError (exit DATA) that names the first id outside the vocabulary."""
        return codes(self.characters)[inside(tokens_T, self.vocab_size)].tobytes().decode("utf-32-le")

    def bytes_of(self, token: int) -> bytes:
        """Return the UTF-8 of one token. Raises as `decode` does."""
        return self.decode([token]).encode("utf-8")

    def to_json(self) -> str:
        """Return the text of a file that `pretrained.load` reads."""
        return json.dumps({"characters": self.characters}) + "\n"


@dataclass(frozen=True)
class BytePairs:
    """A byte-level `tokenizers.Tokenizer`, as `train_byte_pairs` and `pretrained.load` make it.

    rows: the number of tokens that a model has rows for; None for all.
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
        return frozenset(token for token, what in self._added.items() if what.special)

    def with_rows(self, rows: int) -> "BytePairs | None":
        """Return the tokenizer for a model of so many rows, or None; only added tokens may be without one."""
        own = max({*range(self.vocab_size)} - self._added.keys(), default=-1) + 1
        return BytePairs(self.tokenizer, rows) if own <= rows <= 2 * self.vocab_size else None

    @cached_property
    def _added(self) -> dict[int, Any]:
        return self.tokenizer.get_added_tokens_decoder()

    @cached_property
    def _bytes(self) -> list[bytes]:
        """The bytes of each token; what was added to a vocabulary is written as it is, and not in letters for bytes."""
        byte_of, written = byte_of_letter(), []
        for token, name in enumerate(map(self.tokenizer.id_to_token, range(self.vocab_size))):
            in_letters = token not in self._added and byte_of.keys() >= {*name}
            written.append(bytes(map(byte_of.__getitem__, name)) if in_letters else name.encode("utf-8"))
        return written

    def with_end(self) -> tuple["BytePairs", int]:
        """Return (the tokenizer with a token for the end of a text, its id): <|endoftext|>, made if there is none."""
        tokenizer = library().Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.add_special_tokens([_END])  # which changes nothing where it is one
        return BytePairs(tokenizer), tokenizer.token_to_id(_END)

    def encode(self, text: str, *, allowed_special: str | Collection[str] = ()) -> np.ndarray:
        """Return tokens_T, int32.

        Raises UserError (exit DATA) for a lone surrogate, a special token not allowed, a token without a row, and an
        added token that takes the spaces beside it, so that the text would not come back.
        """
        refuse_special(text, map(self.tokenizer.id_to_token, sorted(self.special_tokens)), allowed_special)
        blocks = [self.tokenizer.encode(block, add_special_tokens=False).ids for block in _blocks(text)]
        tokens_T = np.concatenate([np.array(block, np.int32) for block in [[], *blocks]])
        for token in sorted(self._added.keys() & {*tokens_T.tolist()}):
            what = self._added[token]
            if token >= (self.rows or self.vocab_size):
                unknown = f"the model has {self.rows:,} rows, none for the token {what.content}, id {token:,}"
                raise UserError(f"{unknown}: remove it from the text", DATA)
            if (what.lstrip or what.rstrip) and self.decode(tokens_T) != text:
                lost = f"the token {what.content} takes the spaces beside it, and the text does not come back"
                raise UserError(f"{lost}: remove them, or set its lstrip and rstrip to false in the tokenizer", DATA)
        return tokens_T

    def decode(self, tokens_T: Tokens) -> str:
        """Return the text of tokens, U+FFFD for bytes that are no UTF-8. Raises UserError (exit DATA) as Characters."""
        tokens = inside(tokens_T, self.vocab_size).tolist()
        return b"".join(map(self._bytes.__getitem__, tokens)).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of one token, perhaps a part of a character. Raises as `decode` does."""
        return self._bytes[int(inside([token], self.vocab_size)[0])]

    def to_json(self) -> str:
        """Return the text of a `tokenizer.json`, which `pretrained.load` and the HuggingFace libraries read."""
        return self.tokenizer.to_str(pretty=True) + "\n"


def train_characters(text: str) -> Characters:
    """Take the characters of a text. Raises UserError (exit DATA) where it is empty or holds a lone surrogate."""
    _refuse_no_text(text)
    return Characters("".join(sorted(set(text))))


def train_byte_pairs(text: str, vocab_size: int) -> BytePairs:
    """Learn byte pairs from a text, by GPT-4's pattern; fewer than `vocab_size` where it is too short for as many.

    Raises UserError: USAGE if vocab_size is under 256 or the text extra is missing, DATA as `train_characters`.
    """
    if vocab_size < len(BYTES):
        raise UserError(f"--vocab_size {vocab_size} is under 256, the number of bytes: give 256 or more")
    _refuse_no_text(text)
    return train_byte_pairs_on([text], vocab_size)


def train_byte_pairs_on(texts: Iterable[str], vocab_size: int) -> BytePairs:
    """Learn byte pairs from texts that come one after the other, of which only one is in memory at a time.

    What has no blank in it is cut every _LONG characters: learning takes the square of the length of a word.
    """
    tokenizers = library()
    tokenizer = byte_level(tokenizers.models.BPE(), GPT4_PATTERN)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    parts = (part for text in texts for block in _blocks(text) for part in _LONG.split(block) if part)
    tokenizer.train_from_iterator(parts, trainer)
    return BytePairs(tokenizer)


def byte_level(model: Any, pattern: str) -> Any:
    """Return the library's tokenizer of a model of byte pairs, which cuts a text by a pattern."""
    tokenizers = library()
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer(pattern), tokenizers.decoders.ByteLevel()
    return tokenizer


def pre_tokenizer(pattern: str) -> Any:
    """Return the library's way from a text to chunks of bytes, written as letters."""
    chunks, regex = library().pre_tokenizers, library().Regex
    if pattern == GPT2_PATTERN:
        return chunks.ByteLevel(add_prefix_space=False, use_regex=True)
    to_bytes = chunks.ByteLevel(add_prefix_space=False, use_regex=False)
    return chunks.Sequence([chunks.Split(regex(pattern), "isolated"), to_bytes]) if pattern else to_bytes


def pieces(parts: Iterable[str], least: int = 1 << 22) -> Iterator[str]:
    """Yield a long text, which comes in parts, in pieces of at least `least` characters, with the tokens of the whole.

    Pieces end where `encode` may cut, at a line end. Where there is none, a piece ends anywhere.
    """
    held = ""
    for part in parts:
        held += part
        if len(held) >= least:
            end = len(held)
            for cut in _LINE_END.finditer(held, len(held) // 2):
                end = cut.start()
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def for_model(tokenizer: Characters | BytePairs, rows: int, model: str) -> Characters | BytePairs:
    """Return the tokenizer for a model, which is called `model`, with a vocabulary of so many rows.

    Of byte pairs a model may have up to as many rows more than there are tokens, and added tokens may be without a row,
    as of a model that was not resized: a text with one of those is refused when it is encoded.

    Raises UserError (exit DATA) if the vocabularies cannot be of one model.
    """
    if (found := tokenizer.with_rows(rows)) is None:
        sizes = f"{model} has a vocabulary of {rows:,} tokens and the tokenizer one of {tokenizer.vocab_size:,}"
        raise UserError(f"{sizes}: give the tokenizer that the model was trained with", DATA)
    return found


@cache
def byte_of_letter() -> dict[str, int]:
    """Return the byte that each letter of the library stands for: `BYTES`, in the order of code points."""
    return dict(zip(sorted(library().pre_tokenizers.ByteLevel.alphabet()), BYTES, strict=True))


def _blocks(text: str) -> Iterator[str]:
    """Yield a text in parts, cut between a letter or digit and a line end, which no pattern of the GPT family joins."""
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
