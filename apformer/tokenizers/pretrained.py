"""Save and load tokenizers.

`load` reads the files of `save`, HuggingFace's `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt`, GPT-4's
`cl100k_base.tiktoken`, and files of `minbpe`.

Characters are saved as a line of JSON, byte pairs as a `tokenizer.json`. Ids that a file leaves out, such as 100256 and
100261 to 100275 in GPT-4's, become special tokens such as <|unused_100256|>, so that all other tokens keep their ids.

A tokenizer is accepted only if decoding returns every text. A byte-level one does so, unless it also changes texts
(lower case, normal forms, a space in front).
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apformer import files
from apformer.errors import DATA, UserError, tell
from apformer.tokenizers import byte_pairs, tiktoken
from apformer.tokenizers.chunks import GPT2_PATTERN, library
from apformer.tokenizers.text import BytePairs, Characters, Tokenizer, byte_level, byte_of_letter
from apformer.tokenizers.tiktoken import Vocabulary

# Texts with every byte of UTF-8, with capitals, and with characters that Unicode's normal forms replace.
_TO_FFFF = (*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x10000, 0x800))
_PROBE = "".join(map(chr, (*_TO_FFFF, *range(0x10000, 0x110000, 0x10000))))
_PROBES = [_PROBE, f" {_PROBE} "]
_PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
_ROLES = [f"{role}_token" for role in "bos eos unk sep pad cls mask".split()]  # in the order of new ids
_AGAIN = "restore the file, or give another tokenizer"


def save(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a tokenizer to a file that `load` reads. Raises UserError (exit DISK) if it cannot be written."""
    files.write_text(path, tokenizer.to_json())


def load(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a file, or of a folder: its `tokenizer.json`, else its `vocab.json` and `merges.txt`.

    The name of a file that ends in .tiktoken must contain the name of its vocabulary, such as cl100k. Truncation,
    padding and dropout in a `tokenizer.json` are ignored.

    Raises UserError that names the path and the remedy: DATA if it is missing, damaged or another kind of tokenizer,
    USAGE without the text extra.
    """
    path = Path(path)
    # For a name that is too long os.path returns False, and pathlib raises.
    if os.path.isdir(path):
        if not os.path.exists(path / "tokenizer.json"):
            return _of_content(_with_added(_read_gpt2(path), path), path)
        path = path / "tokenizer.json"
    text = files.read_text(path, _AGAIN, DATA)
    if path.suffix == ".tiktoken":
        return _from_vocabulary(tiktoken.parse(text, path), path)
    if text.startswith(byte_pairs.VERSION):
        pairs = byte_pairs.parse(text, path)
        tokens = [pairs.vocab[token] for token in range(256 + len(pairs.merges))]
        return _from_vocabulary(Vocabulary(tokens, pairs.merges, pairs.pattern, pairs.special_tokens), path)
    try:
        content = files.parse_json(text)
    except ValueError as error:
        remedy = f"give a whole tokenizer.json; `apformer tokenize --train {path} --out FILE` learns one from a text"
        raise UserError(f"{path} is not a tokenizer, since it is not valid JSON ({error}): {remedy}", DATA) from None
    if isinstance(content, dict) and content.keys() == {"characters"}:
        return _characters(content["characters"], path)
    # The other files of a folder belong to its tokenizer.json.
    return _of_content(_with_added(content, path.parent) if path.name == "tokenizer.json" else content, path)


def _of_content(content: Any, path: Path) -> BytePairs:
    """Return the tokenizer of the content of a `tokenizer.json`, if decoding returns every text."""
    with _refusing(f"{path} is not a tokenizer", "give a tokenizer.json, or a folder of a vocab.json and a merges.txt"):
        tokenizer = library().Tokenizer.from_str(json.dumps(_without_gaps(content, path)))
    for added in content.get("added_tokens") or ():
        if tokenizer.token_to_id(added["content"]) != added["id"]:
            fault = f"{path} gives {json.dumps(added['content'])} the id {added['id']}, which it cannot have"
            raise UserError(f"{fault}: {_AGAIN}", DATA)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with _refusing(f"{path} does not give every text back", "give byte-level byte pairs, such as GPT-2's"):
        parsed = json.loads(tokenizer.to_str())
        unchanged = (parsed["normalizer"] or {"normalizers": []}).get("normalizers") == []
        # Writing bytes as letters makes a text longer: a chain of thirty such steps would fill the memory.
        once = json.dumps(parsed["pre_tokenizer"]).count('"ByteLevel"') <= 1
        if not (unchanged and once and isinstance(tokenizer.decoder, library().decoders.ByteLevel)):
            raise ValueError("it changes a text")
        pairs = BytePairs(tokenizer)
        rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in _PROBES]
        if [*map(pairs.decode, rows)] != _PROBES:
            raise ValueError("some of Unicode's characters are lost")
    if added := tokenizer.encode("").tokens:
        tell(f"{path} puts {' '.join(added)} around each text (post_processor): this is left out here")
    return pairs


def _with_added(content: Any, folder: Path) -> Any:
    """Return the content of a `tokenizer.json` with the tokens that other files of its folder add.

    These are the ids of `added_tokens.json` and `tokenizer_config.json`, and special tokens that have only a name,
    as `transformers` reads them.
    """
    others = ("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
    paths = [folder / name for name in others]
    id_of = content["model"].get("vocab") if files.has(content, {"model": dict}) else None
    if not any(map(os.path.exists, paths)) or not isinstance(id_of, dict):  # the library refuses another content
        return content
    with _refusing(f"tokens that {', '.join(others)} of {folder} add cannot be read", _AGAIN):
        texts = (files.read_text(file, _AGAIN, DATA) if file.exists() else "{}" for file in paths)
        ids, config, special_map = map(files.parse_json, texts)
        if config.get("add_prefix_space"):
            raise ValueError("it puts a space before each text that decoding keeps: set add_prefix_space to false")
        sources = special_map, config
        keys = dict.fromkeys([*_ROLES, *special_map, *config])
        names = [source.get(key) for key in keys if key.endswith("_token") for source in sources]
        for key in ("extra_special_tokens", "additional_special_tokens"):
            for more in (source.get(key) or () for source in sources):
                names += more.values() if isinstance(more, dict) else more
        special = [name["content"] if isinstance(name, dict) else name for name in names]
        special = [name for name in dict.fromkeys(special) if isinstance(name, str)]
        entries = {number: {"content": name} for name, number in ids.items()}
        entries |= {int(number): entry for number, entry in config.get("added_tokens_decoder", {}).items()}
        added = {token["content"]: token for token in content.get("added_tokens") or ()}
        for number, entry in sorted(entries.items()):
            name = entry["content"]
            added.setdefault(name, _PLAIN | {"special": name in special} | entry | {"id": id_of.get(name, number)})
        for name in special:
            free = max([-1, *id_of.values(), *(token["id"] for token in added.values())]) + 1
            added.setdefault(name, _PLAIN | {"content": name, "special": True, "id": id_of.get(name, free)})
        return content | {"added_tokens": sorted(added.values(), key=lambda token: token["id"])}


def _without_gaps(content: Any, path: Path) -> Any:
    """Return the content of a `tokenizer.json` with a special token for each unused id below the largest.

    Otherwise the library would change the ids of added tokens after a gap. A content of another kind is returned as is.
    Raises UserError (exit DATA) if more ids are unused than used.
    """
    try:
        vocabulary, added = content["model"]["vocab"], content.get("added_tokens") or []
        id_of = {token["content"]: token["id"] for token in added}
        content["model"]["dropout"] = None  # else it would cut a text otherwise each time
        ids = {*vocabulary.values(), *id_of.values()}
        most = _largest(ids, path)
    except (TypeError, KeyError, AttributeError):
        return content  # the library refuses it
    unused = {f"<|unused_{token}|>": token for token in range(most) if token not in ids}
    if unused:
        added = [*added, *(_PLAIN | {"id": token, "content": name, "special": True} for name, token in unused.items())]
        content = content | {"model": content["model"] | {"vocab": vocabulary | id_of | unused}}
    return content | {"added_tokens": sorted(added, key=lambda token: token["id"])}


def _largest(ids: set[int], path: Path) -> int:
    """Return the largest id. Raises UserError (exit DATA) if more ids below it are unused than used."""
    most = max(ids, default=-1)
    if most + 1 > 2 * len(ids):
        sizes = f"{path} has {len(ids):,} tokens and ids up to {most:,}, so that more than half are unused"
        raise UserError(f"{sizes}: {_AGAIN}", DATA)
    return most


def _from_vocabulary(vocabulary: Vocabulary, path: Path) -> BytePairs:
    """Return the tokenizer of a vocabulary."""
    tokens, merges, pattern, special_tokens = vocabulary
    if len({*tokens, *(name.encode() for name in special_tokens)}) < len(tokens) + len(special_tokens):
        raise UserError(f"{path} has the same token twice: {_AGAIN}", DATA)
    letter_of = {byte: letter for letter, byte in byte_of_letter().items()}
    names = ["".join(map(letter_of.__getitem__, token)) for token in tokens]
    ids = {name: token for token, name in enumerate(names)}
    with _refusing(f"{path} is not a tokenizer", "restore the file"):
        pairs = [(names[left], names[right]) for left, right in merges]
        content = json.loads(byte_level(library().models.BPE(ids, pairs), pattern).to_str())
    added = [_PLAIN | {"id": token, "content": name, "special": True} for name, token in special_tokens.items()]
    return _of_content(content | {"added_tokens": added}, path)


def _characters(characters: Any, path: Path) -> Characters:
    with _refusing(f"{path} is damaged", "restore the file"):
        text = str(characters)
        if not text or text != characters or [*text] != sorted({*text}):
            raise ValueError("its characters are no text, or not distinct and in order")
        text.encode()
        return Characters(text)


def _read_gpt2(folder: Path) -> Any:
    """Return GPT-2's two files as the content of a `tokenizer.json`, with GPT-2's pattern and end of a text."""
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (os.path.exists(vocabulary) and os.path.exists(merges)):
        remedy = "put its tokenizer.json there, or its vocab.json and merges.txt"
        command = f"`hf download gpt2 tokenizer.json --local-dir {folder}` fetches the published one"
        if os.path.exists(folder / "vocab.txt"):
            remedy = "its vocab.txt is BERT's, whose tokens do not give a text back"
            command = "`formats.gpt2.load` reads the model, and `transformers` makes its tokens"
        raise UserError(f"{folder} holds no tokenizer: {remedy}; {command}", DATA)
    model = library().models.BPE
    with _refusing(f"{vocabulary} or {merges.name} is damaged", "restore the files"):
        tokenizer = byte_level(model.from_file(str(vocabulary), str(merges)), GPT2_PATTERN)
    _largest({*tokenizer.get_vocab().values()}, vocabulary)  # `to_str` visits all ids below the largest
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens(["<|endoftext|>"])
    content = json.loads(tokenizer.to_str())
    made = {"".join(pair) for pair in content["model"]["merges"]}
    lost = [name for name in content["model"]["vocab"] if name not in made and re.match("\u0120.", name)]  # a space
    if lost:
        raise UserError(f"{merges} has no merge that makes {lost[0]} of {vocabulary.name}: restore the files", DATA)
    return content


@contextmanager
def _refusing(fault: str, remedy: str) -> Iterator[None]:
    """Turn errors of the library into UserError (exit DATA).

    The library raises plain Exception, and in a panic a BaseException.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError):
        raise
    except BaseException as error:
        raise UserError(f"{fault} ({error}): {remedy}", DATA) from None
