"""Tokenizers as files: those we saved, HuggingFace's `tokenizer.json`, and GPT-2's `vocab.json` with `merges.txt`.

Characters are a line of JSON, byte pairs a `tokenizer.json`. A tokenizer from elsewhere is accepted if it gives every
text back. One that works on bytes does so, unless it also changes text (lower case, normal forms, a space in front).
"""

import json
import os
import re
from pathlib import Path

from apformer.errors import DATA, DISK, UserError
from apformer.tokenizers.byte_pairs import library
from apformer.tokenizers.text import BytePairs, Characters

# Every byte that UTF-8 has, capitals, and characters that Unicode's normal forms replace; the same between spaces.
_TO_FFFF = (*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x10000, 0x800))
_PROBE = "".join(map(chr, (*_TO_FFFF, *range(0x10000, 0x110000, 0x10000))))
_PROBES = (_PROBE, f" {_PROBE} ")


def save(tokenizer: Characters | BytePairs, path: str | Path) -> None:
    """Write a tokenizer to a file that `load` reads. Raises UserError (exit DISK) if it cannot be written."""
    try:
        Path(path).write_text(tokenizer.to_json(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another place", DISK) from None


def load(path: str | Path) -> Characters | BytePairs:
    """The tokenizer of a file, or of a folder: its `tokenizer.json`, else its `vocab.json` and `merges.txt`.

    What a `tokenizer.json` says of cutting texts short and of padding is not followed. Raises UserError that names the
    path and the remedy: DATA if it is missing, damaged or no tokenizer of the kind, USAGE without the text extra.
    """
    path = Path(path)
    # os.path answers False where a name is too long; pathlib raises.
    if os.path.isdir(path):
        if not os.path.exists(path / "tokenizer.json"):
            return _checked(_read_gpt2(path), path)
        path = path / "tokenizer.json"
    text = _read_text(path)
    if path.suffix == ".tiktoken" or re.match(r"[A-Za-z0-9+/]+=* [0-9]+\r?\n", text):
        remedy = "give a tokenizer.json, or the folder of a vocab.json and a merges.txt"
        raise UserError(f"{path} is a tiktoken file, which does not say how a text is split: {remedy}", DATA)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it is no valid JSON ({error}); restore the file", DATA) from None
    if isinstance(content, dict) and content.keys() == {"characters"}:
        return _characters(content["characters"], path)
    from_str = library().Tokenizer.from_str
    try:
        tokenizer = from_str(text)
    except BaseException as error:  # The library raises nothing narrower, and where it panics no Exception.
        _let_stop(error)
        remedy = "give a tokenizer.json, or the folder of a vocab.json and a merges.txt"
        raise UserError(f"{path} is no tokenizer ({error}): {remedy}", DATA) from None
    for added in content.get("added_tokens") or ():  # the library numbers them anew where an id is left out
        if tokenizer.token_to_id(added["content"]) != added["id"]:
            left_out = f"{path} leaves out ids before {added['id']}, the id of {json.dumps(added['content'])}"
            raise UserError(f"{left_out}: restore the file, or give another tokenizer", DATA)
    return _checked(tokenizer, path)


def _characters(characters, path):
    try:
        if characters and [*characters] == sorted({*characters}) and characters.encode("utf-8"):
            return Characters(characters)
    except (TypeError, AttributeError, UnicodeEncodeError):
        pass
    raise UserError(f"{path} is damaged: its characters are not distinct and in order; restore the file", DATA)


def _read_gpt2(folder):
    """The library's tokenizer of GPT-2's two files, with GPT-2's pattern and its token for the end of a text."""
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (os.path.exists(vocabulary) and os.path.exists(merges)):
        needed = "put its tokenizer.json there, or its vocab.json and merges.txt"
        published = f"`hf download gpt2 tokenizer.json --local-dir {folder}` fetches the published one"
        raise UserError(f"{folder} holds no tokenizer: {needed}; {published}", DATA)
    tokenizers = library()
    try:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
    except BaseException as error:
        _let_stop(error)
        raise UserError(f"{vocabulary} or {merges.name} is damaged ({error}): restore the files", DATA) from None
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def _checked(tokenizer, path):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = sorted(tokenizer.get_vocab().values())
    if ids != [*range(len(ids))]:
        raise UserError(f"{path} leaves out ids from 0 to {ids[-1]}: restore the file, or give another tokenizer", DATA)
    if not (_is_plain(tokenizer) and _is_faithful(tokenizer)):
        raise UserError(f"{path} does not give every text back: give byte-level byte pairs, such as GPT-2's", DATA)
    return BytePairs(tokenizer)


def _is_plain(tokenizer):
    """Whether no part makes a text longer, but for bytes that become letters, once. Thirty such would fill a memory."""
    content = json.loads(tokenizer.to_str())
    unchanged = (content["normalizer"] or {"normalizers": []}).get("normalizers") == []
    once = json.dumps(content["pre_tokenizer"]).count('"ByteLevel"') <= 1
    return unchanged and once and isinstance(tokenizer.decoder, library().decoders.ByteLevel)


def _is_faithful(tokenizer):
    """Whether it gives every text back."""
    try:
        rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in _PROBES]
        return tuple(tokenizer.decode_batch(rows, skip_special_tokens=False)) == _PROBES
    except BaseException as error:
        _let_stop(error)
        return False


def _let_stop(error):
    """Raise again what is no fault of the library."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error


def _read_text(path):
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        remedy = "give the file or the folder of a tokenizer"
        raise UserError(f"{path} cannot be read ({error.strerror}): {remedy}", DATA) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: byte {error.start + 1} is no UTF-8; restore the file", DATA) from None
