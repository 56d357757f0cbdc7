"""Continue lines of terms, each line of a width of its own, in the order of digits that the model was trained on."""

import sys
from contextlib import contextmanager

import numpy as np

from apformer.decoding import buckets, pieces
from apformer.errors import USAGE, UserError
from apformer.report import progress
from apformer.settings import architecture_of
from apformer.tasks.progressions import text_file
from apformer.tasks.progressions.continuation import MOST, TOKENS, terms_that_fit
from apformer.tokenizers import digits as tokenizer

WIDEST = 100_000  # digits of a term


def predict(model, settings, lines, name, terms):
    """Of each line the next terms, and how many of those asked for there are: [(text, count)].

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    digits_N = [line.find(" ") if " " in line else len(line) for line in lines]
    rows = read(lines, name, settings.data.order)
    fits_N = [terms_that_fit(*row, digits, terms) for row, digits in zip(rows, digits_N, strict=True)]
    count_N = np.array([fit * (digits + 1) for fit, digits in zip(fits_N, digits_N, strict=True)])
    length_N = np.array([len(line) for line in lines]) + count_N
    most = architecture_of(settings).max_tokens(settings.model)
    if length_N.max() > min(MOST, most or MOST):
        fault = f"--terms {terms} makes a line of {length_N.max():,} characters"
        raise UserError(f"{fault}, more than {min(MOST, most or MOST):,}: give fewer terms", USAGE)
    prompts, texts = [tokenizer.encode(line) for line in lines], [""] * len(lines)
    width_N = np.array([max(16, pieces.power_of_two(int(length))) for length in length_N])
    batches = list(buckets.batches(width_N, TOKENS))
    longest = sum(length_N[fresh_B].max() for fresh_B, _, _ in batches)
    with progress.bar(total=int(longest), unit="character", unit_scale=True, leave=False) as bar:
        for fresh_B, row_B, width in batches:
            back = architecture_of(settings).farthest(settings.model, 1 + max(digits_N[i] for i in fresh_B))
            slots = width if back is None else min(width, pieces.power_of_two(back) + pieces.PIECE)
            if count := int(count_N[fresh_B].max()):
                tokens_BN = pieces.proceed(model, [prompts[i] for i in row_B], count, slots, bar.update)
                for i, tokens_N in zip(fresh_B, tokens_BN, strict=False):
                    texts[i] = tokenizer.decode(tokens_N[: count_N[i]])[1:]
    return list(zip(texts, fits_N, strict=True))


def read(lines, name, order):
    """[(first, difference, terms)] of lines, each of a width of its own. Raises UserError that names the line."""
    with long_numbers():
        return [text_file.read_line(line, f"{name}, line {n}", WIDEST, order) for n, line in enumerate(lines, 1)]


@contextmanager
def long_numbers():
    """Lets Python read and write whole numbers of any number of digits; its own bound is 4,300."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)
