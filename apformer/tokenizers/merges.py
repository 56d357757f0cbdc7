"""How a tokenizer cuts a text, as data that the page of a run can follow: chunks by a pattern, and merges of bytes.

The pattern is written for JavaScript, whose \\s is not quite Unicode's white space, and which may not know how to
ignore case within a pattern.
"""

import json
import re

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN

_FOLDED = {"s": "ſ", "k": "\u212a"}  # what else is the letter in another case


def texts(tokenizer):
    """The text of each token; the bytes of a part of a character are one sign."""
    return [tokenizer.bytes_of(token).decode("utf-8", "replace") for token in range(tokenizer.vocab_size)]


def pairs(model):
    """The pairs that are merged, (left, right) in their order, of the "model" of a tokenizer.json; None if it has none.

    A file holds a pair as a list, or as two pieces with a space between them.
    """
    if "merges" not in model:
        return None
    return [tuple(pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]]


def of(tokenizer):
    """{"bytes": the token of each, "merges": (left, right, made) in their order, "pattern", "specials": {text: token}}.

    tokenizer: BytePairs. Raises UserError (exit DATA) if it cuts text in another way than those of GPT-2 and of
    `train_byte_pairs`.
    """
    content = json.loads(tokenizer.to_json())
    model, pattern = content["model"], _pattern(content)
    merged = pairs(model)
    byte_of = {tokenizer.bytes_of(token): token for token in range(tokenizer.vocab_size)}
    all_bytes = all(bytes([byte]) in byte_of for byte in range(len(BYTES)))  # a text in UTF-8 does without some
    unknown = model.get("ignore_merges") or model.get("dropout") or content["normalizer"]  # to the page
    if pattern is None or merged is None or unknown or not all_bytes:
        raise UserError("No text can be typed: its tokenizer cuts it in a way that this page does not know", DATA)
    vocabulary = model["vocab"]
    return {
        "bytes": [byte_of[bytes([byte])] for byte in range(len(BYTES))],
        "merges": [[vocabulary[left], vocabulary[right], vocabulary[left + right]] for left, right in merged],
        "pattern": in_javascript(pattern),
        "specials": {added["content"]: added["id"] for added in content["added_tokens"]},
    }


def _pattern(content):
    """The pattern by which a tokenizer cuts chunks, if it is one of the two that are known."""
    parts = content["pre_tokenizer"] or {}
    parts = parts.get("pretokenizers", [parts])
    if [part.get("type") for part in parts] == ["ByteLevel"]:
        return GPT2_PATTERN if parts[0]["use_regex"] and not parts[0]["add_prefix_space"] else None
    if [part.get("type") for part in parts] != ["Split", "ByteLevel"] or parts[1]["use_regex"]:
        return None
    return GPT4_PATTERN if parts[0]["pattern"] == {"Regex": GPT4_PATTERN} else None


def in_javascript(pattern):
    """A pattern for a RegExp with the flags g and u."""

    def either_case(found):
        letters = re.sub(
            "[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}{_FOLDED.get(letter[0], '')}]", found[1]
        )
        return f"(?:{letters})"

    pattern = re.sub(r"\(\?i:([^()]*)\)", either_case, pattern)
    return pattern.replace(r"\S", r"\P{White_Space}").replace(r"\s", r"\p{White_Space}")
