"""Continue lines of terms, greedily: many lines at once, in few shapes."""

import sys
from functools import partial

import jax
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.bind import Model
from apformer.decoding.generate import generate, pad_prompts
from apformer.errors import DATA, USAGE, UserError
from apformer.report import progress
from apformer.settings import architecture_of
from apformer.tasks.progressions import text_file
from apformer.tokenizers import digits as tokenizer

MOST = 2**20  # characters of a line
TOKENS = 8192  # of a batch; its attention must fit in memory


def predict(model, settings, lines, name, terms):
    """Of each line the next terms, and how many of those asked for there are: [(text, count)].

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    rows, digits = text_file.read_numbers(lines, name)
    known = settings.data.digits
    if digits != known:
        raise UserError(
            f"{name} has terms of {digits} digits where the model knows {known}: give terms of {known}", DATA
        )
    least, most = settings.data.min_difference, settings.data.max_difference
    for number, (_, difference, _) in enumerate(rows, 1):
        if not least <= difference <= most:
            seen = f"the model was trained on differences from {least} to {most}, and {difference} is another"
            print(f"{name}, line {number}: {seen}", file=sys.stderr)
            break
    fitting_B = [terms_that_fit(*row, digits, terms) for row in rows]
    characters = max(fitting_B) * (digits + 1)
    longest = max(map(len, lines)) + characters
    most = architecture_of(settings).max_tokens(settings.model)
    if longest > MOST:
        fault = f"--terms {terms} makes a line of {longest:,} characters"
        raise UserError(f"{fault}, more than {MOST:,}: give fewer terms", USAGE)
    if most is not None and longest > most:
        fault = f"a line would have {longest} characters where the model knows {most}"
        raise UserError(f"{fault}: give fewer --terms", USAGE)
    texts = continue_lines(lines, characters, model)
    return [(line[: max(0, fit * (digits + 1) - 1)], fit) for line, fit in zip(texts, fitting_B, strict=True)]


def continue_lines(lines: list[str], characters: int, model: Model) -> list[str]:
    """Return the next characters of each line, greedily, without the space that they begin with."""
    if characters == 0:
        return [""] * len(lines)
    tokens = [tokenizer.encode(line) for line in lines]
    width_N = np.array([pad_prompts([prompt])[0].shape[1] for prompt in tokens])
    continuations = [""] * len(tokens)
    with progress.bar(total=len(tokens), unit="line", leave=False, disable=len(tokens) == 1) as bar:
        # Attention grows with the square of a prompt, and only the cache with what is generated.
        for rows, row_B, _ in buckets.batches(width_N + characters // 8, TOKENS):
            prompt_BT, lengths_B = pad_prompts([tokens[i] for i in row_B])
            for i, tokens_N in zip(rows, np.asarray(_continue(prompt_BT, lengths_B, characters, model)), strict=False):
                continuations[i] = tokenizer.decode(tokens_N)[1:]
            bar.update(len(rows))
    return continuations


@partial(jax.jit, static_argnums=2)
def _continue(prompt_BT, lengths_B, characters, model):
    B, T = prompt_BT.shape
    return generate(model.extend, model.init_cache(B, T + characters), prompt_BT, lengths_B, characters)


def terms_that_fit(first, difference, terms, digits, more):
    """How many of the next `more` terms of a progression stay within 0 .. 10^D - 1; whole numbers of any size."""
    last = first + (terms - 1) * difference
    room = last if difference < 0 else 10**digits - 1 - last
    return min(more, room // abs(difference)) if difference else more
