"""List every context of sums of two terms of D digits, least significant digit first, each as a string of tokens.

    a_0 .. a_{D-1} _ b_0 .. b_{D-1} _ s_0 .. s_D        t_j = a_j + b_j + c_j      s_j = t_j mod 10      c_0 = 0

One layer reads five tokens, at fixed offsets back from the token before s_j:

    0          D      D + 1      2D + 1    2D + 2
    s_{j-1}    b_j    b_{j-1}    a_j       a_{j-1}

At the lowest place (j = 0) the space before it, the space before b_0, and nothing before a_0 stand for the digits of
place -1; in place of a_D and b_D there is a space. A carry c_{j-1} stands for all lower places. It is 0 at the lowest,
and 0 or 1 at every other, whatever the digits above. So these strings are finitely many: 100 for s_0, 10^4 for each
carry for the digits between, 100 for each carry for s_D. From D = 3 on they are the same for every D, and only the
offsets depend on it. If none of them has an error, every digit of every sum is right after the right digits before it,
and so, by induction from the lowest digit up, after predicted ones.
"""

from collections.abc import Iterator

import numpy as np

from apformer_lab.proof.strings import FILES, bias, grid, strings, tokens_of  # noqa: F401

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for tokens before the row
KINDS = ("first digit", "digits between", "last digit")


def offsets(digits: int) -> tuple[int, ...]:
    """Return the offsets back to the five tokens of a context, in the order of the module's docstring."""
    return 0, digits, digits + 1, 2 * digits + 1, 2 * digits + 2


def claim(data: dict, cfg: dict) -> str:
    """Return the claim that is proven if every context is continued correctly."""
    digits = data["digits"]
    return f"every pair of terms of {digits} digits, all 10^{2 * digits}, with their sum, least significant digit first"


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why these contexts are not those of the model; None if they are."""
    if cfg["pattern"] != "fixed_offsets" or cfg["n_layers"] != 1 or cfg["heading"]:
        return f"they are of one layer of pattern fixed_offsets, and it has {cfg['n_layers']} of {cfg['pattern']}"
    actual, expected = tuple(cfg["offsets"]), offsets(data["digits"])
    return None if actual == expected else f"its offsets {actual} are not {expected}"


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string of the layer: (keys, tokens that each key depends on)."""
    return np.arange(len(cfg["offsets"]))[:, None]


def slices(data: dict, cfg: dict, weights: dict | None = None) -> Iterator[np.ndarray]:
    """Yield all contexts, (6, contexts) of each kind: the tokens of the module's docstring, and the next digit."""
    space, ten, digits = np.full_like, range(10), data["digits"]
    a, b = grid(ten, ten)
    yield np.stack([space(a, SPACE), b, space(a, SPACE), a, space(a, START), (a + b) % 10])
    if digits > 1:
        a, b, a_below, b_below, c = grid(ten, ten, ten, ten, range(min(2, digits - 1)))
        t = a_below + b_below + c
        yield np.stack([t % 10, b, b_below, a, a_below, (a + b + t // 10) % 10])
    a, b, c = grid(ten, ten, range(min(2, digits)))
    t = a + b + c
    yield np.stack([t % 10, space(a, SPACE), b, space(a, SPACE), a, t // 10])


def parts(columns: np.ndarray, data: dict) -> dict[str, np.ndarray]:
    """Return {kind of the slice: mask of its contexts}, which are all of one kind."""
    kind = 0 if columns[4, 0] == START else 2 if columns[3, 0] == SPACE else 1
    return {KINDS[kind]: np.ones(columns.shape[1], bool)}


def text(column: list, place: int, data: dict) -> tuple[str, str]:
    """Return (text before, right digit) of a context."""
    ((_, row),) = texts(np.asarray(column)[:-1, None].T, data["digits"])
    return "".join("0123456789 "[token] for token in row[0]), str(int(column[-1]))


def rows(codes: np.ndarray, cfg: dict, weights: dict | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return texts in which these strings decide the next token: (indices of the strings, tokens) of each length."""
    return texts(tokens_of(codes, START + 1, 5), cfg["offsets"][1])


def texts(tokens: np.ndarray, digits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (indices of strings (N, 5), texts) of each length. A text is a right sum up to the digit to predict.

    A carry into the place below comes from the place below that, whose digits are 5 and 5. All other digits are 0.
    """
    first, last, found = tokens[:, 4] == START, tokens[:, 3] == SPACE, []
    for mask_N, place in ((first, 0), (~first & ~last, min(2, digits - 1)), (last, digits)):
        chosen = tokens[mask_N]
        text = np.zeros((len(chosen), 2 * digits + 2 + place), np.int32)
        text[:, [digits, 2 * digits + 1]] = SPACE
        if place > 1:
            carry = (chosen[:, 0] - chosen[:, 2] - chosen[:, 4]) % 10
            text[:, [place - 2, digits + place - 1]] = 5 * carry[:, None]
        for back, token in zip(offsets(digits), chosen.T, strict=True):
            if back < text.shape[1]:  # else it is before the row
                text[:, text.shape[1] - 1 - back] = token
        if len(chosen):
            found.append((np.flatnonzero(mask_N), text))
    return found
