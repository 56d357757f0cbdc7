"""Cut a text into tokens, or learn a tokenizer: apformer tokenize FOLDER --text "some words".

A tokenizer is a file or a folder: a run of a text, a tokenizer.json, the vocab.json and merges.txt of GPT-2, GPT-4's
cl100k_base.tiktoken, or what byte_pairs.Tokenizer.save wrote. A terminal shows the tokens of a text in colours, unless
NO_COLOR is set; elsewhere a | stands between them.

    apformer tokenize --train book.txt --vocab_size 1000 --out tokenizer.json     learn byte pairs from a text
    apformer tokenize gpt2 --text "the lowest"                                    the text cut, ids and pieces
    apformer tokenize tokenizer.json --text "the lowest" --merges                 and the merges that led to them
    apformer tokenize cl100k_base.tiktoken --file book.txt --cut                  a whole text cut
    apformer tokenize tokenizer.json --file book.txt                              the ids of a whole text
    apformer tokenize tokenizer.json --decode 262 268                             the text of ids
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from apformer.errors import UserError
from apformer.files import FilePath, preflight
from apformer.formats.safetensors import refuse_to_overwrite
from apformer.report import cut
from apformer.tasks import settings_file
from apformer.tasks.text import corpus, folders
from apformer.tasks.translation import vocabularies
from apformer.tokenizers import byte_pairs, merges, pretrained
from apformer.tokenizers.text import Characters, Tokenizer, train_byte_pairs, train_characters

EXAMPLE = 'apformer tokenize FOLDER --text "some words"'
NEEDS = {  # {flag: the flags that it goes with}
    "by": ["train"],
    "vocab_size": ["train"],
    "out": ["train"],
    "cut": ["file"],
    "merges": ["text"],
    "special_tokens": ["text", "file"],
}
Answer = tuple[dict[str, Any], list[str]]  # as JSON, and as lines
BYTE_PAIRS = 1000  # tokens to learn without --vocab_size


@dataclass(frozen=True)
class Tokenize:
    """Cut a text into tokens, or learn a tokenizer: `apformer tokenize FOLDER --text "some words"`.

    Attributes:
        tokenizer: File or folder of a tokenizer: a run of a text, a tokenizer.json, a GPT-2 folder,
            cl100k_base.tiktoken.
        text: A text. Prints it cut into tokens, then the id and the piece of each.
        file: A text file. Prints the ids of its tokens.
        cut: With --file: print the text, cut into tokens, instead of ids.
        decode: Ids of tokens. Prints their text.
        merges: Show the merges that led to the pieces of --text, one after the other.
        special_tokens: Read the special tokens that the text spells, such as <|endoftext|>; without it such a text is
            refused.
        train: A text file to learn a tokenizer from.
        by: What the tokens of --train are; byte_pairs if not given.
        vocab_size: Tokens that --train makes, the 256 bytes among them; 1000 if not given.
        out: The new file that --train writes.
        json: Print one JSON object.
    """

    tokenizer: Positional[Annotated[FilePath | None, arg(metavar="[TOKENIZER]")]] = None
    text: str | None = None
    file: FilePath | None = None
    cut: bool = False
    decode: tuple[int, ...] | None = None
    merges: bool = False
    special_tokens: bool = False
    train: FilePath | None = None
    by: Literal["byte_pairs", "characters"] | None = None
    vocab_size: int | None = None
    out: FilePath | None = None
    json: bool = False


def tokenize(args: Tokenize) -> None:
    """Print what the flags ask for. Raises UserError that names the flag or the file."""
    _check(args)
    result, lines = _use(load(args.tokenizer or ""), args) if args.train is None else train(args)
    print(json.dumps(result) if args.json else "\n".join(lines))


def _check(args: Tokenize) -> None:
    """Raise UserError (exit USAGE) unless the flags go together."""
    flags = {name for name, value in vars(args).items() if value != getattr(Tokenize, name)}
    actions = [name for name in ("train", "text", "file", "decode") if name in flags]
    if len(actions) > 1:
        raise UserError(f"--{actions[0]} and --{actions[1]} exclude each other: give one")
    for flag, needed in NEEDS.items():
        if flag in flags and not any(name in flags for name in needed):
            raise UserError(f"--{flag} is for --{' or --'.join(needed)}: give --{needed[0]}, or drop it")
    if "train" in flags:
        if "tokenizer" in flags:
            raise UserError(f"--train makes a new tokenizer: drop {args.tokenizer}, or --train")
        if not args.out:
            raise UserError("--out is missing: name the new file, as in `--out tokenizer.json`")
    elif "tokenizer" not in flags:
        raise UserError(f"no tokenizer is named: give its file or folder, as in `{EXAMPLE}`")
    if args.by == "characters" and "vocab_size" in flags:
        raise UserError(f"--vocab_size {args.vocab_size} is for byte pairs: drop it")


def load(path: str | Path) -> Tokenizer:
    """Read a tokenizer of a file, a folder or a run. Raises UserError that names the path, or a run without one."""
    path = Path(path)
    source, target = (path / name for name in vocabularies.APART)
    if os.path.exists(source):
        raise UserError(f"{path} has a tokenizer for each language: name {source} or {target}")
    config, *others = (path / name for name in ("config.json", "tokenizer.json", "vocab.json"))
    if os.path.exists(config) and not any(map(os.path.exists, others)) and not folders.is_gpt2(path):
        task = settings_file.read(path).task
        raise UserError(f"{path} is a run of {task}, which has no tokenizer: name a run of a text")
    return pretrained.load(path)


def train(args: Tokenize) -> Answer:
    """Learn a tokenizer from the file of --train, and save it."""
    out = str(args.out)
    refuse_to_overwrite(out)
    preflight(Path(out).parent, 0)
    if out.endswith(".tiktoken"):
        raise UserError(f"--out {out} has the ending of another format: name a file that ends with .json")
    text = corpus.read(str(args.train))
    if args.by == "characters":
        tokenizer = train_characters(text)
    else:
        tokenizer = train_byte_pairs(text, BYTE_PAIRS if args.vocab_size is None else args.vocab_size)
    pretrained.save(tokenizer, out)
    return {"out": out, "vocab_size": tokenizer.vocab_size}, [f"{out}: {_kind(tokenizer)}"]


def _use(tokenizer: Tokenizer, args: Tokenize) -> Answer:
    """Describe a tokenizer, encode a text or decode ids."""
    if args.decode is not None:
        text = tokenizer.decode(args.decode)
        return {"text": text}, [text]
    text = args.text if args.file is None else corpus.read(args.file)
    if text is None:
        return {"vocab_size": tokenizer.vocab_size}, [f"{args.tokenizer}: {_kind(tokenizer)}"]
    tokens = tokenizer.encode(text, allowed_special="all" if args.special_tokens else ()).tolist()
    if args.file is not None and not args.cut:
        return {"tokens": tokens}, [" ".join(map(str, tokens))]
    pieces = _pieces(tokens, tokenizer)
    result, lines = {"tokens": tokens, "pieces": pieces}, [cut.cut(tokens, tokenizer, cut.in_colour())]
    if args.file is None:
        lines += ["", *(f"{token:6}  {piece}" for token, piece in zip(tokens, pieces, strict=True))]
    if args.merges:
        chunks = merging(tokenizer, text, tokens)
        result["merges"] = [[_pieces(row, tokenizer) for row in rows] for rows in chunks]
        lines += ["", *(" -> ".join(map(" ".join, rows)) for rows in result["merges"])]
    return result, lines


def _kind(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.vocab_size:,} tokens, {'characters' if tokenizer.by_characters else 'byte pairs'}"


def _pieces(tokens: list[int], tokenizer: Tokenizer) -> list[str]:
    r"""Return the piece of each token in quotes; bytes that are a part of a character as \xe2."""
    return ['"' + cut.escape(tokenizer.bytes_of(token)).replace("\n", "\\n") + '"' for token in tokens]


def merging(tokenizer: Tokenizer, text: str, tokens: list[int]) -> list[list[list[int]]]:
    """Return, for each chunk of a text, the rows of tokens after each merge, from bytes on.

    tokens: those of the text. Raises UserError (exit USAGE) if merges alone do not produce them.
    """
    pairs = merges.pairs(tokenizer)
    if isinstance(tokenizer, Characters) or pairs is None:
        raise UserError("--merges is for byte pairs, and this tokenizer cuts in another way: drop it")
    ranks = {(first, second): (rank, new) for rank, (first, second, new) in enumerate(pairs)}
    cut_text, id_of = tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str, tokenizer.tokenizer.token_to_id
    chunks = [[*byte_pairs.merge_steps([*map(id_of, letters)], ranks)] for letters, _ in cut_text(text)]
    if [token for rows in chunks for token in rows[-1]] != tokens:
        raise UserError("--merges cannot follow this text, which merges alone do not cut: drop it")
    return chunks
