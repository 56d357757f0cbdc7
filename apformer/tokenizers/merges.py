r"""Describe a tokenizer as data that the page of a run can follow: chunks by a pattern, and merges of bytes.

The pattern is written for JavaScript, whose \s is not quite Unicode's white space, and which may not know how to
ignore case within a pattern.
"""

import json
from typing import Any

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN
from apformer.tokenizers.text import BytePairs, Characters, pre_tokenizer

ANY_CASE = "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # contractions; ſ is an s in another case


def texts(tokenizer: Characters | BytePairs) -> list[str]:
    """Return the text of each token; the bytes of a part of a character are one sign."""
    return [tokenizer.bytes_of(token).decode("utf-8", "replace") for token in range(tokenizer.vocab_size)]


def pairs(tokenizer: Characters | BytePairs) -> list[tuple[int, int, int]] | None:
    """Return the ids that are merged and the one that they become, the first merge first; None without merges."""
    model = json.loads(tokenizer.to_json()).get("model", {})
    if "merges" not in model:
        return None
    id_of = model["vocab"].get
    # A file holds a pair as a list, or as two pieces with a space between them.
    written = (pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"])
    return [(id_of(left), id_of(right), id_of(left + right)) for left, right in written]


def of(tokenizer: BytePairs) -> dict[str, Any]:
    """Return what the page of a run needs: the token of each byte, merges, the pattern, and special tokens.

    Raises UserError (exit DATA) if a tokenizer cuts text in another way than those of GPT-2 and of `train_byte_pairs`.
    """
    content, merged = json.loads(tokenizer.to_json()), pairs(tokenizer)
    model, cut = content["model"], tokenizer.tokenizer.pre_tokenizer
    known = (pattern for pattern in (GPT2_PATTERN, GPT4_PATTERN) if repr(pre_tokenizer(pattern)) == repr(cut))
    pattern = next(known, None)
    byte_of = {tokenizer.bytes_of(token): token for token in range(tokenizer.vocab_size)}
    tokens = [byte_of.get(bytes([byte])) for byte in range(256)]  # a text in UTF-8 does without some
    unknown = model.get("ignore_merges") or model.get("dropout") or content["normalizer"]  # to the page
    if pattern is None or merged is None or unknown or None in tokens:
        raise UserError("No text can be typed: its tokenizer cuts it in a way that this page does not know", DATA)
    specials = {added["content"]: added["id"] for added in content["added_tokens"]}
    return {"bytes": tokens, "merges": merged, "pattern": in_javascript(pattern), "specials": specials}


def in_javascript(pattern: str) -> str:
    """Write a pattern of GPT-2 or GPT-4 for a RegExp with the flags g and u."""
    pattern = pattern.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", ANY_CASE)
    return pattern.replace(r"\S", r"\P{White_Space}").replace(r"\s", r"\p{White_Space}")
