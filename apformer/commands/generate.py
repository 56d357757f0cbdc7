"""Write text with a language model, a run or a GPT-2 folder: apformer generate RUN --prompt "ROMEO:".

RUN is a run of a text, or a GPT-2 folder: config.json, model.safetensors and a tokenizer.
Tokens are drawn one after the other, and shown as they come. Learned positions end at max_len: then writing starts
again, with the last max_len / 2 tokens as the new prompt.
"""

from dataclasses import dataclass
from typing import Annotated

import jax
import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from apformer.decoding import generate as generation
from apformer.decoding.repetition import penalized
from apformer.decoding.stream import texts, write
from apformer.errors import DATA, USAGE, UserError
from apformer.flags import require
from apformer.runs import language_model
from apformer.tokenizers.text import BytePairs, Characters


@dataclass(frozen=True)
class Generate:
    """Write text with a language model.

    `hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2` fetches the published GPT-2, and
    `apformer generate gpt2` writes with it.

    All of --repetition_penalty, --temperature, --top_k, --top_p and --min_p that are given apply, in this order. Each
    sees only the tokens that those before it have kept.
    """

    run: Positional[str | None] = None
    """Run directory or GPT-2 folder. The default is the latest run."""
    prompt: Annotated[str | None, arg(help_behavior_hint="(default: a line end)")] = None
    """Text to continue. Where the vocabulary has no line end, the default is its first token."""
    special_tokens: bool = False
    """Read special tokens in the prompt, such as <|endoftext|>. Without this flag, a prompt with some is refused."""
    tokens: int = 500
    """Most tokens to write. A text ends sooner before an end token: a special token, or a GPT-2's eos_token_id."""
    stop: UseAppendAction[tuple[str, ...]] = ()
    """Text to end before: neither it nor what follows is printed. It is looked for in what is written, not in the
    prompt. In bash, --stop $'\\n\\n' ends before an empty line."""
    temperature: float = 0.8
    """Divisor of the logits. Below 1, likely tokens become likelier. With 0, the most likely token is always taken."""
    top_k: int = 0
    """Number of most likely tokens to draw from. With 0, all tokens."""
    top_p: float = 1.0
    """Share of probability to draw from: the fewest most likely tokens that add up to it. With 1, all tokens."""
    min_p: float = 0.0
    """Least probability of a token, as a share of that of the most likely one. With 0, all tokens."""
    repetition_penalty: float = 1.0
    """Divisor of the positive logits and factor of the negative ones of all tokens in the context, the prompt included.
    Above 1, they become less likely. With 1, nothing changes; 1.1 to 1.3 is usual."""
    seed: int = 0
    """Random seed of the draws."""
    samples: int = 1
    """Number of texts. They are drawn side by side and printed one after the other."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    adapter: str | None = None
    """Folder of low-rank adapters, saved alone, to merge into the model."""


def generate(args: Generate) -> None:
    """Print what the model of a GPT-2 folder writes, or the best checkpoint of a run.

    Raises UserError that names the flag or the file."""
    sample = sampler(args)
    model, most, tokenizer, ends = language_model.load(args.run, args.member, args.adapter)
    prompt, prompt_T = read_prompt(args, tokenizer)
    check_stops(args.stop, tokenizer)
    if args.repetition_penalty != 1:
        model = penalized(model, args.repetition_penalty)
    chunks = write(prompt_T, args.tokens, args.samples, most, model, key=jax.random.key(args.seed), sample=sample)
    for number, pieces in enumerate(texts(chunks, args.samples, tokenizer, ends, args.stop), 1):
        print(f"--- {number} of {args.samples}\n{prompt}" if args.samples > 1 else prompt, end="")
        for piece in pieces:
            print(piece, end="", flush=True)
        print()


def read_prompt(args: Generate, tokenizer: Characters | BytePairs) -> tuple[str, np.ndarray]:
    """Return (the prompt, its tokens). Raises UserError: USAGE if it is empty, DATA for what the vocabulary lacks."""
    if args.prompt is None:
        try:
            return "\n", tokenizer.encode("\n")
        except UserError:  # characters of a text of one line
            return tokenizer.decode([0]), np.zeros(1, np.int32)
    try:
        prompt_T = tokenizer.encode(args.prompt, allowed_special="all" if args.special_tokens else ())
    except UserError as error:
        raise UserError(f"--prompt {ascii(args.prompt[:20])}: {error}", error.exit_code) from None
    if not len(prompt_T):
        raise UserError("--prompt is empty: give at least one character", USAGE)
    return args.prompt, prompt_T


def check_stops(stops: tuple[str, ...], tokenizer: Characters | BytePairs) -> None:
    """Raise UserError unless the tokenizer can write each stop: USAGE for an empty one, DATA for what it lacks."""
    for stop in stops:
        if not stop:
            raise UserError("--stop is empty: give at least one character", USAGE)
        try:
            tokenizer.encode(stop, allowed_special="all")
        except UserError as error:
            raise UserError(f"--stop {ascii(stop)} cannot occur: {error}", DATA) from None


def sampler(args: Generate) -> generation.Sampler:
    """Return the sampler that the flags ask for. Raises UserError (exit USAGE) that names the one at fault."""
    for flag, least, most in (
        ("tokens", 1, 2**31 - 1),
        ("samples", 1, 2**31 - 1),
        ("seed", 0, 2**31 - 1),
        ("top_k", 0, 2**31 - 1),
        ("repetition_penalty", 0.01, 100),
    ):
        require(flag, least <= getattr(args, flag) <= most, args, f"{least} to {most}")
    try:
        sample = generation.sampler(args.temperature or 1.0, args.top_k or None, args.top_p, args.min_p)
    except ValueError as error:
        raise UserError(f"--{error}", USAGE) from None
    return sample if args.temperature else generation.greedy
