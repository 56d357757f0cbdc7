"""Write text with a language model, a run or a GPT-2 folder: apformer generate RUN --prompt "ROMEO:".

RUN is a run of a text, or a GPT-2 folder: config.json, model.safetensors and a tokenizer.
Tokens are drawn one after the other, and shown as they come. Learned positions end at max_len: when they are used up,
the last of what was written, half as much, becomes the prompt of a new beginning.
"""

from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import jax
import numpy as np
from tyro.conf import Positional

from apformer.decoding import generate as generation
from apformer.decoding.stream import write
from apformer.errors import USAGE, UserError
from apformer.flags import parse, require
from apformer.runs import language_model
from apformer.tokenizers import text


@dataclass(frozen=True)
class Generate:
    """Write text with a language model.

    `hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2` fetches the published GPT-2, and
    `apformer generate gpt2` writes with it.
    """

    run: Positional[str | None] = None
    """Run directory or GPT-2 folder. The default is the latest run."""
    prompt: str = "\n"
    """Text to continue."""
    special_tokens: bool = False
    """Read special tokens in the prompt, such as <|endoftext|>. Without this flag, a prompt with some is refused."""
    tokens: int = 500
    """Most tokens to write. The text ends before a special token."""
    temperature: float = 0.8
    """Divisor of the logits. Below 1, likely tokens become likelier. With 0, the most likely token is always taken."""
    top_k: int = 0
    """Number of most likely tokens to draw from. With 0, all tokens."""
    top_p: float = 1.0
    """Share of probability to draw from: the fewest most likely tokens that add up to it."""
    seed: int = 0
    """Random seed of the draws."""
    samples: int = 1
    """Number of texts. One is printed while it is written, several when they are done."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    adapter: str | None = None
    """Folder of low-rank adapters, saved alone, to merge into the model."""


def main(args):
    """Run the command with its arguments."""
    generate(parse(Generate, args, "apformer generate"))


def generate(args):
    """Print what the model of a GPT-2 folder writes, or the best checkpoint of a run.

    Raises UserError that names the flag or the file."""
    sample = sampler(args)
    model, most, tokenizer = language_model.load(args.run, args.member, args.adapter)
    prompt_T = tokenizer.encode(args.prompt, allowed_special="all" if args.special_tokens else ())
    if not len(prompt_T):
        raise UserError("--prompt is empty: give at least one character", USAGE)
    chunks = write(prompt_T, args.tokens, args.samples, most, model, key=jax.random.key(args.seed), sample=sample)
    special = tokenizer.special_tokens
    before_special = partial(takewhile, lambda token: int(token) not in special)
    if args.samples > 1:
        for number, tokens_N in enumerate(np.concatenate([*chunks], axis=1), 1):
            written = tokenizer.decode([*before_special(tokens_N)])
            print(f"--- {number} of {args.samples}\n{args.prompt}{written}")
        return
    print(args.prompt, end="")
    tokens = before_special(token for tokens_BN in chunks for token in tokens_BN[0])
    for piece in text.stream(tokenizer, tokens):
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
