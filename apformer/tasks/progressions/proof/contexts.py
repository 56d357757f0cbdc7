"""Every context of the progressions, each as the string of tokens that a prediction depends on.

Terms have D digits, and their differences lie in a range. A layer with a window of W tokens reads a token and the W - 1
before it, so L layers read r = L (W - 1) tokens back. What is predicted after a token is a function of that token and
of the r before it, or of fewer near the beginning of a row. These strings are finitely many, and a term that is rightly
continued is the context of the next: without an error among them, progressions of any length are continued rightly.
"""

import numpy as np

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for all that is before a row
SLICE = 2**16  # contexts that are asked at once, about: memory grows with it


def claim(data):
    """What is proven if every context is continued rightly."""
    low, high = data["min_difference"], data["max_difference"]
    return f"every progression of {data['digits']}-digit terms, differences {low} to {high}, of any length"


def fault(data, cfg):
    """Return why these contexts are not those of a model, in words; None if they are."""
    if cfg["position"] != "relative" or not cfg["window"]:
        return f"position is {cfg['position']}, window {cfg['window']}: relative with a window alone is proven"
    if cfg["vocab_size"] != START:
        return f"vocab_size is {cfg['vocab_size']}, and {START} alone is proven"
    if reach(cfg) >= 16:
        return "a prediction depends on more than 16 tokens"


def bias(cfg):
    """Return the name of the weights that are added to scores, of a head and each place that it reads."""
    return "attention.relative.table"


def reads(cfg, layer):
    """Return the places in a string of what a layer, counted from 1, reads: (keys, tokens of their own strings)."""
    below = (layer - 1) * (cfg["window"] - 1) + 1
    return np.arange(cfg["window"])[:, None] + np.arange(below)


def slices(data, cfg, weights=None):
    """Yield the contexts of all differences, about SLICE at a time: (first term, difference, terms given), a column each."""
    held = []
    for difference in range(data["min_difference"], data["max_difference"] + 1):
        held += [columns for columns in contexts(data["digits"], reach(cfg), difference) if columns.size]
        if held and (sum(map(np.size, held)) >= 3 * SLICE or difference == data["max_difference"]):
            yield np.concatenate(held, axis=1)
            held = []


def reach(cfg):
    """How many tokens before the newest a prediction depends on."""
    return cfg["n_layers"] * (cfg["window"] - 1)


def contexts(digits, reach, difference):
    """(first term, difference, how many terms are given) of every context of a difference.

    Rows with R or more given terms are alike, since the last R hold all that is read when the first character is asked.
    """
    top, R = 10**digits - 1, max(2, 1 - (digits - 1 - reach) // (digits + 1))
    for given in range(2, R + 1):
        last = given * difference  # the term asked for is the first one and this
        first = np.arange(max(0, -last), top - max(0, last) + 1)
        yield np.stack([first, np.full_like(first, difference), np.full_like(first, given)])


def strings(columns, data, cfg):
    """(codes, truth), (contexts, D + 1) each: what every asked character depends on, and the character.

    A code is a string as a number to the base 12, of which the newest token is the lowest digit.
    """
    (first, difference, given), digits, back = columns, data["digits"], reach(cfg)
    tokens = []
    for number in range(-(-(back + 1) // (digits + 1)), -1, -1):  # of terms before the one that is asked for
        nth = given - number  # term of the row, from 0
        term = first + nth * difference
        tokens.append(np.where(nth > 0, SPACE, START))
        tokens += [np.where(nth >= 0, term // 10**place % 10, START) for place in reversed(range(digits))]
    asked = range(len(tokens) - digits - 1, len(tokens))
    codes = [sum(tokens[at - 1 - o] * 12**o for o in range(back + 1)) for at in asked]
    return np.stack(codes, axis=1), np.stack([tokens[at] for at in asked], axis=1)


def text(column, place, data):
    """(what is given, what has to follow) of a context's character."""
    first, difference, given = (int(number) for number in column)
    row = " ".join(f"{first + n * difference:0{data['digits']}d}" for n in range(given + 1))
    end = len(row) - data["digits"] - 1 + place
    return row[:end], row[end]


def rows(codes, cfg, weights=None):
    """Texts after whose last token a model says what it says of these strings: (which of them, tokens), by length."""
    length = reach(cfg) + 1
    tokens = np.stack([codes // 12**o % 12 for o in reversed(range(length))], axis=1).astype(np.int32)
    before = (tokens == START).sum(1)
    return [(np.flatnonzero(before == n), tokens[before == n, n:]) for n in np.unique(before)]
