"""Tokenizers as files: those we saved, HuggingFace's `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt`, GPT-4's
`cl100k_base.tiktoken`, and those of `minbpe`.

Characters are a line of JSON, byte pairs a `tokenizer.json`. Ids that a file leaves out, such as 100256 and 100261 to
100275 in GPT-4's, become special tokens like <|unused_100256|>, so that every other token keeps its id.

A tokenizer from elsewhere is accepted if it gives every text back. One that works on bytes does so, unless it also
changes text (lower case, normal forms, a space in front).
"""

import json
import os
from pathlib import Path

from apformer.errors import DATA, DISK, UserError
from apformer.tokenizers import byte_pairs, tiktoken
from apformer.tokenizers import text as text_tokenizer
from apformer.tokenizers.chunks import GPT2_PATTERN, library
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

    A file that ends in .tiktoken has to have the name of its vocabulary, such as cl100k, in its own.

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
    if path.suffix == ".tiktoken" or tiktoken.is_one(text):
        return _read_tiktoken(text, path)
    if text.startswith(byte_pairs.VERSION):
        return _read_readable(byte_pairs.parse(text, path), path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it is no valid JSON ({error}); restore the file", DATA) from None
    if isinstance(content, dict) and content.keys() == {"characters"}:
        return _characters(content["characters"], path)
    from_str = library().Tokenizer.from_str
    try:
        tokenizer = from_str(_without_gaps(content, text, path))
    except BaseException as error:  # The library raises nothing narrower, and where it panics no Exception.
        _let_stop(error)
        remedy = "give a tokenizer.json, or the folder of a vocab.json and a merges.txt"
        raise UserError(f"{path} is no tokenizer ({error}): {remedy}", DATA) from None
    for added in content.get("added_tokens") or ():
        if tokenizer.token_to_id(added["content"]) != added["id"]:
            other = f"{path} gives {json.dumps(added['content'])} the id {added['id']}, which it cannot have"
            raise UserError(f"{other}: restore the file, or give another tokenizer", DATA)
    return _checked(tokenizer, path)


def _without_gaps(content, text, path):
    """The text of a `tokenizer.json` whose gaps are closed by tokens <|unused_ID|>, so that all others keep their ids.

    The library would number anew what is added after a gap. A text without gaps, or of another kind, is left as it is.
    Raises UserError (exit DATA) if more ids are unused than used.
    """
    try:
        vocabulary, added = content["model"]["vocab"], content.get("added_tokens") or []
        ids = {*vocabulary.values(), *(token["id"] for token in added)}
        gaps = max(ids) + 1 - len(ids)
        named = {token["content"]: token["id"] for token in added}
    except (TypeError, KeyError, AttributeError, ValueError):
        return text  # for the library to refuse
    if gaps <= 0:
        return text
    _refuse_gaps(ids, path)
    unused = text_tokenizer.unused(ids)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    added = [*added, *({"id": token, "content": name} | flags for name, token in unused.items())]
    model = content["model"] | {"vocab": vocabulary | named | unused}
    return json.dumps(content | {"model": model, "added_tokens": sorted(added, key=lambda token: token["id"])})


def _refuse_gaps(ids, path):
    if max(ids) + 1 > 2 * len(ids):
        sizes = f"{path} has {len(ids):,} tokens and ids up to {max(ids):,}, so that more than half are unused"
        raise UserError(f"{sizes}: restore the file, or give another tokenizer", DATA)


def _read_tiktoken(text, path):
    """The tokenizer of a file of `tiktoken`, with the rules that its name stands for."""
    tokens, lines = tiktoken.parse(text, path)
    pattern, special, _ = tiktoken.rules(path, len(tokens))
    return _built(tokens, tiktoken.merges(tokens, lines, path), pattern, special, path)


def _read_readable(tokenizer, path):
    """The library's tokenizer of a file that `byte_pairs` or `minbpe` wrote."""
    tokens = [tokenizer.vocab[token] for token in range(256 + len(tokenizer.merges))]
    return _built(tokens, tokenizer.merges, tokenizer.pattern, tokenizer.special_tokens, path)


def _built(tokens, merges, pattern, special, path):
    seen = {*tokens, *(name.encode("utf-8") for name in special)}
    if len(seen) < len(tokens) + len(special):
        raise UserError(f"{path} has the same token twice: restore the file, or give another tokenizer", DATA)
    _refuse_gaps({*range(len(tokens)), *special.values()}, path)
    try:
        tokenizer = text_tokenizer.from_merges(tokens, merges, pattern, special)
    except BaseException as error:
        _let_stop(error)
        raise UserError(f"{path} is no tokenizer ({error}): restore the file", DATA) from None
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
    tokenizer.pre_tokenizer = text_tokenizer.pre_tokenizer(GPT2_PATTERN)
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
