"""Tables: of a sweep, in Markdown, a row for each combination of flags; and of any result, for a terminal."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

HEAD = """`{}`

Predictable terms exactly right, free-running, in %: median over the seeds (worst to best, where they differ). Seconds
are those of training and measuring all seeds.
"""


def by_combination(members: list[dict]) -> list[tuple[Any, list[dict]]]:
    """Return [(combination, its records)], in the order in which combinations first appear."""
    groups: list[tuple[Any, list[dict]]] = []
    for record in members:
        found = next((group for combination, group in groups if combination == record["combination"]), None)
        if found is None:
            groups.append((record["combination"], found := []))
        found.append(record)
    return groups


def sweep(members: list[dict], name: Callable[[Any], str], command: str) -> str:
    """Return the table of a sweep's records; name(combination) puts one in words."""
    suites = list(next((record["suites"] for record in members if not record["failed"]), {}))
    head = ["combination", "seeds", "parameters", *suites, "certified", "seconds"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for combination, records in by_combination(members):
        trained = [record for record in records if not record["failed"]]
        cells = [_shares([record["suites"][suite] for record in trained]) for suite in suites]
        answers = [record["certified"] for record in trained]
        certified = "-" if None in answers or not answers else f"{sum(answers)} of {len(records)}"
        seconds = f"{sum(record['seconds'] for record in records):,.0f}"
        failed = len(records) - len(trained)
        seeds = f"{len(records)} ({failed} failed)" if failed else str(len(records))
        lines.append([name(combination), seeds, f"{records[0]['parameters']:,}", *cells, certified, seconds])
    notes = [f"- {suite}: {_what(members, suite)}" for suite in suites]
    return "\n".join([HEAD.format(command), *(f"| {' | '.join(line)} |" for line in lines), "", *notes])


def percent(share: float | None, decimals: int = 2, unit: str = " %") -> str:
    """Return a share in percent. 100 means all: anything less is at most 99.99. No share is a dash."""
    if share is None:
        return "-"
    return f"{100 if share == 1 else min(100 * share, 100 - 10**-decimals):.{decimals}f}{unit}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for a terminal: the first column to the left, the rest to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def doubt(result: dict) -> str | None:
    """Return why no certificate is worth trying after an evaluation; None if it may stand."""
    if result["exact_teacher_forced"] is None:
        return "no term can be predicted, since no progression has a third."
    if result["exact_teacher_forced"] < 1:
        return "some of these terms are wrong. `apformer certify` finds all that are."
    return None


def certificate(result: dict) -> str:
    """Return a certificate for a terminal."""
    reach = f"; {result['depends']}" if result["depends"] else ""
    rows = [["", "contexts", "errors", "smallest margin"]]
    for name, part in result["parts"].items():
        margin = "-" if part["smallest_margin"] is None else f"{part['smallest_margin']:.3g}"
        rows.append([name, f"{part['contexts']:,}", f"{part['errors']:,}", margin])
    wrong = [context for context in result["worst"] if not context["margin"] > 0]
    return "\n".join(
        [
            f"{'CERTIFIED' if result['certified'] else 'NOT CERTIFIED'}: {result['claim']}",
            f"{result['contexts']:,} contexts in {result['seconds']:,} s, {result['errors']:,} errors, smallest margin "
            f"{result['smallest_margin']:.3g}{reach}",
            f"logits differ by {result['largest_difference']:.2g} at most between batch shapes and with a cache",
            f"{result['dtype']}, {result['matmul_precision']} matrix products, "
            f"{result['device']} ({result['backend']})",
            *_witnesses(result),
            "",
            *columns(rows),
            *(_counter_example(context) for context in wrong[:5]),
        ]
    )


def _witnesses(result: dict) -> list[str]:
    """Return a line that names the programs that computed the logits, where they are known."""
    names = [each["witness"] for each in result.get("witnesses", [])]
    if len(names) < 2:
        return [f"computed by {name} alone" for name in names]
    gaps = [each["largest_gap"] for each in result["witnesses"][1:]]
    return [f"computed by {names[0]}, and by {'; '.join(names[1:])}: logits at most {max(gaps):.2g} apart"]


def _counter_example(context: dict) -> str:
    """Return a wrong context in at most 100 characters."""
    given = context["given"] if len(context["given"]) <= 40 else f"... {context['given'][-36:]}"
    return f"after {given!r}: {context['predicted'][:20]!r}, not {context['expected'][:20]!r}"


def _shares(measured: list[Any]) -> str:
    """Return 98.4 (90.1 to 100.0) of the free-running shares; - where the suite does not exist."""
    if None in measured or not measured:
        return "-"
    shares = [each["free_running"] for each in measured]
    middle, worst, best = (percent(share, 1, "") for share in (np.median(shares), min(shares), max(shares)))
    return middle if worst == best else f"{middle} ({worst} to {best})"


def _what(members: list[dict], suite: str) -> str:
    found = [record["suites"][suite] for record in members if not record["failed"]]
    return "; ".join(dict.fromkeys(each["what"] for each in found if each)) or "there are none"
