"""Write tables: of a sweep in Markdown, with a row for each combination of flags, and of a result for a terminal."""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

CAPTION = """\
Loss of the validation rows in nats, and the share that is exactly right in %: mean ± standard deviation over the seeds.
Seconds are those of training all seeds."""


def by_combination(members: list[dict]) -> list[tuple[Any, list[dict]]]:
    """Return [(combination, its records)], in their order; the records of a combination follow each other."""
    return [(combination, [*records]) for combination, records in groupby(members, itemgetter("combination"))]


def _validation(records: list[dict]) -> dict[str, str]:
    """Return the cells of a combination: {heading: text}."""
    results = [record["validation"] for record in records if not record["failed"]]
    losses = [result["loss"] for result in results]
    exact = [result["exact"] for result in results if "exact" in result]
    return {"validation loss": mean_sd(losses, 4), "exact": mean_sd([100 * share for share in exact], 2)}


def sweep(
    members: list[dict],
    name: Callable[[dict], str],
    command: str,
    caption: str = CAPTION,
    cells: Callable[[list[dict]], dict[str, str]] = _validation,
) -> str:
    """Return the table of a sweep in Markdown, with a row for each combination.

    Args:
        members: Records of sweep.json.
        name: Function of a combination that returns its name.
        command: Command line of the sweep.
        caption: Caption of the table.
        cells: Function of the records of a combination that returns {heading: cell}, with the same headings for all.
    """
    rows = []
    for combination, records in by_combination(members):
        failed = sum(record["failed"] for record in records)
        rows.append(
            {
                "combination": name(combination),
                "seeds": f"{len(records)} ({failed} failed)" if failed else str(len(records)),
                "parameters": f"{records[0]['parameters']:,}",
                **cells(records),
                "seconds": f"{sum(record['seconds'] for record in records):,.0f}",
            }
        )
    lines = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *(row.values() for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"`{command}`\n\n{caption}\n\n{table}"


def percent(share: float | None, decimals: int = 2, unit: str = " %") -> str:
    """Return a share in percent, or - for None. Only a share of 1 is 100; others are rounded to at most 99.99."""
    if share is None:
        return "-"
    return f"{100 if share == 1 else min(100 * share, 100 - 10**-decimals):.{decimals}f}{unit}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for a terminal; the first column is left-aligned, the others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def certificate(result: dict) -> str:
    """Return the text of a certificate for a terminal."""
    rows = [["", "contexts", "errors", "smallest margin"]]
    for name, part in result["parts"].items():
        rows.append([name, f"{part['contexts']:,}", f"{part['errors']:,}", _margin(part["smallest_margin"])])
    wrong = [context for context in result["worst"] if not context["margin"] > 0]
    depends = f"; {result['depends']}" if result["depends"] else ""
    first, *others = result["witnesses"]
    return "\n".join(
        [
            *_verdict(result),
            f"{result['contexts']:,} contexts in {result['seconds']:,} s, {result['errors']:,} errors, smallest margin "
            f"{_margin(result['smallest_margin'])}{depends}",
            f"computed by {first['witness']}",
            *(f"{other['witness']}: logits at most {other['largest_gap']:.2g} apart" for other in others),
            "",
            *columns(rows),
            *(_counter_example(context) for context in wrong[:5]),
        ]
    )


def _verdict(result: dict) -> list[str]:
    """Return the lines on what is proven in exact arithmetic and for float32, and why the rest is not."""
    if result["screened"]:
        return [result["claim"].replace("screened, and not proven", "SCREENED, NOT PROVEN")]
    if not result["theorem"]:
        return [f"NOT PROVEN: {result['claim']}"]
    proven = f"PROVEN in exact arithmetic: {result['claim']}"
    if result["rounding"] is None:
        return [proven, "float32: rounding was not bounded"]
    if not result["rounding"]:
        return ["PROVEN in exact arithmetic", f"NOT PROVEN for float32: {result['claim']}"]
    ratio = f"the least margin is {result['least_ratio']:.3g} times its bound"
    return [proven, f"PROVEN for any float32 rounding: {ratio}, after each of {result['strings']:,} strings"]


def _margin(margin: float | None) -> str:
    return "-" if margin is None else f"{margin:.3g}"


def _counter_example(context: dict) -> str:
    """Return a line on a context that is continued wrongly, of about 100 characters at most."""
    given = context["given"] if len(context["given"]) <= 40 else f"... {context['given'][-36:]}"
    return f"after {given!r}: {context['predicted'][:20]!r}, not {context['expected'][:20]!r}"


def mean_sd(values: Sequence[float], decimals: int) -> str:
    """Return "mean ± standard deviation"; a single value alone; - if there is none."""
    if len(values) < 2:
        return f"{values[0]:.{decimals}f}" if values else "-"
    return f"{np.mean(values):.{decimals}f} ± {np.std(values, ddof=1):.{decimals}f}"
