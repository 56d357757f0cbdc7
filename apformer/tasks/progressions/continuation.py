"""Continue lines of terms, greedily."""

import numpy as np

from apformer.decoding.bind import Model
from apformer.errors import DATA, UserError, tell
from apformer.settings import Settings, architecture_of
from apformer.tasks.exact_match import continue_rows
from apformer.tasks.progressions import generator, text_file
from apformer.tokenizers import digits as tokenizer

MOST = 2**20  # characters of a line


def predict(model: Model, settings: Settings, lines: list[str], name: str, terms: int) -> list[tuple[str, int]]:
    """Return the next terms of each line, and their number: fewer than `terms` if the progression leaves the range.

    Raises:
        UserError: Names the line, by `name`, or the flag.
    """
    rows, digits = text_file.read_numbers(lines, name)
    cfg = settings.data
    if digits != cfg.digits:
        fault = f"{name} has terms of {digits} digits where the model knows {cfg.digits}"
        raise UserError(f"{fault}: give terms of {cfg.digits}", DATA)
    for number, (_, difference, _) in enumerate(rows, 1):
        if settings.options.dataset is None and not cfg.min_difference <= difference <= cfg.max_difference:
            trained = f"the model was trained on differences from {cfg.min_difference} to {cfg.max_difference}"
            tell(f"{name}, line {number}: {trained}, and {difference} is another")
            break
    first_B, difference_B, given_B = np.array(rows).T
    room_B = generator.fitting(first_B, difference_B, digits) - given_B
    fits_B = [min(terms, room) for room in room_B.tolist()]
    characters = max(fits_B) * (digits + 1)
    longest = max(map(len, lines)) + characters
    most = min(MOST, architecture_of(settings).max_tokens(settings.model) or MOST)
    if longest > most:
        raise UserError(f"--terms {terms} makes a line of {longest:,} characters, more than {most:,}: give fewer terms")
    tokens_BN = continue_rows([tokenizer.encode(line) for line in lines], characters, model)
    return [
        (tokenizer.decode(tokens_N[1 : fits * (digits + 1)]), fits)
        for tokens_N, fits in zip(tokens_BN, fits_B, strict=True)
    ]


def example(settings: Settings, run: str) -> str:
    """Return a command to try on a run: continue 007 010 013, or a similar progression of its generator."""
    cfg, top = settings.data, 10**settings.data.digits - 1
    difference = sorted((cfg.min_difference, 3, cfg.max_difference))[1]
    terms = 3 if 2 * abs(difference) <= top else 2
    edge = 7 if 7 + (terms - 1) * abs(difference) <= top else 0
    prompt = generator.render(top - edge if difference < 0 else edge, difference, terms, cfg.digits)
    return f'apformer predict {run} "{prompt}" --terms 3'
