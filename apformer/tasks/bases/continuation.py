"""Continue lines of terms: "=9 700 010", a rule, the largest digit of a base, and terms of any one width."""

import re

from apformer.errors import DATA, USAGE, UserError
from apformer.settings import architecture_of
from apformer.tasks.bases import alphabet, generator
from apformer.tasks.bases.alphabet import DIGITS, RULES
from apformer.tasks.progressions.continuation import MOST, continue_lines


def predict(model, settings, lines, name, terms):
    """Of each line the next terms, and how many there are: [(text, terms)], since every term has a next.

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    widths = []
    for number, line in enumerate(lines, 1):
        if wrong := fault(line, settings.data):
            raise UserError(f"{name}, line {number}: {wrong}", DATA)
        widths.append(len(line) - line.rindex(" ") - 1)
    characters = terms * (max(widths) + 1)
    longest = max(map(len, lines)) + characters
    most = min(MOST, architecture_of(settings).max_tokens(settings.model) or MOST)
    if longest > most:
        much = f"--terms {terms} makes a line of {longest:,} characters"
        raise UserError(f"{much}, more than {most:,}: give fewer", USAGE)
    texts = continue_lines(lines, characters, model, alphabet)
    return [(text[: terms * (width + 1) - 1], terms) for text, width in zip(texts, widths, strict=True)]


def fault(line, cfg):
    """Why a line cannot be continued, and the remedy; None if it can."""
    shape = generator.render(cfg.rules[0], cfg.bases[-1], (3, 5), 3)
    headings = {alphabet.heading(rule, base): (rule, base) for rule, base in generator.pairs(cfg)}
    heading, *terms = line.split(" ")
    if heading not in headings:
        marks = ", ".join(f"{RULES[rule]} for {rule}" for rule in cfg.rules)
        tops = "".join(DIGITS[base - 1] for base in cfg.bases)
        return f"begins with {ascii(heading[:20])}; begin with a rule ({marks}) and the largest digit, one of {tops}"
    rule, base = headings[heading]
    width = len(terms[0]) if terms else 0
    if not 1 <= width <= generator.MOST:
        return f"has a first term of {width:,} digits; give terms of 1 to {generator.MOST:,}, such as {shape}"
    for number, term in enumerate(terms, 1):
        if not re.fullmatch(f"[{DIGITS[:base]}]{{{width}}}", term):
            return f"term {number} is not {width} of the digits {DIGITS[:base]}; give terms such as {shape}"
    if len(terms) < 2:
        return f"has one term, and two are needed; give terms such as {shape}"
    digits = [[DIGITS.index(digit) for digit in term] for term in terms]
    for n in range(2, len(terms)):
        if list(generator.after(rule, base, digits[n - 2], digits[n - 1])) != digits[n]:
            return f"term {n + 1} does not follow by {rule} in base {base}; correct it, such as {shape}"
    return None
