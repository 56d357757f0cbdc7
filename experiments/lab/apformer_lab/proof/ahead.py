"""List every context of progressions of any width, most significant digit first, each as a string of tokens and a bit.

After the terms y and x comes z = 2x - y. With u_i = 2 x_i - y_i and carries c in -1, 0, 1

    z_j = (u_j + c_j) mod 10      c_{j+1} = floor((u_j + c_j) / 10)      c_0 = 0

and c_j may depend on every lower place, which is written after x_j. With the pattern ahead (see apformer_lab/ahead.py),
the prediction after z_{j+1} depends on two things. The first is the state of x_{j-1}: the tokens at the offsets 0, P, 1
and P + 1 back from it. The second is the bit of the first key that decides, from x_{j-2} on; a key is a function of
such a state, too. So the model is a finite automaton that reads the places from j - 1 down. Of the places read so far,
two things matter: the digits x_i and y_i of the last one, and the function f with c_j = f(c), where c is the carry into
place i. There are 7 such functions. We compute from the weights which keys decide, and their bits. Let

    F(f, place i) = the (bit, f(c)) for every place i - 1 whose key decides, with every carry c that it may pass on,
                    and F(f after place i - 1, place i - 1) for every place i - 1 whose key does not decide

with f(0) below the lowest place, where the space has a key. If that does not decide either, the search goes on in z,
whose digits may be any. The least solution contains all (bit, c_j) that occur, at any width. A key with a number that
is nearer to 0 than UNSURE, or than the bound of its rounding, is read both ways.
"""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from apformer.proof import network
from apformer.proof.bounds import SLACK, Normed, bound_block, bound_norm, length, scale_of, sum_rounding
from apformer_lab.proof.strings import FILES, bias, code, describe, grid, strings, tokens_of  # noqa: F401

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for tokens before the row
DIGITS, CARRIES = range(10), (-1, 0, 1)
UNSURE = 0.5  # a key with a number nearer to 0, or nearer than its rounding, is read both ways
READS = [[0], [1]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]
FUNCTIONS = [(c, c, c) for c in CARRIES] + [(-1, 0, 0), (-1, -1, 0), (0, 0, 1), (0, 1, 1)]  # at c = -1, 0, 1


def claim(data: dict, cfg: dict) -> str:
    """Return the claim that is proven if every context is continued correctly."""
    return (
        "every progression with terms of any number of digits, most significant first, up or down, of any length, from "
        "its first two terms"
    )


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why these contexts are not those of the model; None if they are."""
    if (cfg["pattern"], cfg["vocab_size"], cfg["separator"]) != ("ahead", 11, 10) or data.get("order") != "msb":
        return f"they are of pattern ahead with 11 tokens, and it has {cfg['pattern']} with {cfg['vocab_size']}"
    return None


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string of a layer (from 1): (keys, tokens that each key depends on)."""
    return np.array(READS[layer - 1])


OWN = SimpleNamespace(reads=reads)


def slices(data: dict, cfg: dict, weights: dict) -> Iterator[np.ndarray]:
    """Yield the contexts: columns of four tokens, the bit + 1 and the right character."""
    x, y, bits = *grid(DIGITS, DIGITS), np.array(CARRIES)
    u, space = 2 * x - y, np.full(100, SPACE)
    lower, upper = grid(range(100), range(100))  # places are numbered 10 x + y
    may_skip, possible_bits = keys((x[lower], y[lower], x[upper], y[upper]), weights, cfg)
    may_skip, possible_bits = may_skip.reshape(100, 100), possible_bits.reshape(100, 100, 3)
    of_z = np.tile(np.array(CARRIES) == 0, (100, 1))  # the bits after a place of z, whose keys end at the last token
    for _ in range(3 * 100):  # each pass but the last finds at least one more
        of_z |= possible_bits.any(0) | (may_skip[:, :, None] & of_z[:, None]).any(0)
    may_skip_top, top = keys((x, y, space, space), weights, cfg)  # at the highest digit of z
    in_z = (top | may_skip_top[:, None] & of_z).any(0) | (np.array(CARRIES) == 0)
    may_skip_end, last = keys((space, space, x, y), weights, cfg)
    last |= may_skip_end[:, None] & in_z  # the search then goes on in z
    start = [tuple((u + c) // 10 for c in CARRIES) for u in u.tolist()]
    functions = np.array(FUNCTIONS)
    after = np.array([[FUNCTIONS.index(tuple(f[c + 1] for c in g)) for g in start] for f in FUNCTIONS])  # (7, 100)
    carries = (functions[after][..., None] == bits).any(2)  # that a place may pass on, (7, 100, 3)
    direct = last[:, :, None] & (functions[:, 1, None] == bits)[:, None, None]
    direct |= np.einsum("lpb,flc->fpbc", possible_bits, carries)
    found, new = np.zeros_like(direct), direct  # (7, 100, bit, c_j)
    while (new != found).any():
        found = new
        new = direct | np.einsum("lp,flbc->fpbc", may_skip, found[after, range(100)])
    reachable = found[[FUNCTIONS.index(f) for f in start], range(100)]  # for the place below the predicted one
    place, above, bit, c = grid(range(100), range(100), range(3), range(3))
    occurs = reachable[place, bit, c]
    inner = [x[place], y[place], x[above], y[above], bit, (u[above] + bits[c]) % 10]
    yield np.stack(inner)[:, occurs]
    at, bit = grid(range(100), np.flatnonzero(in_z))
    yield np.stack([space[at], space[at], x[at], y[at], bit, u[at] % 10])  # the lowest digit
    more = (u >= -1) & (u <= 10)  # of the highest places; otherwise no further term fits, and no space is needed
    at, bit = np.nonzero(of_z & more[:, None])
    for before in START, SPACE:  # the space after the second term, and after a later one
        yield np.stack([x[at], y[at], space[at], np.full(len(at), before), bit, space[at]])


def parts(columns: np.ndarray, data: dict) -> dict[str, np.ndarray]:
    """Return {kind of the slice: mask of its contexts}, which are all of one kind."""
    kinds = {SPACE: "the space after a term", START: "the space after the second term"}
    kind = "the lowest digit" if columns[0, 0] == SPACE else kinds.get(int(columns[3, 0]), "within a term")
    return {kind: np.ones(columns.shape[1], bool)}


def text(column: list, place: int, data: dict) -> tuple[str, str]:
    """Return (description of the tokens and the bit, right character) of a context."""
    names = ["P - 2", "2P - 2", "P - 1", "2P - 1 tokens ago"]
    given, right = describe([*column[:4], column[5]], names, "0123456789 ")
    return f"{given}, and the bit {CARRIES[column[4]]} ahead", right


def rows(codes: np.ndarray, cfg: dict, weights: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return texts in which these strings decide the next token: (indices of the strings, tokens) of each length.

    Strings with a bit that no single place below the state gives are left out. Terms have four digits, the third of
    which has a key with the bit, or one digit, for which no key is read.
    """
    tokens, (x, y) = tokens_of(codes, START + 1, 5), grid(DIGITS, DIGITS)
    lower, upper = grid(range(100), range(100))
    may_skip, possible_bits = keys((x[lower], y[lower], x[upper], y[upper]), weights, cfg)
    sole_bit = possible_bits & (~may_skip & (possible_bits.sum(1) == 1))[:, None]
    sole_bit = sole_bit.reshape(100, 100, 3)  # below, place, bit
    below, there = sole_bit.argmax(0), sole_bit.any(0)
    x_i, y_i, x_j, y_j, bit = tokens.T
    one, inside = bit == 1, (x_i != SPACE) & (x_j != SPACE)
    place = np.where(inside, 10 * x_i + y_i, 0)
    space, zero = np.full(len(codes), SPACE), np.zeros(len(codes), np.int64)
    low = below[place, bit]
    texts = (
        (inside & there[place, bit], (y_j, y_i, y[low], zero, space, x_j, x_i, x[low], zero, space)),
        (one & (x_i == SPACE), (y_j, space, x_j, space)),
        (one & (y_j == START), (y_i, space, x_i)),
        (one & (x_j == SPACE) & (y_j == SPACE), (zero, space, y_i, space, x_i)),
    )
    found = [(np.flatnonzero(some), np.stack(text, 1)[some].astype(np.int32)) for some, text in texts]
    return [(index_N, text) for index_N, text in found if len(index_N)]


@np.errstate(all="ignore")
def keys(columns: Sequence[np.ndarray], weights: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (whether a key may not decide, which bits -1, 0 and 1 it may have if it does): bool (N,) and (N, 3).

    The key of a string is that of its newest token in the last layer. It has two numbers, the first coordinates of its
    key and of its value. It decides if the first number is above 0; its bit is the sign of the second.
    """
    distinct, place_of = np.unique(code(columns, START + 1), return_inverse=True)
    x, e, (_, own) = below_last(distinct, weights, cfg, OWN)
    normed = bound_norm(x, e, own, "attention_norm", cfg["norm_epsilon"])
    numbers = np.stack([own[f"attention.{name}"][:, -1, 0] for name in ("key", "value")], axis=1)
    unsure = np.maximum(UNSURE, bound_products(normed, numbers, np.zeros(2), scale_of(own, "attention_norm")))
    (stop_logit, bit_logit), (stop, bit) = (normed.n @ numbers)[place_of].T, unsure[place_of].T
    signs = np.stack([-bit_logit, np.full(len(bit_logit), -np.inf), bit_logit], 1)
    # What is not finite may be either.
    return ~(stop_logit > stop), ~(signs < -bit[:, None]) & ~(stop_logit < -stop)[:, None]


def without_last_head(w: dict) -> dict:
    """Return the weights of a layer with values of 0 in its last head."""
    value = w["attention.value"].copy()
    value[:, -1] = 0.0
    return w | {"attention.value": value}


def bit_vectors(codes: np.ndarray, w: dict) -> np.ndarray:
    """Return the vectors that the bits of strings add to the states of the last layer: (strings, D)."""
    return (codes // (START + 1) ** 4 % (START + 1) - 1.0)[:, None] * w["attention.output"][-1, 0]


def below_last(codes: np.ndarray, weights: dict, cfg: dict, contexts: Any) -> tuple[np.ndarray, np.ndarray, tuple]:
    """Return (states below the last layer, bounds of their errors, (seen, weights) of the last layer) of strings."""
    tokens, (*below, last) = network.layers(codes, weights, cfg, contexts)
    x, e = weights["embedding.table"][tokens], np.zeros(len(tokens))
    for seen, w in below:
        x, e = bound_block(x, e, seen, w, cfg, np.zeros((len(seen), cfg["d_model"])))
    return x, e, last


def logits(codes: np.ndarray, weights: dict, cfg: dict, contexts: Any = OWN) -> np.ndarray:
    """Return the logits after each of these strings, which are distinct and sorted: (strings, vocabulary)."""
    x, _, (seen, w) = below_last(codes, weights, cfg, contexts)
    return network.read_out(network.block(x, seen, without_last_head(w), cfg, bit_vectors(codes, w)), weights, cfg)


@np.errstate(all="ignore")
def bounded_logits(
    codes: np.ndarray, right: np.ndarray, weights: dict, cfg: dict, contexts: Any = OWN
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits after each string, and the ratio of its margin to the bound of its rounding.

    Only the Euclidean lengths of errors are bounded. The rounding of the numbers of a key is bounded in `keys`.
    """
    distinct, place_of = np.unique(codes, return_inverse=True)
    x, e, (seen, w) = below_last(distinct, weights, cfg, contexts)
    x, e = bound_block(x, e, seen, without_last_head(w), cfg, bit_vectors(distinct, w))
    final = bound_norm(x, e, weights, "final_norm", cfg["norm_epsilon"])
    head, bias_V = weights["head.output.weight"], weights["head.output.bias"]
    found, logits_NV = np.empty(len(codes)), final.n @ head + bias_V
    for character in np.unique(right):
        rows, others = np.flatnonzero(right == character), np.arange(len(bias_V)) != character
        by, size = head[:, [character]] - head[:, others], np.abs(head[:, [character]]) + np.abs(head[:, others])
        of = Normed(*(part[place_of[rows]] for part in final))
        sizes = np.abs(bias_V[character]) + np.abs(bias_V[others])
        bound = bound_products(of, by, sizes, scale_of(weights, "final_norm"), size)
        margin = logits_NV[place_of[rows]][:, [character]] - logits_NV[place_of[rows]][:, others]
        found[rows] = (margin / bound).min(1)
    return logits_NV[place_of], np.where(np.isnan(found), 0.0, found)


def bound_products(
    normed: Normed, columns: np.ndarray, bias_J: np.ndarray, scale: np.ndarray, size: np.ndarray | None = None
) -> np.ndarray:
    """Bound the float32 error of products of norm(x) with columns (D, J), plus biases of these sizes.

    size: Sizes of the numbers in the columns, if these are differences.
    """
    size = np.abs(columns) if size is None else size
    carried, sizes = length(scale[:, None] * columns, 0), normed.size @ size + bias_J
    sizes = sizes + normed.e[:, None] * length(scale[:, None] * size, 0)
    return SLACK * (normed.e[:, None] * carried + sum_rounding(len(columns) + 5, sizes))
