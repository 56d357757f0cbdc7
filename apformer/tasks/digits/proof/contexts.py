"""Every context of progressions of any width, each as a string of tokens.

Least significant digit first. After the terms y and x comes z = 2x - y. Its digits follow from the lowest up, with
carries c in -1, 0, 1:

    t_j = 2 x_j - y_j + c_j      z_j = t_j mod 10      c_{j+1} = floor(t_j / 10)      c_0 = 0

A term and the space after it have P tokens. Each of two layers reads the token itself and those P - 1 and P tokens
before it. So what is predicted after a token depends on the tokens that many before it:

    0    P    P - 1    2P    2P - 1    2P - 2        after z_{j-1}:    z_{j-1}  x_{j-1}  x_j  y_{j-1}  y_j  y_{j+1}

Here place -1 of a term is the space before it, place D the space after it, and place D + 1 the next term's lowest
digit. These strings are finitely many, whatever D is. A carry c_{j-1} stands for all lower places: each of its values
can occur beside any digits but at the lowest place, whose strings are among those of the others. So without an error
among these strings, progressions of any length with terms of any number of digits are continued rightly.

Most significant digit first, with --position ahead. What is predicted after z_{j+1} depends on two things. The first
are the tokens 0, 1, P and P + 1 before x_{j-1}. The second is the bit of the first key that decides, from x_{j-2} on.
Of the places read so far, two things matter for what comes: the digits x_i and y_i of the last, and the function f
for which c_j = f(c), where c is the carry into place i. There are 7 such functions. Which keys decide, and what they
say, is computed from the weights. Then

    F(f, place i) = the (bit, f(c)) for every place i - 1 whose key decides, with every carry c that it may pass on,
                    and F(f after place i - 1, place i - 1) for every place i - 1 whose key does not

with f(0) below the lowest place, is what can be met: its least solution has all (bit, c_j) that occur, at any width.
"""

import numpy as np

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for all that is before a row
DIGITS, CARRIES = range(10), (-1, 0, 1)


def claim(data):
    """What is proven if every context is continued rightly."""
    first = {"lsb": "least", "msb": "most"}[data["order"]]
    return f"every progression with terms of any number of digits, {first} significant first, up or down, of any length"


def slices(data, cfg, bits_of=None):
    """All contexts, (7, contexts): the tokens of the docstring in its order, then the character that has to follow.

    Most significant first (6, contexts): four tokens, the bit + 1, the character. bits_of(codes) are then the bits of
    the keys of strings, as network.bits says.
    """
    if (data["order"], cfg["position"], cfg["n_layers"]) == ("msb", "ahead", 3):
        return [ahead(bits_of)]
    if (data["order"], cfg["position"], cfg["n_layers"]) != ("lsb", "periodic", 2):
        raise ValueError("neither its order is lsb, with two layers and periodic positions, nor msb, with ahead")
    x_i, x_j, y_i, y_j, y_k, carry = grid(DIGITS, DIGITS, DIGITS, DIGITS, (*DIGITS, SPACE), CARRIES)
    t_i = 2 * x_i - y_i + carry
    found = [(t_i % 10, x_i, x_j, y_i, y_j, y_k, (2 * x_j - y_j + t_i // 10) % 10)]
    x_j, y_j, y_k, before_y = grid(DIGITS, DIGITS, (*DIGITS, SPACE), (SPACE, START))  # the lowest digit
    space = np.full_like(x_j, SPACE)
    found.append((space, space, x_j, before_y, y_j, y_k, (2 * x_j - y_j) % 10))
    x_i, y_i, x_0, carry = grid(DIGITS, DIGITS, DIGITS, CARRIES)  # the space after a term, which fits
    t_i, space = 2 * x_i - y_i + carry, np.full_like(x_i, SPACE)
    fits = (t_i >= 0) & (t_i < 10)
    found.append(tuple(token[fits] for token in (t_i, x_i, space, y_i, space, x_0, space)))
    x_i, y_i, y_0 = grid(DIGITS, DIGITS, DIGITS)  # the space after the second term
    space, start = np.full_like(x_i, SPACE), np.full_like(x_i, START)
    found.append((x_i, y_i, space, start, start, y_0, space))
    return [np.concatenate([np.stack(tokens) for tokens in found], axis=1)]


def ahead(bits_of):
    """The contexts of natural order: columns of four tokens, the bit + 1 and the character that has to follow."""
    x, y, bits = *grid(DIGITS, DIGITS), np.array(CARRIES)
    u, space = 2 * x - y, np.full(100, SPACE)
    lower, upper = grid(range(100), range(100))  # places are numbered 10 x + y
    goes, says = bits_of(code((x[lower], y[lower], x[upper], y[upper])))
    goes, says = goes.reshape(100, 100), says.reshape(100, 100, 3)
    goes_on, last = bits_of(code((space, space, x, y)))
    last |= goes_on[:, None]  # then z is read, of which nothing is known
    start = [tuple((u + c) // 10 for c in CARRIES) for u in u.tolist()]
    found = {(f, place): np.zeros((3, 3), bool) for f in FUNCTIONS for place in range(100)}  # bit, c_j
    changed = True
    while changed:
        changed = False
        for (f, place), met in found.items():
            new = np.outer(last[place], bits == f[1])
            for below, g in enumerate(start):
                h = tuple(f[c + 1] for c in g)
                new |= np.outer(says[below, place], np.isin(bits, h))
                if goes[below, place]:
                    new |= found[h, below]
            if (new > met).any():
                met |= new
                changed = True
    met = np.stack([found[f, place] for place, f in enumerate(start)])  # of the place below the one that is asked
    place, above, bit, c = grid(range(100), range(100), range(3), range(3))
    occurs = met[place, bit, c]
    columns = [x[place], y[place], x[above], y[above], bit, (u[above] + bits[c]) % 10]
    parts = [np.stack(columns)[:, occurs]]
    of_z = np.tile(np.array(CARRIES) == 0, (100, 1))  # the bits after a place of z, whose keys end at the last token
    for _ in range(3 * 100):  # each time before the last finds one more
        of_z |= says.any(0) | (goes[:, :, None] & of_z[:, None]).any(0)
    goes_on, first = bits_of(code((x, y, space, space)))  # at the highest digit of z
    lowest = (first | goes_on[:, None] & of_z).any(0) | (np.array(CARRIES) == 0)
    at, bit = grid(range(100), np.flatnonzero(lowest))
    parts.append(np.stack([space[at], space[at], x[at], y[at], bit, u[at] % 10]))  # the lowest digit
    at, bit = np.nonzero(of_z)
    for before in START, SPACE:  # the space after the second term, and after a later one
        parts.append(np.stack([x[at], y[at], space[at], np.full(len(at), before), bit, space[at]]))
    return np.concatenate(parts, axis=1)


FUNCTIONS = [(c, c, c) for c in CARRIES] + [(-1, 0, 0), (-1, -1, 0), (0, 0, 1), (0, 1, 1)]  # of a carry -1, 0, 1


def code(tokens):
    """Strings as numbers to the base 12, their first token the lowest digit."""
    return sum(token.astype(np.int64) * 12**o for o, token in enumerate(tokens))


def grid(*choices):
    """Every combination of the choices, an array for each."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def strings(columns, data, cfg):
    """(codes, truth), (contexts, 1) each: a code is a string as a number to the base 12, its first token the lowest."""
    return code(columns[:-1])[:, None], columns[-1][:, None]


def text(column, place, data):
    """(what is given, what has to follow) of a context's character."""
    shown = ["before the row" if token == START else "0123456789 "[token] for token in column]
    if data["order"] == "msb":
        names = ("P - 2", "2P - 2", "P - 1", "2P - 1")
        given = ", ".join(f"{token!r} {name} tokens ago" for name, token in zip(names, shown, strict=False))
        return f"{given}, and the bit {CARRIES[column[4]]} looked for ahead", shown[-1]
    names = ("0", "P", "P - 1", "2P", "2P - 1", "2P - 2")
    return ", ".join(f"{token!r} {name} tokens ago" for name, token in zip(names, shown, strict=False)), shown[-1]


def rows(codes, cfg, bits_of=None):
    """Texts after whose last token a model says what it says of these strings: (which of them, tokens), by length.

    Terms have five digits, and what the model does not read is 0. A text is short where a string begins a row. If its
    first term ends where the string has its second digit, terms have one digit.
    """
    if cfg["position"] == "ahead":
        return rows_ahead(codes, bits_of)
    tokens, found = np.stack([codes // 12**o % 12 for o in range(6)], axis=1), []
    before, one = (tokens == START).sum(1), (tokens[:, 3] == START) & (tokens[:, 5] == SPACE)
    for which, P, terms in (before == 0, 6, 4), ((before == 1) > one, 6, 2), (one, 2, 2), (before == 2, 6, 2):
        places = np.array([0, P, P - 1, 2 * P, 2 * P - 1, 2 * P - 2])
        end = terms * P - before[which].max(initial=0)
        text = np.zeros((which.sum(), end + 1), np.int32)
        text[:, P - 1] = SPACE  # the end of the first term, which tells P
        text[:, end - places[places <= end]] = tokens[which][:, places <= end]
        found.append((np.flatnonzero(which), text))
    return found


def rows_ahead(codes, bits_of):
    """The same of natural order. Left out are bits that no single place below a state leads to.

    Terms have four digits, of which the third is one whose key says the bit, or one digit, before which no key is read.
    """
    tokens, (x, y) = np.stack([codes // 12**o % 12 for o in range(5)], axis=1), grid(DIGITS, DIGITS)
    lower, upper = grid(range(100), range(100))
    goes, says = bits_of(code((x[lower], y[lower], x[upper], y[upper])))
    says = (says & ~goes[:, None] & (says.sum(1) == 1)[:, None]).reshape(100, 100, 3)  # below, place, bit
    below, there = says.argmax(0), says.any(0)
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
    return [(np.flatnonzero(some), np.stack(text, 1)[some].astype(np.int32)) for some, text in texts]
