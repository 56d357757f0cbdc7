"""Continue lines of terms by the rules of a run: "03 05 08", or "1 03 05 08" where the first digit names the rule."""

import re

from apformer.errors import DATA, USAGE, UserError
from apformer.settings import architecture_of
from apformer.tasks.progressions.continuation import MOST, continue_lines
from apformer.tasks.recurrences import generator, rules


def predict(model, settings, lines, name, terms):
    """Of each line the next terms, and how many there are: [(text, terms)], since every term has a next.

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    cfg, most = settings.data, architecture_of(settings).max_tokens(settings.model)
    for number, line in enumerate(lines, 1):
        wrong = fault(line, cfg)
        if wrong:
            raise UserError(f"{name}, line {number}: {wrong}", DATA)
    characters = terms * (cfg.digits + 1)
    longest, most = max(map(len, lines)) + characters, MOST if most is None else most
    if longest > most:
        raise UserError(
            f"--terms {terms} makes a line of {longest:,} characters, more than {most:,}: give fewer", USAGE
        )
    return [(text, terms) for text in continue_lines(lines, characters, model)]


def fault(line, cfg):
    """Why a line cannot be continued, and the remedy; None if it can."""
    given = generator.given_terms(cfg)
    shape = generator.render(0, 3, 5, given, cfg)
    name, last = (rf"[1-{len(cfg.rules)}] ", len(cfg.rules)) if generator.is_named(cfg) else ("", 1)
    if not re.fullmatch(rf"{name}[0-9]{{{cfg.digits}}}(?: [0-9]{{{cfg.digits}}}){{{given - 1},}}", line):
        what = f"the number of a rule, 1 to {last}, and then " if name else ""
        return f"is no row; give {what}at least {given} terms of {cfg.digits} digits, such as {shape}"
    words = line.split(" ")
    asked = [cfg.rules[int(words.pop(0)) - 1]] if name else cfg.rules
    row = [int(word) for word in words]
    if not any(_follows(row, rules.read(rule), 10**cfg.digits) for rule in asked):
        return f"does not follow {' or '.join(asked)}; correct it, such as {shape}"
    return None


def _follows(row, rule, modulus):
    return all(rules.after(rule, *row[n - 2 : n], modulus) == row[n] for n in range(2, len(row)))
