"""List every context of linear recurrences x_n = a x_{n-1} + b x_{n-2} + c modulo 10^D, each as a string of tokens.

A layer reads a token and the W - 1 before it, and, if rows name their rule, the name. So L layers read L (W - 1) tokens
back, and a prediction is a function of these tokens, or of fewer near the beginning of a row. A term depends on its
rule and the two terms before it, so consecutive terms of a row are themselves a row. Let R terms contain all tokens
read for the prediction of the first character of the next term. Then rows of R + 1 terms contain every context, and if
none has an error, rows of any length are continued correctly.
"""

from collections.abc import Iterator

import numpy as np

from apformer_lab.proof import strings as strings_file
from apformer_lab.proof.strings import FILES, RULES, tokens_of  # noqa: F401

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for tokens before the row
SLICE = 2**17  # contexts of a slice, about
LARGEST = 9999  # largest number in a rule, whose product with a digit still fits int32


def numbers(rule: str) -> tuple[int, int, int]:
    """Return (a, b, c) of a rule. Raises ValueError if there is no such rule."""
    a, b, c = RULES[rule] if rule in RULES else map(int, rule.split(","))
    return a, b, c


def claim(data: dict, cfg: dict) -> str:
    """Return the claim that is proven if every context is continued correctly."""
    rules = f"rule{'s' * (len(data['rules']) > 1)} {', '.join(data['rules'])}"
    return f"every row of {data['digits']}-digit terms by the {rules}, of any length, from its first two terms"


def window(cfg: dict) -> int:
    """Return the number of tokens that a layer reads, without a name."""
    return cfg["window"] if "window" in cfg else len(cfg["offsets"])


def reach(cfg: dict) -> int:
    """Return the number of tokens before the newest that a prediction depends on."""
    return cfg["n_layers"] * (window(cfg) - 1)


def heading_length(cfg: dict) -> int:
    """Return the number of tokens of the rule's name that each layer reads."""
    return cfg.get("heading") or 0


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why these contexts are not those of the model; None if they are."""
    if "pattern" not in cfg:
        if cfg["position"] != "relative" or not cfg["window"]:
            return f"position is {cfg['position']}, window {cfg['window']}: only relative with a window is proven"
    elif cfg["pattern"] != "fixed_offsets" or list(cfg["offsets"]) != [*range(len(cfg["offsets"]))]:
        return f"they are of the nearest tokens, and pattern {cfg['pattern']} reads {cfg['offsets']}"
    if cfg["vocab_size"] != START or heading_length(cfg) != (len(data["rules"]) > 1):
        return "its vocab_size or heading does not fit"
    if reach(cfg) >= 16:
        return "a prediction depends on more than 16 tokens"
    return None


def bias(cfg: dict) -> str:
    """Return the name of the weights that are added to the scores of a head, one for each key that it reads."""
    return strings_file.bias(cfg) if "pattern" in cfg else "attention.relative.table"


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string of a layer (from 1): (keys, tokens that each key depends on).

    A string has the newest token and those before it, and then the name of the rule, if there is one. The states of the
    name depend on no other token.
    """
    below, last = (layer - 1) * (window(cfg) - 1) + 1, layer * (window(cfg) - 1) + 1
    keys = np.arange(window(cfg))[:, None] + np.arange(below)
    if not heading_length(cfg):
        return keys
    name = np.array([[last] + [-1] * (below - 1)])
    if layer == 1:  # its keys depend on one token each
        return np.concatenate([keys, name])
    name, keys = (
        np.pad(name, ((0, 0), (0, 1)), constant_values=-1),
        np.pad(keys, ((0, 0), (0, 1)), constant_values=last),
    )
    return np.concatenate([keys, name])


def slices(data: dict, cfg: dict, weights: dict | None = None) -> Iterator[np.ndarray]:
    """Yield (rule, first term, second term, number of given terms), a column for each row of contexts."""
    D, back, pairs = data["digits"], reach(cfg), 100 ** data["digits"]
    R = max(2, 1 - (D - 1 - back) // (D + 1))
    for rule in range(len(data["rules"])):
        for given in range(2, R + 1):
            for first in range(0, pairs, SLICE):
                number = np.arange(first, min(first + SLICE, pairs))
                y, x = number // 10**D, number % 10**D
                yield np.stack([np.full_like(y, rule), y, x, np.full_like(y, given)])


def parts(columns: np.ndarray, data: dict) -> dict[str, np.ndarray]:
    """Return {rule of the slice: mask of its contexts}, which all have one rule."""
    return {data["rules"][int(columns[0, 0])]: np.ones(columns.shape[1], bool)}


def terms(columns: np.ndarray, data: dict) -> list[np.ndarray]:
    """Return the terms of each context; the last one is to be predicted."""
    rule, *row, given = columns
    a, b, c = numbers(data["rules"][int(rule[0])])
    while len(row) < given[0] + 1:
        row.append((a * row[-1] + b * row[-2] + c) % 10 ** data["digits"])
    return row


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth), (contexts, 1, D + 1) each: the string of each character to predict, and the character."""
    D, back, h, row = data["digits"], reach(cfg), heading_length(cfg), terms(columns, data)
    tokens = [np.full(len(row[0]), START)] * (back + D + 2) + [np.full(len(row[0]), SPACE)] * h
    for number, term in enumerate(row):
        tokens += [np.full_like(term, SPACE)] * (number > 0) + [term // 10**p % 10 for p in reversed(range(D))]
    predicted = range(len(tokens) - D - 1, len(tokens))
    name = [columns[0] + 1] * h
    codes = [sum(t * 12**o for o, t in enumerate(tokens[at - 1 - back : at][::-1] + name)) for at in predicted]
    truth = [tokens[at] for at in predicted]
    return np.stack(codes, axis=1)[:, None], np.stack(truth, axis=1)[:, None]


def text(column: list, place: int, data: dict) -> tuple[str, str]:
    """Return (text before, right character) of a character to predict, by its place."""
    row = [int(term[0]) for term in terms(np.asarray(column)[:, None], data)]
    line = " ".join([str(column[0] + 1)] * (len(data["rules"]) > 1) + [f"{term:0{data['digits']}d}" for term in row])
    end = len(line) - data["digits"] - 1 + place
    return line[:end], line[end]


def rows(codes: np.ndarray, cfg: dict, weights: dict | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return texts in which these strings decide the next token: (indices of the strings, tokens) of each length."""
    h, length = heading_length(cfg), reach(cfg) + 1
    tokens = tokens_of(codes, START + 1, length + h).astype(np.int32)
    text, found = tokens[:, :length][:, ::-1], []
    before = (text == START).sum(1)
    for n in np.unique(before):
        index_N = np.flatnonzero(before == n)
        space = np.full((len(index_N), h * (n == 0)), SPACE, np.int32)  # else the text begins with that space
        found.append((index_N, np.concatenate([tokens[index_N, length:], space, text[index_N, n:]], axis=1)))
    return found
