"""Write text with a language model: `apformer generate RUN --prompt "ROMEO:" --tokens 200`.

Tokens are drawn one after the other, and shown as they come. Learned positions end at max_len: when they are used up,
the last of what was written, half as much, becomes the prompt of a new beginning.
"""

from dataclasses import dataclass

import jax
import numpy as np
from tyro.conf import Positional

from apformer.decoding import bind
from apformer.decoding import generate as generation
from apformer.decoding.stream import write
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.runs import directory, recipes, restore
from apformer.tasks.text import corpus
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer


@dataclass(frozen=True)
class Generate:
    """Write text with a language model."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    prompt: str = "\n"
    """The text to go on from."""
    tokens: int = 500
    """How many to write."""
    temperature: float = 0.8
    """Below 1 the likely becomes likelier; 0: always the most likely token."""
    top_k: int = 0
    """Only from the k most likely tokens; 0: from all."""
    top_p: float = 1.0
    """Only from the fewest most likely tokens that hold this share of it all."""
    seed: int = 0
    """Of the draws."""
    samples: int = 1
    """How many texts; one is shown while it is written, several when they are done."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""


def generate(args):
    """Print what the best checkpoint of a run writes. Raises UserError that names the flag or the file."""
    sample = sampler(args)
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    if not isinstance(settings.data, corpus.Config):
        raise UserError(f"{path} is of no text: use `apformer predict` or `apformer translate`", USAGE)
    tokenizer = pretrained.load(path / "tokenizer.json")
    text_tokenizer.check_vocabulary(tokenizer, settings.model.vocab_size, str(path))
    prompt_T = tokenizer.encode(args.prompt)
    if not len(prompt_T):
        raise UserError("--prompt is empty: give at least one character", USAGE)
    params, _, _ = restore.load_params(path, settings, args.member)
    functions = bind.bound(params, settings.model)
    most = recipes.module(settings.model).max_tokens(settings.model)
    chunks = write(prompt_T, args.tokens, args.samples, most, functions, key=jax.random.key(args.seed), sample=sample)
    if args.samples > 1:
        for number, tokens_N in enumerate(np.concatenate([*chunks], axis=1), 1):
            print(f"--- {number} of {args.samples}\n{args.prompt}{tokenizer.decode(tokens_N)}")
        return
    print(args.prompt, end="")
    for piece in text_tokenizer.stream(tokenizer, (token for tokens_BN in chunks for token in tokens_BN[0])):
        print(piece, end="", flush=True)
    print()


def sampler(args):
    """The sampler that the flags ask for. Raises UserError (exit USAGE) that names the one at fault."""
    for flag, fits, what in (
        ("tokens", 1 <= args.tokens < 2**31, "at least 1"),
        ("samples", 1 <= args.samples < 2**31, "at least 1"),
        ("seed", 0 <= args.seed < 2**31, "0 to 2147483647"),
        ("temperature", 0 <= args.temperature < 1e6, "0 or more"),
        ("top_k", 0 <= args.top_k < 2**31, "0 or more"),
        ("top_p", 0 < args.top_p <= 1, "more than 0 and at most 1"),
    ):
        require(flag, fits, args, what)
    if args.top_k and args.top_p < 1:
        raise UserError(f"--top_k {args.top_k} and --top_p {args.top_p} exclude each other: give one", USAGE)
    if args.temperature == 0:
        return generation.greedy
    if args.top_k:
        return generation.top_k(args.top_k, args.temperature)
    if args.top_p < 1:
        return generation.top_p(args.top_p, args.temperature)
    return generation.temperature(args.temperature)
