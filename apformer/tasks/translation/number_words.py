"""Write numbers in words, in two languages: parallel sentences without a text.

    705   ->   seven hundred and five   ->   sept cent cinq

The `num2words` library writes them. A hash assigns each number to training, validation or test, so no test number is
in the training rows, in either language.
"""

import difflib
from collections.abc import Callable

import numpy as np

from apformer.errors import UserError

FIGURES = "figures"
SHARES = {"train": 0.90, "validation": 0.05, "test": 0.05}
SPLITS = tuple(SHARES)


def split_of(numbers_N: np.ndarray) -> np.ndarray:
    """Return the split of each number, an index into SPLITS, by a hash; nine in ten are for training."""
    hash_N = np.asarray(numbers_N, np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)  # Knuth's, by 2^64 / phi
    return np.digitize(hash_N % np.uint64(100), (90, 95))


def draw(seed: int, count: int, largest: int, split: str) -> list[int]:
    """Draw different numbers of a split, 0 to `largest`: half uniform, half below a random power of ten.

    Returns fewer than `count` if the split has no more.
    """
    rng, rounds = np.random.default_rng(seed), int(4 * count / SHARES[split]) + 1000
    anywhere_N = rng.integers(0, largest, rounds, endpoint=True)
    digits = len(str(largest))
    top_N = np.minimum(10 ** rng.integers(1, digits, rounds, endpoint=True), largest + 1)
    some_N = np.where(rng.random(rounds) < 0.5, anywhere_N, (rng.random(rounds) * top_N).astype(np.int64))
    some_N = some_N[split_of(some_N) == SPLITS.index(split)]
    numbers = [*dict.fromkeys(some_N.tolist())][:count]
    if len(numbers) == count or largest >= 10 * rounds:
        return numbers
    all_N = np.arange(largest + 1)  # most of the split is needed, and chance missed some: list the rest
    rest_N = np.setdiff1d(all_N[split_of(all_N) == SPLITS.index(split)], numbers)
    return numbers + rng.permutation(rest_N)[: count - len(numbers)].tolist()


def speaker(language: str) -> Callable[[int], str]:
    """Return a function from a number to its words in a language of num2words (en, fr, de ...), or to its figures.

    Raises UserError (exit USAGE) for an unknown language, or without the text extra.
    """
    if language == FIGURES:
        return str
    try:
        import num2words
    except ImportError:
        raise UserError('number words need the text extra: pip install "apformer[text]"') from None
    languages = [FIGURES, *sorted(num2words.CONVERTER_CLASSES)]
    if language not in languages:
        near = difflib.get_close_matches(language, languages, n=1)
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(languages)}"
        raise UserError(f"unknown --from_language or --to_language {language!r}: {hint}")

    def words(number: int) -> str:
        try:
            return num2words.num2words(number, lang=language)
        except Exception as error:  # of any kind: each language is a program of its own
            fault = f"num2words cannot say {number} in {language!r} ({type(error).__name__})"
            raise UserError(f"{fault}: give a smaller --largest, or another language") from None

    return words
