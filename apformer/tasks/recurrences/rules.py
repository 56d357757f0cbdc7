"""Rules by which a term follows from the two before it: x_n = a x_{n-1} + b x_{n-2} + c, modulo 10^D.

A rule is written as one of the names below, or as its three numbers: "1,1,0" is fibonacci.
"""

from apformer.errors import USAGE, UserError

NAMES = {
    "fibonacci": (1, 1, 0),
    "doubling": (2, 0, 0),
    "alternating": (0, 1, 1),  # two progressions by turns; "0,1,7" has steps of 7
    "progression": (2, -1, 0),
}
LARGEST = 9999  # of the numbers of a rule: products of them and of a term fit int32


def read(text):
    """(a, b, c) of a rule. Raises UserError (exit USAGE) that lists the names."""
    try:
        a, b, c = NAMES[text] if text in NAMES else map(int, text.split(","))
    except ValueError:
        raise UserError(
            f"--rules {text} is no rule: give {', '.join(NAMES)}, or numbers such as 1,1,0", USAGE
        ) from None
    if max(abs(a), abs(b), abs(c)) > LARGEST:
        raise UserError(f"--rules {text} is out of range: give numbers from -{LARGEST} to {LARGEST}", USAGE)
    return a, b, c


def after(rule, before, last, modulus):
    """The term after `before` and `last`; whole numbers, or arrays of them."""
    a, b, c = rule
    return (a * last + b * before + c) % modulus
