"""Every context of rows by three rules in many bases, least significant digit first, each as a string of tokens.

A row has a heading, its rule and its largest digit, and a space. After the terms y and x comes z = a x + b y modulo
base^D. Its digits follow from the lowest up, with carries c:

    t_j = a x_j + b y_j + c_j      z_j = t_j mod base      c_{j+1} = floor(t_j / base)      c_0 = 0

A term and the space after it have P tokens. The first of two layers reads the token itself, those P and P + 1 before
it, and the heading; the second the token itself and that P - 1 before it. So what is predicted after a token depends on

    0         P          P + 1        heading        P - 1    2P - 1    2P
    z_{j-1}   x_{j-1}    x_{j-2}      rule, base     x_j      y_j       y_{j-1}

where place -1 of a term is the space before it, place -2 the highest digit of the term before that, and place D the
space after it. These strings are finitely many, whatever D is. A carry c_{j-1} stands for all lower places: it is what
x_{j-2} passes on beside some y_{j-2} and some carry c_{j-2}, which may be any. Without an error among these strings,
rows of any length with terms of any number of digits are continued rightly.

z_{j-1} and its column tell c_j, but for base 2: there z = 2x - y has the same z_{j-1} for the carries -1 and 1. Only
x_{j-2} tells these apart: 2 x_{j-2} - y_{j-2} + c_{j-2} passes on 1 if x_{j-2} is 1 alone, and -1 if it is 0 alone.
"""

import numpy as np

DIGITS, SPACE, START = "0123456789abcdef", 16, 20  # START stands for all that is before the first term
RULES = {"progression": (2, -1), "fibonacci": (1, 1), "doubling": (2, 0)}
TOKENS = {"progression": 17, "fibonacci": 18, "doubling": 19}
CARRIES = {"progression": (-1, 0, 1), "fibonacci": (0, 1), "doubling": (0, 1)}
CHARACTERS = DIGITS + " =+*"
NAMES = ("0", "P", "P + 1", "P - 1", "2P - 1", "2P")
MOST = 2**19  # strings of a slice, about


def claim(data):
    """What is proven if every context is continued rightly."""
    bases, rules = ", ".join(map(str, data["bases"])), ", ".join(data["rules"])
    return (
        f"every row by the rules {rules} in the bases {bases}, of terms of any number of digits, of any length, from "
        "its first two terms"
    )


def slices(data, cfg, bits_of=None):
    """All contexts, (9, contexts) each: the tokens of the docstring in its order, and the character that follows."""
    if cfg["position"] != "columns":
        raise ValueError("its positions are not columns")
    for rule in data["rules"]:
        for base in data["bases"]:
            parts = -(-2 * base**5 // MOST)
            yield np.concatenate([within(rule, base, range(base)[::parts]), others(rule, base)], axis=1)
            yield from (within(rule, base, range(base)[part::parts]) for part in range(1, parts))


def within(rule, base, tops):
    """The contexts of a rule and a base with all three columns, whose x_j is one of `tops`."""
    (a, b), carries, digits = RULES[rule], np.array(CARRIES[rule]), range(base)
    x_i, x_h, x_j, y_j, y_i, c = grid(digits, digits, tops, digits, digits, range(len(carries)))
    occurs = passed_on(rule, base)[x_h, c]
    x_i, x_h, x_j, y_j, y_i, c = (array[occurs] for array in (x_i, x_h, x_j, y_j, y_i, carries[c]))
    t_i = a * x_i + b * y_i + c
    return named(rule, base, (t_i % base, x_i, x_h, x_j, y_j, y_i, (a * x_j + b * y_j + t_i // base) % base))


def others(rule, base):
    """All other contexts of a rule and a base: those at the ends of a term."""
    (a, b), carries, digits = RULES[rule], np.array(CARRIES[rule]), range(base)
    space = lambda like: np.full_like(like, SPACE)  # noqa: E731
    x_i, x_j, y_j, y_i = grid(digits, digits, digits, digits)  # the digit after the lowest
    t_i = a * x_i + b * y_i
    found = [(t_i % base, x_i, space(x_i), x_j, y_j, y_i, (a * x_j + b * y_j + t_i // base) % base)]
    y_top, x_j, y_j = grid(digits, digits, digits)  # the lowest digit
    found.append((space(x_j), space(x_j), y_top, x_j, y_j, space(x_j), (a * x_j + b * y_j) % base))
    x_i, x_h, y_i, c = grid(digits, digits, digits, range(len(carries)))  # the space after a term
    occurs = passed_on(rule, base)[x_h, c]
    x_i, x_h, y_i, c = (array[occurs] for array in (x_i, x_h, y_i, carries[c]))
    found.append(((a * x_i + b * y_i + c) % base, x_i, x_h, space(x_i), space(x_i), y_i, space(x_i)))
    x_i, y_i = grid(digits, digits)  # the space after a term of one digit
    found.append(((a * x_i + b * y_i) % base, x_i, space(x_i), space(x_i), space(x_i), y_i, space(x_i)))
    x_i, y_i, y_h = grid(digits, digits, (*digits, SPACE))  # the space after the second term
    found.append((x_i, y_i, y_h, space(x_i), space(x_i), np.full_like(x_i, START), space(x_i)))
    return np.concatenate([named(rule, base, tokens) for tokens in found], axis=1)


def named(rule, base, tokens):
    """Columns of contexts with their heading: (9, contexts)."""
    heading = (np.full_like(tokens[0], token) for token in (TOKENS[rule], base - 1))
    return np.stack([*tokens[:3], *heading, *tokens[3:]])


def count(rule, base):
    """How many contexts a rule and a base have."""
    carried = int(passed_on(rule, base).sum())
    return carried * (base**4 + base**2) + base**4 + 2 * base**3 + 2 * base**2


def passed_on(rule, base):
    """Which carries a digit x may pass on, beside any y and any carry: bool (digits, carries)."""
    (a, b), carries = RULES[rule], np.array(CARRIES[rule])
    x, y, c = grid(range(base), range(base), carries)
    found = np.zeros((base, len(carries)), bool)
    found[x, (a * x + b * y + c) // base - carries[0]] = True
    return found


def grid(*choices):
    """Every combination of the choices, an array for each."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def strings(columns, data, cfg):
    """(codes, truth), (contexts, 1) each: a code is a string as a number to the base 21, its first token the lowest."""
    return sum(token.astype(np.int64) * 21**o for o, token in enumerate(columns[:-1]))[:, None], columns[-1][:, None]


def text(column, place, data):
    """(what is given, what has to follow) of a context's character."""
    shown = ["before the row" if token == START else CHARACTERS[token] for token in column]
    read = zip(NAMES, [*shown[:3], *shown[5:]], strict=False)
    return ", ".join([f"{''.join(shown[3:5])}", *(f"{token!r} {name} tokens ago" for name, token in read)]), shown[-1]


def rows(codes, cfg, bits_of=None):
    """Texts after whose last token a model says what it says of these strings: (which of them, tokens), by length.

    Terms have three digits, or one, and what the model does not read is 0.
    """
    tokens, found = tokens_of(codes), []
    begins, low, one = tokens[:, 7] == START, tokens[:, 0] == SPACE, tokens[:, 2] == SPACE
    second = ~begins & ~low & one & (tokens[:, 5] != SPACE)
    for which, P, end in (
        (begins & ~one, 4, 3 + 2 * 4 - 2),  # the last token of the text
        (begins & one, 2, 3 + 2 * 2 - 2),
        (low, 4, 3 + 2 * 4 - 1),
        (second, 4, 3 + 2 * 4),
        (~begins & ~low & one & ~second, 2, 3 + 2 * 2),
        (~begins & ~low & ~one & (tokens[:, 5] != SPACE), 4, 3 + 2 * 4 + 1),
        (~begins & ~low & ~one & (tokens[:, 5] == SPACE), 4, 3 + 2 * 4 + 2),
    ):
        chosen = tokens[which]
        text = np.zeros((len(chosen), end + 1), np.int32)
        text[:, [2, *range(2 + P, end + 1, P)]] = SPACE
        put(text, P, chosen)
        found.append((np.flatnonzero(which), text))
    return found


def put(text, P, tokens):
    """Write strings into texts so that they are what the last token reads."""
    end = text.shape[1] - 1
    text[:, :2] = tokens[:, 3:5]
    for back, token in zip((0, P, P + 1, P - 1, 2 * P - 1, 2 * P), tokens.T[[0, 1, 2, 5, 6, 7]], strict=True):
        if end - back >= 2:  # else it is hidden
            text[:, end - back] = token


def tokens_of(codes):
    """The tokens of strings: (strings, 8)."""
    return np.stack([codes // 21**o % 21 for o in range(8)], axis=1)
