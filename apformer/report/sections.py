"""What a task tells the page of a run: capabilities, and its results as charts, tables and lists.

The page draws these without knowing the task. So the page of a new task is one Python function, `page`, and nothing
else. It returns a dict, of which vocabulary, task, facts and right are needed:

    vocabulary   The text of each token. With byte_pairs: how byte pairs cut a text, see `merges`.
    source_words Where sources have a vocabulary of their own: {"vocabulary", "byte_pairs", "end"}.
    task         What the page must know to play with the model, see `task`.
    facts        [[name, value, note]], shown beside the number of parameters.
    floor        {"nats", "why"}: the least loss that is possible on the validation rows, or None.
    right        A section of charts: {"title", "lead", "blocks"}. The blocks are None for a run without evaluation.
    wrong        A section that lists single outputs, see `listing`, or None.
    missing      {what: why} the page cannot show.
    probe        With ablation, examples and perhaps references: what `asked` measures. Only if `params` is given.
"""

from apformer.errors import UserError

NEEDED = {"vocabulary": list, "task": dict, "facts": list, "right": dict}  # all others may be left out


def check(shown):
    """What a task's `page` returned. Raises TypeError that names what the page cannot do without."""
    for name, kind in NEEDED.items():
        if not isinstance(shown.get(name), kind):
            raise TypeError(f"page() returned {name} {shown.get(name)!r:.40} where a {kind.__name__} is needed")
    for name, keys in (("right", {"title", "lead", "blocks"}), ("wrong", {"title", "lead", "head", "rows"})):
        if shown.get(name) is not None and not keys <= shown[name].keys():
            raise TypeError(f"page() returned {name} without {', '.join(sorted(keys - shown[name].keys()))}")
    return shown


def task(does, prompt, *, judges=None, plays="continue", certifies=False, digits=0, line=None, end=None, search=None):
    """The capabilities of a task.

    does: what the model does, after "A transformer that". prompt: see `terms` and `text`. judges: what of an output is
    right or wrong, "terms" or "tokens", or None. plays: "continue" a prompt, or "translate" it. certifies: whether
    `apformer certify` can ask every context. digits: how many of the first tokens are the digits, in their order. line:
    after how many tokens a line of text may break; None: before each space. end: the token that ends a sentence.
    search: of what is translated, how evaluation searches, {"beams", "alpha"}.
    """
    told = {"does": does, "prompt": prompt, "judges": judges, "plays": plays, "search": search}
    return told | {"certifies": certifies, "digits": digits, "line": line, "end": end}


def terms(ask, width, rules, *, order="msb", differences=None):
    """A prompt of numbers with a space between. ask: the sentence that asks for one.

    width: digits of every term; None where the terms of a prompt need only be of one width. rules: see `rule`; the page
    judges by the only one that all given terms follow. order: which digit is written first, the most significant (msb)
    or the least (lsb). differences: [least, most] between neighbours in training, if it had such bounds.
    """
    told = {"width": width, "rules": rules, "order": order, "differences": differences}
    return {"ask": ask, "terms": told, "longest": None}


def rule(*coefficients, constant=0, modulus=None, name=""):
    """x_n = c_1 x_{n-1} + c_2 x_{n-2} + ... + constant, of its remainder by the modulus if there is one.

    name: the word with which a prompt begins to ask for this rule; "" for a rule that no word names.
    """
    return {"name": name, "coefficients": list(coefficients), "constant": constant, "modulus": modulus}


PROGRESSION = rule(2, -1)


def text(ask, longest=None):
    """A prompt of any text. ask: the sentence that asks for one. longest: most tokens, its end included."""
    return {"ask": ask, "terms": None, "longest": longest}


def lines(title, x, y, at, series, *, counts=None, share=False, mean=None):
    """Curves. series: {name: a value at each of `at`}. counts: how many items each value is the mean of."""
    told = {"kind": "lines", "title": title, "x": x, "y": y, "at": list(at), "counts": counts}
    return told | {"series": series, "share": share, "mean": mean}


def bars(title, unit, series, groups, *, points=False):
    """Bars side by side, shares from 0 to 1. groups: (name, note, a value for each series or None).

    points: they are written from 0 to 100 without a unit, instead of in percent.
    """
    groups = [{"name": name, "note": note, "values": list(values)} for name, note, values in groups]
    return {"kind": "bars", "title": title, "unit": unit, "series": series, "groups": groups, "points": points}


def table(title, head, rows, unit=""):
    """A table. rows: lists of cells, see `cell`; the first cell of a row names it."""
    return {"kind": "table", "title": title, "unit": unit, "head": head, "rows": rows}


def differences(firsts, differences, cells):
    """Shares by first term and difference, of which the page can draw examples.

    firsts, differences: (low, high) of each row and column. cells: rows of {"count", "share"}.
    """
    return {"kind": "differences", "firsts": firsts, "differences": differences, "cells": cells}


def listing(title, lead, head, rows, *, groups=None, none="None."):
    """A section that lists single outputs.

    rows: lists of cells, see `cell`; None where the run is not evaluated. groups: {a way to group: the group of each
    row}. none: what is said where there are no rows.
    """
    return {"title": title, "lead": lead, "head": head, "rows": rows, "groups": groups or {}, "none": none}


def cell(*pieces, code=False, play=None):
    """A cell of a table, where a plain text is not enough. pieces: texts, or (text, True) for a text that is marked.

    code: it is in letters of one width. play: the prompt that a click on it gives to the model.
    """
    pieces = [[piece, False] if isinstance(piece, str) else list(piece) for piece in pieces]
    return {"pieces": pieces, "code": code, "play": play}


def percent(share):
    """A share in percent, where 100 means all and 0 means none; a dash for None."""
    if share is None:
        return "–"
    return f"{100 * share:g} %" if share in (0, 1) else f"{min(99.99, max(0.01, 100 * share)):.2f} %"


def count(number, thing, things=None):
    """1 term, 2,000 terms."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def attempt(missing, name, read):
    """What `read` gives, or None, with its complaint kept in `missing` under a name."""
    try:
        return read()
    except UserError as error:
        missing[name] = f"{error}."
        return None
