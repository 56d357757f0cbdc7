"""Continue lines of terms in the format of a task; lines may have different widths."""

from typing import Any

import numpy as np

from apformer.decoding import buckets
from apformer.errors import DATA, USAGE, UserError
from apformer.report import progress
from apformer.settings import Settings, architecture_of
from apformer_lab import pieces, rows
from apformer_lab.rows import Format

TOKENS = 8192  # tokens per batch
LONGEST = 2**20  # most tokens of a line


def predict(model: Any, settings: Settings, lines: list[str], name: str, terms: int) -> list[tuple[str, int]]:
    """Return the next terms of each line, and how many of the requested terms fit its width.

    Args:
        model: decoding.bind.Model.
        settings: Settings of its run.
        lines: Lines of terms.
        name: Name of the lines, for a message.
        terms: Number of terms to add.

    Raises:
        UserError: Names the line, or the flag.
    """
    form, most = settings.data.form, architecture_of(settings).max_tokens(settings.model) or LONGEST
    if form.more and terms != 1:
        raise UserError(f"--terms {terms} is more than the sum of two terms: leave it out", USAGE)
    found = [read(line, form, f"{name}, line {number}") for number, line in enumerate(lines, 1)]
    fits_N = np.array([_fitting(form, pair, given[-2:], terms) for pair, given in found])
    width_N = np.array([len(given[0]) for _, given in found])
    lines = [f"{line} " for line in lines] if form.more else lines  # a sum begins with its first digit
    count_N = width_N + 1 if form.more else fits_N * (width_N + 1)
    length_N = np.array([len(line) for line in lines]) + count_N
    if length_N.max() > min(LONGEST, most):
        fault = f"--terms {terms} makes a line of {length_N.max():,} characters"
        raise UserError(f"{fault}, more than {min(LONGEST, most):,}: give fewer terms", USAGE)
    prompts, texts = [[form.characters.index(c) for c in line] for line in lines], [""] * len(lines)
    slots_N = np.array([max(16, pieces.power_of_two(int(length))) for length in length_N])
    with progress.bar(total=int(count_N.max()), unit="character", leave=False) as bar:
        for fresh_B, row_B, slots in buckets.batches(slots_N, TOKENS):
            if count := int(count_N[fresh_B].max()):
                tokens_BN = pieces.proceed(model, [prompts[i] for i in row_B], count, slots, bar.update)
                for i, tokens_N in zip(fresh_B, tokens_BN, strict=False):
                    texts[i] = form.text(tokens_N[: count_N[i]])
    return [(text if form.more else text[1:], fits) for text, fits in zip(texts, fits_N.tolist(), strict=True)]


def _fitting(form: Format, pair: int, last: list[list[int]], terms: int) -> int:
    """Return how many of the next `terms` terms fit the width of a line."""
    if form.wraps:
        return terms
    for number in range(terms):
        term, fits = rows.next_term(form, pair, *last)
        if not fits:
            return number
        last = [last[1], term]
    return terms


def read(line: str, form: Format, name: str) -> tuple[int, list[list[int]]]:
    """Parse a line: return the number of its rule and base, and its terms as digits, least significant first.

    Raises:
        UserError: Exit code DATA, with the name of the line, what is wrong and the remedy.
    """

    def refuse(fault: str) -> None:
        raise UserError(f"{name}: {fault}, such as {form.sample()}", DATA)

    pair, words = 0, line.split(" ")
    if form.headings:
        headings = [*map(form.text, form.headings)]
        head = words.pop(0)
        if head not in headings:
            refuse(f"begins with {ascii(head[:20])}; begin with one of {', '.join(headings)}, and then terms")
        pair = headings.index(head)
    base = form.bases[pair % len(form.bases)]
    width = len(words[0]) if words else 0
    most = LONGEST if form.widths else form.digits
    if not (1 <= width <= most and (form.widths or width == form.digits)):
        refuse(f"has a first term of {width:,} digits; give terms of {'1 or more' if form.widths else form.digits}")
    for number, word in enumerate(words, 1):
        if len(word) != width or {*word} - {*form.characters[:base]}:
            refuse(f"term {number} is not {width:,} of the digits {form.characters[:base]}; give such terms")
    if len(words) < 2 or (form.more and len(words) > 2):
        refuse(f"has {len(words)} term{'s' * (len(words) > 1)}; give two{' or more' * (not form.more)}")
    terms = [[form.characters.index(c) for c in (word if form.lowest_first else word[::-1])] for word in words]
    for number in range(2, len(terms)):
        right, fits = rows.next_term(form, pair, terms[number - 2], terms[number - 1])
        if right != terms[number] or not fits:
            refuse(f"term {number + 1} does not follow by {form.pairs()[pair][0]} in base {base}; correct it")
    return pair, terms
