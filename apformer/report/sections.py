"""The data that a task hands to the page of a run: its capabilities, and its results as charts, tables and lists.

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
    probe        With ablation, examples and perhaps references: a few held-out rows, with the whole model and with each
                 part switched off, few enough for the page to ask them again at once. Only if `params` is given.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from apformer.errors import UserError
from apformer.report import tables
from apformer.settings import Settings, with_part

percent = tables.percent  # shares read alike on the page and in a terminal
ROWS, TOKENS = 64, 4096  # of held-out rows: at most
EXAMPLES = 6  # prompts that the page offers
NEEDED = {"vocabulary": list, "task": dict, "facts": list, "right": dict}  # all others may be left out


def check(shown: dict) -> dict:
    """Return what a task's `page` returned.

    Raises:
        TypeError: If it lacks what the page cannot do without.
    """
    for name, kind in NEEDED.items():
        if not isinstance(shown.get(name), kind):
            raise TypeError(f"page() returned {name} {shown.get(name)!r:.40} where a {kind.__name__} is needed")
    for name, keys in (("right", {"title", "lead", "blocks"}), ("wrong", {"title", "lead", "head", "rows"})):
        if shown.get(name) is not None and not keys <= shown[name].keys():
            raise TypeError(f"page() returned {name} without {', '.join(sorted(keys - shown[name].keys()))}")
    return shown


def task(
    does: str,
    prompt: dict,
    *,
    judges: str | None = None,
    plays: str = "continue",
    certifies: bool = False,
    digits: int = 0,
    line: int | None = None,
    end: int | None = None,
    search: dict | None = None,
) -> dict:
    """Return the capabilities of a task.

    Args:
        does: What the model does, after "A transformer that".
        prompt: Made by `terms` or `text`.
        judges: What of an output is right or wrong, such as "terms" or "strings"; None where nothing is.
        plays: "continue" a prompt, or "translate" it.
        certifies: Whether `apformer certify` can ask every context.
        digits: How many of the first tokens are the digits, in their order.
        line: After how many tokens a line of text may break; None: before each space.
        end: Token that ends a sentence.
        search: How the evaluation of translations searches, {"beams", "alpha"}.
    """
    return locals()


def terms(ask: str, width: int, rules: Sequence[dict], *, differences: Sequence[int] | None = None) -> dict:
    """Return a prompt of numbers with a space between.

    Args:
        ask: Sentence that asks for one.
        width: Digits of every term.
        rules: Made by `rule`. The page judges by the only one that all given terms follow.
        differences: [least, most] between neighbours in training, if it had such bounds.
    """
    return {"ask": ask, "terms": {"width": width, "rules": rules, "differences": differences}, "longest": None}


def rule(*coefficients: int, constant: int = 0, modulus: int | None = None, name: str = "") -> dict:
    """Return the rule x_n = c_1 x_{n-1} + c_2 x_{n-2} + ... + constant, with a modulus its remainder by it.

    A prompt that begins with the word `name` asks for this rule; "" is a rule that no word names.
    """
    return {"name": name, "coefficients": list(coefficients), "constant": constant, "modulus": modulus}


PROGRESSION = rule(2, -1)


def text(ask: str, longest: int | None = None) -> dict:
    """Return a prompt of any text of at most `longest` tokens with its end. ask: the sentence that asks for one."""
    return {"ask": ask, "terms": None, "longest": longest}


def lines(
    title: str,
    x: str,
    y: str,
    at: Iterable,
    series: dict[str, list],
    *,
    counts: list[int] | None = None,
    share: bool = False,
    mean: float | None = None,
) -> dict:
    """Return curves. series: {name: a value at each of `at`}. counts: how many items each value is the mean of."""
    return locals() | {"kind": "lines", "at": list(at)}


def bars(title: str, unit: str, series: Sequence[str], groups: Iterable[tuple], *, points: bool = False) -> dict:
    """Return bars side by side, shares from 0 to 1.

    Args:
        title: Title of the chart.
        unit: What is measured.
        series: Names of the bars of a group.
        groups: (name, note, a value for each series or None).
        points: Whether shares are written from 0 to 100 without a unit, instead of in percent.
    """
    told = [{"name": name, "note": note, "values": list(values)} for name, note, values in groups]
    return {"kind": "bars", "title": title, "unit": unit, "series": series, "groups": told, "points": points}


def table(title: str, head: list[str], rows: list[list], unit: str = "") -> dict:
    """Return a table. rows: lists of cells, see `cell`; the first cell of a row names it."""
    return locals() | {"kind": "table"}


def differences(firsts: list[tuple], differences: list[tuple], cells: list[list[dict]]) -> dict:
    """Return shares by first term and difference, of which the page can draw examples.

    Args:
        firsts: (low, high) of each row.
        differences: (low, high) of each column.
        cells: Rows of {"count", "share"}.
    """
    return locals() | {"kind": "differences"}


def listing(
    title: str,
    lead: str,
    head: list[str],
    rows: list[list] | None,
    *,
    groups: dict[str, list[str]] | None = None,
    none: str = "None.",
) -> dict:
    """Return a section that lists single outputs.

    Args:
        title: Title of the section.
        lead: Sentence under the title.
        head: Names of the columns.
        rows: Lists of cells, see `cell`; None where the run is not evaluated.
        groups: {a way to group: the group of each row}.
        none: What is said where there are no rows.
    """
    return locals() | {"groups": groups or {}}


def cell(*pieces: str | tuple[str, bool], code: bool = False, play: str | None = None) -> dict:
    """Return a cell of a table, where a plain text is not enough.

    Args:
        *pieces: Texts, or (text, True) for a text that is marked.
        code: Whether it is in letters of one width.
        play: Prompt that a click on it gives to the model.
    """
    told = [[piece, False] if isinstance(piece, str) else list(piece) for piece in pieces]
    return {"pieces": told, "code": code, "play": play}


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return a number with its noun: 1 term, 2,000 terms."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def some_rows(batch: Any) -> Any:
    """Return some rows, spread over a validation batch of two or more dimensions, as numpy arrays of two."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, leaf.shape[-1]), batch)
    count = max(1, min(ROWS, TOKENS // rows.tokens_BT.shape[1]))
    return jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // count)][:count], rows)


def spread(items: Sequence, count: int) -> list:
    """Return at most `count` items, spread evenly from the first to the last."""
    return [items[n] for n in np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)]


def in_float32(settings: Settings) -> Settings:
    """Return the settings of a run with the compute_dtype of the page, float32."""
    return with_part(settings, "training", compute_dtype="float32")


def probe(batch: Any, term_BT: np.ndarray | None = None) -> dict[str, list | None]:
    """Return the rows that the page asks again.

    Args:
        batch: A few rows.
        term_BT: Number of the term, from 0, that each character belongs to as a target; those of the first two terms
            are not judged. None where nothing is right or wrong.
    """
    terms = None if term_BT is None else np.where((batch.weights_BT > 0) & (term_BT >= 2), term_BT, -1).tolist()
    return {"tokens": batch.tokens_BT.tolist(), "weights": batch.weights_BT.astype(float).tolist(), "terms": terms}


def attempt(missing: dict[str, str], name: str, read: Callable[[], Any]) -> Any:
    """Return the result of `read`; after a UserError None, with the message in `missing` under a name."""
    try:
        return read()
    except UserError as error:
        missing[name] = f"{error}."
        return None
