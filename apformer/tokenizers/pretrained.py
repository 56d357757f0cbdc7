"""Tokenizers as files.

Those we saved, HuggingFace's `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt`, GPT-4's `cl100k_base.tiktoken`,
and those of `minbpe`.

Characters are a line of JSON, byte pairs a `tokenizer.json`. Ids that a file leaves out, such as 100256 and 100261 to
100275 in GPT-4's, become special tokens like <|unused_100256|>, so that every other token keeps its id.

A tokenizer from elsewhere is accepted if it gives every text back. One that works on bytes does so, unless it also
changes text (lower case, normal forms, a space in front).
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apformer import files
from apformer.errors import DATA, UserError
from apformer.tokenizers import byte_pairs, tiktoken
from apformer.tokenizers.chunks import GPT2_PATTERN, library
from apformer.tokenizers.text import BytePairs, Characters, byte_level, byte_of_letter
from apformer.tokenizers.tiktoken import Vocabulary

# Every byte that UTF-8 has, capitals, and characters that Unicode's normal forms replace; the same between spaces.
_TO_FFFF = (*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x10000, 0x800))
_PROBE = "".join(map(chr, (*_TO_FFFF, *range(0x10000, 0x110000, 0x10000))))
_PROBES = [_PROBE, f" {_PROBE} "]
_PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
_AGAIN = "restore the file, or give another tokenizer"


def save(tokenizer: Characters | BytePairs, path: str | Path) -> None:
    """Write a tokenizer to a file that `load` reads. Raises UserError (exit DISK) if it cannot be written."""
    files.write_text(path, tokenizer.to_json())


def load(path: str | Path) -> Characters | BytePairs:
    """Read the tokenizer of a file, or of a folder: its `tokenizer.json`, else its `vocab.json` and `merges.txt`.

    A file that ends in .tiktoken has to have the name of its vocabulary, such as cl100k, in its own.

    What a `tokenizer.json` says of cutting texts short and of padding is not followed. Raises UserError that names the
    path and the remedy: DATA if it is missing, damaged or no tokenizer of the kind, USAGE without the text extra.
    """
    path = Path(path)
    # os.path answers False where a name is too long; pathlib raises.
    if os.path.isdir(path):
        if not os.path.exists(path / "tokenizer.json"):
            return _of_content(_with_added(_read_gpt2(path), path), path)
        path = path / "tokenizer.json"
    text = files.read_text(path, _AGAIN, DATA)
    if path.suffix == ".tiktoken" or tiktoken.is_one(text):
        return _from_vocabulary(tiktoken.parse(text, path), path)
    if text.startswith(byte_pairs.VERSION):
        found = byte_pairs.parse(text, path)
        tokens = [found.vocab[token] for token in range(256 + len(found.merges))]
        return _from_vocabulary(Vocabulary(tokens, found.merges, found.pattern, found.special_tokens), path)
    try:
        content = files.parse_json(text)
    except ValueError as error:
        remedy = f"give a whole tokenizer.json; `apformer tokenize --train {path} --out FILE` learns one from a text"
        raise UserError(f"{path} is no tokenizer, since no valid JSON ({error}): {remedy}", DATA) from None
    if isinstance(content, dict) and content.keys() == {"characters"}:
        return _characters(content["characters"], path)
    return _of_content(_with_added(content, path.parent), path)


def _of_content(content: Any, path: Path) -> BytePairs:
    """Return the tokenizer of the content of a `tokenizer.json`."""
    with _refusing(f"{path} is no tokenizer", "give a tokenizer.json, or the folder of a vocab.json and a merges.txt"):
        tokenizer = library().Tokenizer.from_str(json.dumps(_without_gaps(content, path)))
    for added in content.get("added_tokens") or ():
        if tokenizer.token_to_id(added["content"]) != added["id"]:
            other = f"{path} gives {json.dumps(added['content'])} the id {added['id']}, which it cannot have"
            raise UserError(f"{other}: {_AGAIN}", DATA)
    return _checked(tokenizer, path)


def _with_added(content: Any, folder: Path) -> Any:
    """Return the content of a `tokenizer.json` with what the files beside it add, as `transformers` reads them.

    These are the ids of `added_tokens.json` and `tokenizer_config.json`, and special tokens by their names alone.
    """
    beside = ("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
    files_of = [folder / name for name in beside]
    if not any(map(os.path.exists, files_of)) or not isinstance(content, dict):
        return content
    with _refusing(f"what {', '.join(beside)} of {folder} add cannot be read", _AGAIN):
        texts = (files.read_text(file, _AGAIN, DATA) if file.exists() else "{}" for file in files_of)
        ids, config, named = map(files.parse_json, texts)
        if config.get("add_prefix_space"):
            raise ValueError("a space is put before each text, which does not come back: set add_prefix_space to false")
        names = {key: name for said in (named, config) for key, name in said.items() if key.endswith("_token")}
        several = [name for said in (named, config) for name in said.get("additional_special_tokens") or ()]
        special = [name["content"] if isinstance(name, dict) else name for name in [*names.values(), *several]]
        special = [name for name in dict.fromkeys(special) if isinstance(name, str)]
        said = {number: {"content": name} for name, number in ids.items()}
        said |= {int(number): what for number, what in config.get("added_tokens_decoder", {}).items()}
        id_of, added = content["model"]["vocab"], {token["content"]: token for token in content["added_tokens"]}
        for number, what in sorted(said.items()):
            name = what["content"]
            added.setdefault(name, _PLAIN | {"special": name in special} | what | {"id": id_of.get(name, number)})
        for name in special:
            free = max([-1, *id_of.values(), *(token["id"] for token in added.values())]) + 1
            added.setdefault(name, _PLAIN | {"content": name, "special": True, "id": id_of.get(name, free)})
        return content | {"added_tokens": sorted(added.values(), key=lambda token: token["id"])}


def _without_gaps(content: Any, path: Path) -> Any:
    """Return the content of a `tokenizer.json` with special tokens for the ids below the largest that nobody has.

    The library would number anew what is added after a gap. What has no gaps, or is of another kind, stays as it is.
    Raises UserError (exit DATA) if more ids are unused than used.
    """
    try:
        vocabulary, added = content["model"]["vocab"], content.get("added_tokens") or []
        named = {token["content"]: token["id"] for token in added}
        ids = {*vocabulary.values(), *named.values()}
        most = _largest(ids, path)
    except (TypeError, KeyError, AttributeError):
        return content  # for the library to refuse
    unused = {f"<|unused_{token}|>": token for token in range(most) if token not in ids}
    if not unused:
        return content
    added = [*added, *(_PLAIN | {"id": token, "content": name, "special": True} for name, token in unused.items())]
    model = content["model"] | {"vocab": vocabulary | named | unused}
    return content | {"model": model, "added_tokens": sorted(added, key=lambda token: token["id"])}


def _largest(ids: set[int], path: Path) -> int:
    """Return the largest id. Raises UserError (exit DATA) if more ids below it are unused than used."""
    most = max(ids, default=-1)
    if most + 1 > 2 * len(ids):
        sizes = f"{path} has {len(ids):,} tokens and ids up to {most:,}, so that more than half are unused"
        raise UserError(f"{sizes}: {_AGAIN}", DATA)
    return most


def _from_vocabulary(found: Vocabulary, path: Path) -> BytePairs:
    """Return the tokenizer of a vocabulary."""
    tokens, merges, pattern, special_tokens = found
    if len({*tokens, *(name.encode("utf-8") for name in special_tokens)}) < len(tokens) + len(special_tokens):
        raise UserError(f"{path} has the same token twice: {_AGAIN}", DATA)
    letter_of = {byte: letter for letter, byte in byte_of_letter().items()}
    written = ["".join(map(letter_of.__getitem__, token)) for token in tokens]
    ids = {letters: token for token, letters in enumerate(written)}
    with _refusing(f"{path} is no tokenizer", "restore the file"):
        pairs = [(written[left], written[right]) for left, right in merges]
        content = json.loads(byte_level(library().models.BPE(ids, pairs), pattern).to_str())
    special = sorted(special_tokens.items(), key=lambda named: named[1])
    added = [_PLAIN | {"id": token, "content": name, "special": True} for name, token in special]
    return _of_content(content | {"added_tokens": added}, path)


def _characters(characters: Any, path: Path) -> Characters:
    try:
        if characters and [*characters] == sorted({*characters}) and characters.encode("utf-8"):
            return Characters(characters)
    except (TypeError, AttributeError, UnicodeEncodeError):
        pass
    raise UserError(f"{path} is damaged: its characters are not distinct and in order; restore the file", DATA)


def _read_gpt2(folder: Path) -> Any:
    """Return GPT-2's two files as the content of a `tokenizer.json`, with its pattern and end of a text."""
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (os.path.exists(vocabulary) and os.path.exists(merges)):
        needed = "put its tokenizer.json there, or its vocab.json and merges.txt"
        published = f"`hf download gpt2 tokenizer.json --local-dir {folder}` fetches the published one"
        if os.path.exists(folder / "vocab.txt"):
            needed = "its vocab.txt is BERT's, whose tokens do not give a text back"
            published = "`formats.gpt2.load` reads the model, and `transformers` makes its tokens"
        raise UserError(f"{folder} holds no tokenizer: {needed}; {published}", DATA)
    model = library().models.BPE
    with _refusing(f"{vocabulary} or {merges.name} is damaged", "restore the files"):
        tokenizer = byte_level(model.from_file(str(vocabulary), str(merges)), GPT2_PATTERN)
    _largest({*tokenizer.get_vocab().values()}, vocabulary)  # since `to_str` goes through all ids below it
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens(["<|endoftext|>"])
    return json.loads(tokenizer.to_str())


def _checked(tokenizer: Any, path: Path) -> BytePairs:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = sorted(tokenizer.get_vocab().values())
    if ids != [*range(len(ids))]:
        raise UserError(f"{path} leaves out ids from 0 to {ids[-1]}: {_AGAIN}", DATA)
    with _refusing(f"{path} does not give every text back", "give byte-level byte pairs, such as GPT-2's"):
        _require_plain(tokenizer)
        found = BytePairs(tokenizer)
        rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in _PROBES]
        if [*map(found.decode, rows)] != _PROBES:
            raise ValueError("of Unicode's characters some are lost")
    return found


def _require_plain(tokenizer: Any) -> None:
    """Raise ValueError if a part makes a text longer, but for bytes that become letters, once.

    Thirty such parts would fill a memory.
    """
    content = json.loads(tokenizer.to_str())
    unchanged = (content["normalizer"] or {"normalizers": []}).get("normalizers") == []
    once = json.dumps(content["pre_tokenizer"]).count('"ByteLevel"') <= 1
    if not (unchanged and once and isinstance(tokenizer.decoder, library().decoders.ByteLevel)):
        raise ValueError("it changes a text")


@contextmanager
def _refusing(fault: str, remedy: str) -> Iterator[None]:
    """Turn what the library raises into UserError (exit DATA).

    The library raises nothing narrower than Exception, and where it panics no Exception.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError):
        raise
    except BaseException as error:
        raise UserError(f"{fault} ({error}): {remedy}", DATA) from None
