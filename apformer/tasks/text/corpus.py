"""A text as rows of tokens: random windows of its first part for training, and all of its last part for validation.

    text  = [ training part | validation part ]        row = tokens_t .. tokens_t+context; all but the first are targets

Windows of the validation part follow each other (`perplexity.windows`), so every token but the first is predicted
exactly once, after 1 to context tokens, as in training.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files
from apformer.errors import DATA, UserError, tell
from apformer.files import AnyPath, FilePath
from apformer.flags import require, require_whole

# Files of folders that hold a run, a model or tokens.
OTHERS = {"metrics.jsonl", "model.safetensors", "model.safetensors.index.json", "000000.bin"}
SHOWN = 5  # most names of skipped files in a message
HEAD = 2**13  # bytes of a file that are read first


@dataclass(frozen=True)
class Config:
    """Text of a language model, and its cut into rows.

    Attributes:
        text: Text in UTF-8 to train on: a file, or a folder of them; or a folder of tokens, see datasets/text.
        tokenizer: Tokenizer: characters, byte_pairs (--vocab_size of them), or a file or folder that holds one.
        special_tokens: Read special tokens in the text, such as <|endoftext|>. Without this flag, a text that has some
            is refused.
        context: Number of tokens of a row: the most that the model sees before the token it predicts.
        validation_share: Share of the text, at its end, that is kept for validation. A folder of tokens has a part for
            it.
    """

    text: FilePath | None = None
    tokenizer: FilePath = "characters"
    special_tokens: bool = False
    context: int = 256
    validation_share: float = 0.1


@dataclass(frozen=True)
class Options:
    """Options of fine-tuning a language model.

    Attributes:
        init_from: GPT-2 folder or run to train further, with its tokenizer. `apformer generate --help` says how to get
            GPT-2.
        lora_rank: Rank of the low-rank adapters, which are trained instead of the weights. With 0, all weights are
            trained.
        lora_alpha: Scale of the adapters: the product of their two factors is multiplied by lora_alpha / lora_rank.
        lora_on: Matrices with adapters: all of blocks and cells, or queries, keys and values alone, as `peft` does for
            GPT-2.
    """

    init_from: FilePath | None = None
    lora_rank: int = 0
    lora_alpha: float = 16.0
    lora_on: Literal["all", "attention"] = "all"


def check(cfg: Config) -> None:
    """Raise UserError (exit USAGE) for a flag that is missing or out of range."""
    if cfg.text is None:
        raise UserError("--text is missing: give a text file in UTF-8, or a folder of texts or of tokens")
    require_whole("context", cfg)
    require("validation_share", 0 < cfg.validation_share < 1, cfg, "more than 0 and less than 1")


def read(path: AnyPath) -> str:
    """Return the text of a file or a folder; report the files of a folder. Raises UserError (exit DATA)."""
    return read_folder(path) if os.path.isdir(path) else read_file(path)


def read_file(path: AnyPath) -> str:
    """Return the text of a file. Raises UserError (exit DATA) if it cannot be read, or is no UTF-8; names the byte."""
    return files.read_text(path, "restore it, or give another file", DATA)


def read_folder(folder: AnyPath) -> str:
    """Return the texts of a folder and its subfolders; report the files.

    Texts are sorted by path and joined by blank lines. Files that are hidden, empty or no text are
    skipped, and tokenizer.json. Raises UserError (exit DATA) if no text is left.
    """
    paths = sorted(Path(folder).rglob("*"))
    others = {path.parent for path in paths if path.name in OTHERS}
    texts, skipped = [], {}
    for path in paths:
        hidden = any(part[0] == "." for part in path.relative_to(folder).parts)
        if hidden or path.is_dir() or path.name == "tokenizer.json":
            continue
        name = min(others & {*path.parents}, default=path)
        text = None
        with suppress(UserError, OSError):
            if name is path and path.is_file() and path.stat().st_size:
                with open(path, "rb") as file:
                    if b"\0" not in file.read(HEAD):  # else a large image would be read to its end
                        text = read_file(path)
        if text is None or "\0" in text:
            skipped[str(name)] = None
        else:
            texts.append(text)
    message = f"{folder}: {len(texts):,} text{'s' * (len(texts) != 1)} read"
    if skipped:
        names = ", ".join([*skipped][:SHOWN]) + ", ..." * (len(skipped) > SHOWN)
        message += f"; {len(skipped):,} skipped, not UTF-8 text or part of a run, a model or tokens: {names}"
    if not texts:
        raise UserError(f"{message}; give another folder, or a file", DATA)
    tell(message)
    return "\n\n".join(texts)


def split(text: str, cfg: Config) -> tuple[str, str]:
    """Return the training part and the validation part."""
    at = int(len(text) * (1 - cfg.validation_share))
    return text[:at], text[at:]


def draw(key: jax.Array, places: int, batch_size: int) -> jax.Array:
    """Draw the random numbers of `starts`: uniform places if an int32 can hold them, else 64 random bits each.

    Pure; places (their number) and batch_size are static under jit.
    """
    if places < 2**31:
        return jax.random.randint(key, (batch_size,), 0, places, jnp.int32)
    return jax.random.bits(key, (batch_size, 2), jnp.uint32)


def starts(random: np.ndarray, places: int) -> np.ndarray:
    """Return places, int64, from the random numbers of `draw`. Runs on the host, since JAX computes with 32 bits.

    64 bits modulo the number of places: no place is more likely than another by more than places / 2^64.
    """
    if places < 2**31:
        return random.astype(np.int64)
    bits_B = random.astype(np.uint64) @ np.array([2**32, 1], np.uint64)
    return (bits_B % np.uint64(places)).astype(np.int64)
