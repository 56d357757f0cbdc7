"""List every context of rows of terms of any width, least significant digit first, each as a string of tokens.

After the terms y and x comes z = a x + b y, modulo base^D if rows begin with a heading, else as long as it has D
digits. Its digits are computed from the lowest up, with carries c:

    t_j = a x_j + b y_j + c_j      z_j = t_j mod base      c_{j+1} = floor(t_j / base)      c_0 = 0

A term and the space after it have P tokens. The first of two layers reads the token itself, those P and P + 1 before
it, and the heading; the second the token itself and that P - 1 before it. So a prediction depends on these tokens:

    0         P          P + 1        heading        P - 1    2P - 1    2P
    z_{j-1}   x_{j-1}    x_{j-2}      rule, base     x_j      y_j       y_{j-1}

where place -1 of a term is the space before it, place -2 the highest digit of the term before that, and place D the
space after it. These strings are finitely many, whatever D is. A carry c_{j-1} stands for all lower places: it may be
any that x_{j-2} passes on with some y_{j-2} and some c_{j-2}. If none of these strings has an error, rows of any length
with terms of any number of digits are continued correctly.

z_{j-1} and its column determine c_j, except in base 2: there z = 2x - y has the same z_{j-1} for the carries -1 and 1.
Only x_{j-2} distinguishes them: 2 x_{j-2} - y_{j-2} + c_{j-2} passes on 1 only if x_{j-2} is 1, and -1 only if it is 0.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from apformer_lab.proof.strings import FILES, RULES, bias, describe, grid, strings, tokens_of  # noqa: F401

CHARACTERS = "0123456789abcdef =+*"  # with a heading; else ten digits and the space
MOST = 2**19  # strings of a slice, about


def claim(data: dict, cfg: dict) -> str:
    """Return the claim that is proven if every context is continued correctly."""
    rules, bases = ", ".join(data.get("rules", ["progression"])), ", ".join(map(str, data.get("bases", [10])))
    return (
        f"every row by {rules} in base {bases}, least significant digit first, with terms of any number of digits, of "
        "any length, from its first two terms"
    )


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why these contexts are not those of the model; None if they are."""
    heading = 2 if "bases" in data else None
    if (cfg["pattern"], cfg["heading"], data.get("order", "lsb")) != ("columns", heading, "lsb"):
        return f"they are of pattern columns with heading {heading}, and it has {cfg['pattern']}, {cfg['heading']}"
    if (cfg["separator"], cfg["vocab_size"]) != ((16, 20) if heading else (10, 11)):
        return "its separator or vocab_size does not fit"
    return None


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string of a layer (from 1): (keys, tokens that each key depends on)."""
    last = 3 + (cfg["heading"] or 0)
    heading = [*range(3, last)]
    own, other = [0, 1, 2, *heading], [last, last + 1, last + 2, *heading]
    return np.array([[place] for place in own] if layer == 1 else [own, other])


def slices(data: dict, cfg: dict, weights: dict | None = None) -> Iterator[np.ndarray]:
    """Yield all contexts: the tokens in the order of the module's docstring, and the character that follows."""
    for rule in data.get("rules", ["progression"]):
        for base in data.get("bases", [10]):
            parts = -(-2 * base**5 // MOST)
            first = inner_contexts(rule, base, range(base)[::parts], cfg), edge_contexts(rule, base, cfg)
            yield np.concatenate(first, axis=1)
            yield from (inner_contexts(rule, base, range(base)[part::parts], cfg) for part in range(1, parts))


def parts(columns: np.ndarray, data: dict) -> dict[str, np.ndarray]:
    """Return {rule and base of the slice: mask of its contexts}, which all have one rule and base."""
    name = "progression, base 10"
    if "bases" in data:
        name = f"{[*RULES][int(columns[3, 0]) - 17]}, base {int(columns[4, 0]) + 1}"
    return {name: np.ones(columns.shape[1], bool)}


def characters(data: dict) -> str:
    """Return the characters of the tokens."""
    return CHARACTERS if "bases" in data else CHARACTERS[:10] + " "


def inner_contexts(rule: str, base: int, tops: Sequence[int], cfg: dict) -> np.ndarray:
    """Return the contexts of a rule and a base with all three columns, whose x_j is one of `tops`."""
    (a, b, _), carries, digits = RULES[rule], possible_carries(rule, base), range(base)
    x_i, x_h, x_j, y_j, y_i, c = grid(digits, digits, tops, digits, digits, carries)
    occurs = carries_out(rule, base)[x_h, c - carries[0]]
    x_i, x_h, x_j, y_j, y_i, c = (array[occurs] for array in (x_i, x_h, x_j, y_j, y_i, c))
    t_i = a * x_i + b * y_i + c
    z_j = (a * x_j + b * y_j + t_i // base) % base
    return with_heading(rule, base, (t_i % base, x_i, x_h, x_j, y_j, y_i, z_j), cfg)


def edge_contexts(rule: str, base: int, cfg: dict) -> np.ndarray:
    """Return all other contexts of a rule and a base: those at the ends of a term."""
    (a, b, _), carries, digits, start = RULES[rule], possible_carries(rule, base), range(base), cfg["vocab_size"]
    space = lambda like: np.full_like(like, cfg["separator"])  # noqa: E731
    before = cfg["separator"] if cfg["heading"] else start  # the first term
    wraps = bool(cfg["heading"])
    x_i, x_j, y_j, y_i = grid(digits, digits, digits, digits)  # the digit after the lowest
    t_i = a * x_i + b * y_i
    found = [(t_i % base, x_i, space(x_i), x_j, y_j, y_i, (a * x_j + b * y_j + t_i // base) % base)]
    y_top, x_j, y_j, ahead = grid(digits, digits, digits, sorted({before, cfg["separator"]}))  # the lowest digit
    found.append((space(x_j), space(x_j), y_top, x_j, y_j, ahead, (a * x_j + b * y_j) % base))
    x_i, x_h, y_i, c = grid(digits, digits, digits, carries)  # the space after a term
    occurs = carries_out(rule, base)[x_h, c - carries[0]] & (wraps | ((a * x_i + b * y_i + c) // base == 0))
    x_i, x_h, y_i, c = (array[occurs] for array in (x_i, x_h, y_i, c))
    found.append(((a * x_i + b * y_i + c) % base, x_i, x_h, space(x_i), space(x_i), y_i, space(x_i)))
    x_i, y_i = grid(digits, digits)  # the space after a term of one digit
    fits = wraps | ((a * x_i + b * y_i) // base == 0)
    x_i, y_i = x_i[fits], y_i[fits]
    found.append(((a * x_i + b * y_i) % base, x_i, space(x_i), space(x_i), space(x_i), y_i, space(x_i)))
    x_i, y_i, y_h = grid(digits, digits, (*digits, before))  # the space after the second term
    ends = space(x_i), np.full_like(x_i, before), np.full_like(x_i, start)
    found.append((x_i, y_i, y_h, *ends, space(x_i)))
    return np.concatenate([with_heading(rule, base, tokens, cfg) for tokens in found], axis=1)


def with_heading(rule: str, base: int, tokens: tuple, cfg: dict) -> np.ndarray:
    """Add the heading, if there is one, to columns of contexts."""
    heading = (17 + [*RULES].index(rule), base - 1)[: cfg["heading"] or 0]
    return np.stack([*tokens[:3], *(np.full_like(tokens[0], token) for token in heading), *tokens[3:]])


def possible_carries(rule: str, base: int) -> np.ndarray:
    """Return the possible carries."""
    return np.array((-1, 0, 1) if RULES[rule][1] < 0 else (0, 1))


def carries_out(rule: str, base: int) -> np.ndarray:
    """Return which carries a digit x passes on with some y and some carry in: bool (digits, carries)."""
    (a, b, _), carries = RULES[rule], possible_carries(rule, base)
    x, y, c = grid(range(base), range(base), carries)
    found = np.zeros((base, len(carries)), bool)
    found[x, (a * x + b * y + c) // base - carries[0]] = True
    return found


def text(column: list, place: int, data: dict) -> tuple[str, str]:
    """Return (description of the tokens read, right character) of a context."""
    heading = len(column) - 7
    back = ["0", "P", "P + 1", "P - 1", "2P - 1", "2P tokens ago"]
    names = back[:3] + ["rule", "base"][:heading] + back[3:]
    return describe(column, names, CHARACTERS if heading else CHARACTERS[:10] + " ")


def rows(codes: np.ndarray, cfg: dict, weights: dict | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return texts in which these strings decide the next token: (indices of the strings, tokens) of each length.

    Terms have three digits or one; digits that the model does not read are 0.
    """
    h, space, start, found = cfg["heading"] or 0, cfg["separator"], cfg["vocab_size"], []
    tokens = tokens_of(codes, start + 1, 6 + h)
    low, one = tokens[:, 0] == space, (tokens[:, 2] == space) | (tokens[:, 2] == start)
    top, hidden = tokens[:, 3 + h] == space, tokens[:, 5 + h] == start
    begins, f = hidden & ~low, h + 1 if h else 0  # f: the first token of the first term
    later = low & ~hidden & (h == 0)
    for mask_N, P, end in (
        (begins & ~one, 4, f + 2 * 4 - 2),  # the last token of the text
        (begins & one, 2, f + 2 * 2 - 2),
        (low & ~later, 4, f + 2 * 4 - 1),
        (later, 4, f + 3 * 4 - 1),
        (~begins & ~low & one & ~top, 4, f + 2 * 4),
        (~begins & ~low & one & top, 2, f + 2 * 2),
        (~begins & ~low & ~one & ~top, 4, f + 2 * 4 + 1),
        (~begins & ~low & ~one & top, 4, f + 2 * 4 + 2),
    ):
        chosen = tokens[mask_N]
        text = np.zeros((len(chosen), end + 1), np.int32)
        text[:, [*range(f - 1 if h else P - 1, end + 1, P)]] = space
        write_strings(text, P, chosen, h)
        if len(chosen):
            found.append((np.flatnonzero(mask_N), text))
    return found


def write_strings(text: np.ndarray, P: int, tokens: np.ndarray, h: int) -> None:
    """Write strings into texts, in place, at the positions that the last token reads."""
    end = text.shape[1] - 1
    text[:, :h] = tokens[:, 3 : 3 + h]
    for back, place in zip((0, P, P + 1, P - 1, 2 * P - 1, 2 * P), (0, 1, 2, 3 + h, 4 + h, 5 + h), strict=True):
        if end - back >= h:  # else it is masked
            text[:, end - back] = tokens[:, place]
