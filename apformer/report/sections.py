"""Build the data that a task gives to the page of a run: its capabilities, and its results as charts and tables.

The page draws them without knowing the task, so a new task needs only one Python function, `page`, for its page. The
function returns a dict with these keys. vocabulary, task, facts and right are required:

    vocabulary   The text of each token. With byte_pairs: how byte pairs cut a text, see `merges`.
    source_words If sources have their own vocabulary: {"vocabulary", "byte_pairs", "end"}.
    task         Capabilities of the model, for the player of the page, see `task`.
    facts        [[name, value, note]], shown beside the number of parameters.
    floor        {"nats", "why"}: the lowest possible loss on the validation rows, or None.
    right        A section of charts: {"title", "lead", "blocks"}. The blocks are None if the run is not evaluated.
    wrong        A section that lists single outputs, see `listing`, or None.
    missing      {part of the page that cannot be shown: reason}.
    probe        With ablation, examples and perhaps references: a few held-out rows, and the results on them of the
                 model and of the model with each part ablated. The page computes them again, so they must be few. Only
                 if `params` is given.
    embedding    {"points", "shares"}: a plane of chosen tokens, drawn instead of that of the embedding table.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from apformer.errors import UserError
from apformer.report import tables

percent = tables.percent  # the same format on the page as in a terminal
ROWS, TOKENS = 64, 4096  # most rows and tokens of a probe
EXAMPLES = 6  # prompts that the page offers
NEEDED = {"vocabulary": list, "task": dict, "facts": list, "right": dict}  # required keys and their types


def check(data: dict) -> dict:
    """Return the result of a task's `page`.

    Raises:
        TypeError: If a required part is missing or of another type.
    """
    for name, kind in NEEDED.items():
        if not isinstance(data.get(name), kind):
            raise TypeError(f"page() returned {name} {data.get(name)!r:.40} where a {kind.__name__} is needed")
    for name, keys in (("right", {"title", "lead", "blocks"}), ("wrong", {"title", "lead", "head", "rows"})):
        if data.get(name) is not None and not keys <= data[name].keys():
            raise TypeError(f"page() returned {name} without {', '.join(sorted(keys - data[name].keys()))}")
    return data


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
        does: The task of the model, as the end of a sentence that begins with "A transformer that".
        prompt: Result of `terms` or `text`.
        judges: Noun for the units of an output that are right or wrong, such as "terms" or "strings"; None if there
            are none.
        plays: "continue" a prompt, or "translate" it.
        certifies: Whether `apformer certify` lists every context of the task.
        digits: Number of digits, which are the first tokens in their order.
        line: Number of tokens after which a line may break; None to break before each space.
        end: Token that ends a sentence.
        search: Settings of the search for translations in the evaluation, {"beams", "alpha"}.
    """
    return locals()


def terms(ask: str, width: int, rules: Sequence[dict], *, differences: Sequence[int] | None = None) -> dict:
    """Return a prompt of numbers that are separated by spaces.

    Args:
        ask: Sentence that asks the user for a prompt.
        width: Digits of every term.
        rules: Results of `rule`. The page checks an output by the only rule that all terms of the prompt follow.
        differences: [least, most] difference between neighbours in training, if it was bounded.
    """
    return {"ask": ask, "terms": {"width": width, "rules": rules, "differences": differences}, "longest": None}


def rule(*coefficients: int, constant: int = 0, modulus: int | None = None, name: str = "") -> dict:
    """Return the rule x_n = c_1 x_{n-1} + c_2 x_{n-2} + ... + constant, or its remainder by a modulus.

    A prompt with this rule begins with the word `name`, if it is not "".
    """
    return {"name": name, "coefficients": list(coefficients), "constant": constant, "modulus": modulus}


PROGRESSION = rule(2, -1)


def text(ask: str, longest: int | None = None) -> dict:
    """Return a prompt of any text, of at most `longest` tokens with the end; ask: sentence that asks for it."""
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
    """Return a chart of curves; series: {name: values at the points `at`}; counts: items that each value averages."""
    return locals() | {"kind": "lines", "at": list(at)}


def bars(title: str, unit: str, series: Sequence[str], groups: Iterable[tuple], *, points: bool = False) -> dict:
    """Return a chart of groups of bars, for shares from 0 to 1.

    Args:
        title: Title of the chart.
        unit: Label of the axis of groups.
        series: Names of the bars of a group.
        groups: (name, note, a value or None for each series).
        points: Whether shares are written from 0 to 100 without a unit, instead of in percent.
    """
    records = [{"name": name, "note": note, "values": list(values)} for name, note, values in groups]
    return {"kind": "bars", "title": title, "unit": unit, "series": series, "groups": records, "points": points}


def table(title: str, head: list[str], rows: list[list]) -> dict:
    """Return a table; rows: lists of cells, see `cell`, of which the first names the row."""
    return locals() | {"kind": "table"}


def differences(firsts: list[tuple], differences: list[tuple], cells: list[list[dict]]) -> dict:
    """Return a chart of shares by first term and difference, from which the page draws examples.

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
        none: Sentence that is shown if there are no rows.
    """
    return locals() | {"groups": groups or {}}


def cell(*pieces: str | tuple[str, bool], code: bool = False, play: str | None = None) -> dict:
    """Return a cell of a table, for more than a plain text.

    Args:
        *pieces: Texts, or (text, True) for a text that is highlighted.
        code: Whether to use a monospaced font.
        play: Prompt that a click on the cell gives to the model.
    """
    marked = [[piece, False] if isinstance(piece, str) else list(piece) for piece in pieces]
    return {"pieces": marked, "code": code, "play": play}


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return a number with its noun: 1 term, 2,000 terms."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def some_rows(batch: Any) -> Any:
    """Return evenly spaced rows of a batch of two or more dimensions, as numpy arrays (rows, T)."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, leaf.shape[-1]), batch)
    count = max(1, min(ROWS, TOKENS // rows.tokens_BT.shape[1]))
    return jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // count)][:count], rows)


def spread(items: Sequence, count: int) -> list:
    """Return at most `count` items, evenly spaced from the first to the last."""
    return [items[n] for n in np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)]


def probe(batch: Any, term_BT: np.ndarray | None = None) -> dict[str, list | None]:
    """Return the rows whose loss the page computes again.

    Args:
        batch: A few rows.
        term_BT: Number of the term, from 0, to which each target belongs; the first two terms are not scored. None if
            no target is right or wrong.
    """
    terms = None if term_BT is None else np.where((batch.weights_BT > 0) & (term_BT >= 2), term_BT, -1).tolist()
    return {"tokens": batch.tokens_BT.tolist(), "weights": batch.weights_BT.astype(float).tolist(), "terms": terms}


def attempt(missing: dict[str, str], name: str, read: Callable[[], Any]) -> Any:
    """Return the result of `read`; on a UserError return None, and record its message as missing[name]."""
    try:
        return read()
    except UserError as error:
        missing[name] = f"{error}."
        return None
