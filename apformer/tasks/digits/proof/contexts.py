"""Every context of progressions of any width, least significant digit first, each as a string of tokens.

After the terms y and x comes z = 2x - y. Its digits follow from the lowest up, with carries c in -1, 0, 1:

    t_j = 2 x_j - y_j + c_j      z_j = t_j mod 10      c_{j+1} = floor(t_j / 10)      c_0 = 0

A term and the space after it have P tokens. Each of two layers reads the token itself and those P - 1 and P tokens
before it. So what is predicted after a token depends on the tokens that many before it:

    0    P    P - 1    2P    2P - 1    2P - 2        after z_{j-1}:    z_{j-1}  x_{j-1}  x_j  y_{j-1}  y_j  y_{j+1}

Here place -1 of a term is the space before it, place D the space after it, and place D + 1 the next term's lowest
digit. These strings are finitely many, whatever D is. A carry c_{j-1} stands for all lower places: each of its values
can occur beside any digits but at the lowest place, whose strings are among those of the others. So without an error
among these strings, progressions of any length with terms of any number of digits are continued rightly.
"""

import numpy as np

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for all that is before a row
DIGITS, CARRIES = range(10), (-1, 0, 1)


def claim(data):
    """What is proven if every context is continued rightly."""
    return "every progression with terms of any number of digits, least significant first, up or down, of any length"


def slices(data, cfg):
    """All contexts, (7, contexts): the tokens of the docstring in its order, then the character that has to follow."""
    if data["order"] != "lsb" or cfg["n_layers"] != 2:
        raise ValueError("its order is not lsb, or its layers are not two")
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


def grid(*choices):
    """Every combination of the choices, an array for each."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def strings(columns, data, cfg):
    """(codes, truth), (contexts, 1) each: a code is a string as a number to the base 12, its first token the lowest."""
    codes = sum(token.astype(np.int64) * 12**o for o, token in enumerate(columns[:-1]))
    return codes[:, None], columns[-1][:, None]


def text(column, place, data):
    """(what is given, what has to follow) of a context's character."""
    shown = ["before the row" if token == START else "0123456789 "[token] for token in column]
    names = ("0", "P", "P - 1", "2P", "2P - 1", "2P - 2")
    return ", ".join(f"{token!r} {name} tokens ago" for name, token in zip(names, shown, strict=False)), shown[-1]


def rows(codes, cfg):
    """Texts after whose last token a model says what it says of these strings: (which of them, tokens), by length.

    Terms have five digits, and what the model does not read is 0. A text is short where a string begins a row. If its
    first term ends where the string has its second digit, terms have one digit.
    """
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
