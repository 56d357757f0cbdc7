r"""Describe a tokenizer of byte pairs for the page of a run: the pattern of chunks, and the merges.

The pattern is rewritten for JavaScript, where \s is not quite Unicode's white space, and where a part of a pattern may
not be able to ignore case.
"""

import json
from typing import Any

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN
from apformer.tokenizers.text import BytePairs, Tokenizer, pre_tokenizer

ANY_CASE = "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # contractions; ſ is a lower-case s


def texts(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each token, with U+FFFD for bytes that are part of a character."""
    return [tokenizer.bytes_of(token).decode("utf-8", "replace") for token in range(tokenizer.vocab_size)]


def pairs(tokenizer: Tokenizer) -> list[tuple[int, int, int]] | None:
    """Return (left id, right id, merged id) of each merge in order; None if the tokenizer has no merges."""
    model = json.loads(tokenizer.to_json()).get("model", {})
    if "merges" not in model:
        return None
    id_of = model["vocab"].get
    return [(id_of(left), id_of(right), id_of(left + right)) for left, right in model["merges"]]


def of(tokenizer: BytePairs) -> dict[str, Any]:
    """Return {"bytes": token of each byte, "merges", "pattern", "specials"} for the page of a run.

    Raises UserError (exit DATA) if the tokenizer does not cut a text as those of GPT-2 or `train_byte_pairs` do.
    """
    content, merged = json.loads(tokenizer.to_json()), pairs(tokenizer)
    model, cutter = content["model"], tokenizer.tokenizer.pre_tokenizer
    patterns = (pattern for pattern in (GPT2_PATTERN, GPT4_PATTERN) if repr(pre_tokenizer(pattern)) == repr(cutter))
    pattern = next(patterns, None)
    token_of = {tokenizer.bytes_of(token): token for token in range(tokenizer.vocab_size)}
    tokens = [token_of.get(bytes([byte])) for byte in range(256)]
    unsupported = model.get("ignore_merges") or content["normalizer"]
    if pattern is None or merged is None or unsupported or None in tokens:
        raise UserError("No text can be typed: its tokenizer cuts it in a way that this page does not know", DATA)
    specials = {added["content"]: added["id"] for added in content["added_tokens"]}
    # For a RegExp of JavaScript with the flags g and u.
    pattern = pattern.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", ANY_CASE)
    pattern = pattern.replace(r"\S", r"\P{White_Space}").replace(r"\s", r"\p{White_Space}")
    return {"bytes": tokens, "merges": merged, "pattern": pattern, "specials": specials}
