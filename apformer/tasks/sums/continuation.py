"""Add two terms, least significant digit first: "5000000000 7000000000" is 5 + 7, and gives 21000000000."""

import re
from functools import partial

import jax
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.errors import DATA, USAGE, UserError
from apformer.report import sections
from apformer.tasks.sums import generator
from apformer.tokenizers.digits import decode, encode

TOKENS = 8192  # of a batch


def predict(model, settings, lines, name, terms):
    """Of each line the sum of its two terms: [(text, 1)].

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    cfg = settings.data
    if terms != 1:
        raise UserError(f"--terms {terms} is more than the sum of two terms: leave it out", USAGE)
    for number, line in enumerate(lines, 1):
        if wrong := fault(line, cfg):
            raise UserError(f"{name}, line {number}: {wrong}", DATA)
    prompt_BT, texts = np.stack([encode(line + " ") for line in lines]), [""] * len(lines)
    for fresh_B, row_B, _ in buckets.batches(np.full(len(lines), generator.length(cfg)), TOKENS):
        for b, tokens_N in zip(fresh_B, np.asarray(_add(prompt_BT[row_B], cfg.digits + 1, model)), strict=False):
            texts[b] = decode(tokens_N)
    return [(text, 1) for text in texts]


@partial(jax.jit, static_argnums=1)
def _add(prompt_BT, digits, model):
    B, T = prompt_BT.shape
    lengths_B = np.full(B, T, np.int32)
    return generate(model.extend, model.init_cache(B, T + digits), prompt_BT, lengths_B, digits)


def fault(line, cfg):
    """Why a line cannot be continued, and the remedy; None if it can."""
    if re.fullmatch(f"[0-9]{{{cfg.digits}}} [0-9]{{{cfg.digits}}}", line):
        return None
    width = sections.count(cfg.digits, "digit")
    shape = f"least significant digit first, such as {generator.render(5, 7, cfg)} for 5 and 7"
    return f"is not two terms of {width}; give two with a space between, {shape}"
