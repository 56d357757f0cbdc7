"""Tables: of a sweep, in Markdown, a row for each combination of flags; and of any result, for a terminal."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

HEAD = "{}: median over the seeds (worst to best, where they differ). "
HEAD += "Seconds are those of training and measuring all seeds."
SUITES = "Predictable terms exactly right, free-running, in %"
VALIDATION = "Loss of the validation rows in nats, and the share that is exactly right in %"


def by_combination(members: list[dict]) -> list[tuple[Any, list[dict]]]:
    """Return [(combination, its records)], in the order in which combinations first appear."""
    groups: dict[str, list[dict]] = {}
    for record in members:
        groups.setdefault(str(record["combination"]), []).append(record)
    return [(records[0]["combination"], records) for records in groups.values()]


def sweep(members: list[dict], name: Callable[[dict], str], command: str) -> str:
    """Return the table of a sweep's records, of their suites or, if there are none, of their validation rows.

    Args:
        members: Records of sweep.json.
        name: Puts a combination in words.
        command: Command line of the sweep.
    """
    suites = next((record["suites"] for record in members if not record["failed"]), {})
    head = ["combination", "seeds", "parameters", *(suites or ("validation loss", "exact"))]
    head += ["certified", "seconds"] if suites else ["seconds"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for combination, records in by_combination(members):
        trained = [record for record in records if not record["failed"]]
        if suites:
            cells = [_shares([record["suites"][suite] for record in trained]) for suite in suites]
            answers = [record["certified"] for record in trained]
            cells.append("-" if None in answers or not answers else f"{sum(answers)} of {len(records)}")
        else:
            found = [record["validation"] for record in trained]
            cells = [_spread([each["loss"] for each in found], "{:.4f}".format, max)]
            cells.append(_spread([each["exact"] for each in found if "exact" in each], _in_percent))
        seconds = f"{sum(record['seconds'] for record in records):,.0f}"
        failed = len(records) - len(trained)
        seeds = f"{len(records)} ({failed} failed)" if failed else str(len(records))
        lines.append([name(combination), seeds, f"{records[0]['parameters']:,}", *cells, seconds])
    caption = textwrap.fill(HEAD.format(SUITES if suites else VALIDATION), 120)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "\n".join(f"- {suite}: {_what(members, suite)}" for suite in suites)
    return "\n\n".join(part for part in (f"`{command}`", caption, table, notes) if part)


def percent(share: float | None, decimals: int = 2, unit: str = " %") -> str:
    """Return a share in percent. 100 means all, and anything less is at most 99.99. No share is a dash."""
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
    rows = [["", "contexts", "errors", "smallest margin"]]
    for name, part in result["parts"].items():
        rows.append([name, f"{part['contexts']:,}", f"{part['errors']:,}", _margin(part["smallest_margin"])])
    wrong = [context for context in result["worst"] if not context["margin"] > 0]
    depends = f"; {result['depends']}" if result["depends"] else ""
    return "\n".join(
        [
            *_verdict(result),
            f"{result['contexts']:,} contexts in {result['seconds']:,} s, {result['errors']:,} errors, smallest margin "
            f"{_margin(result['smallest_margin'])}{depends}",
            *_witnesses(result),
            "",
            *columns(rows),
            *(_counter_example(context) for context in wrong[:5]),
        ]
    )


def _verdict(result: dict) -> list[str]:
    """Return what is proven in exact arithmetic and for float32, or what speaks against it."""
    if result["screened"]:
        return [result["claim"].replace("screened, and not proven", "SCREENED, NOT PROVEN")]
    if not result["theorem"]:
        return [f"NOT PROVEN: {result['claim']}"]
    ratio = f"the least margin is {result['least_ratio']:.3g} times its bound"
    if not result["rounding"]:
        return ["PROVEN in exact arithmetic", f"NOT PROVEN for float32: {result['claim']}"]
    return [
        f"PROVEN in exact arithmetic: {result['claim']}",
        f"PROVEN for any float32 rounding: {ratio}, after each of {result['strings']:,} strings",
    ]


def _margin(margin: float | None) -> str:
    return "-" if margin is None else f"{margin:.3g}"


def _witnesses(result: dict) -> list[str]:
    """Return a line that names the programs that computed the logits."""
    first, *others = result["witnesses"]
    return [
        f"computed by {first['witness']}",
        *(f"{each['witness']}: logits at most {each['largest_gap']:.2g} apart" for each in others),
    ]


def _counter_example(context: dict) -> str:
    """Return a wrong context in at most 100 characters."""
    given = context["given"] if len(context["given"]) <= 40 else f"... {context['given'][-36:]}"
    return f"after {given!r}: {context['predicted'][:20]!r}, not {context['expected'][:20]!r}"


def _shares(measured: list[Any]) -> str:
    """Return the spread of the free-running shares; - where the suite does not exist."""
    return "-" if None in measured else _spread([each["free_running"] for each in measured], _in_percent)


def _spread(values: list[float], text: Callable[[float], str], worst: Callable[[list[float]], float] = min) -> str:
    """Return 98.4 (90.1 to 100.0): the median, and the worst and best where they differ; - for no values."""
    if not values:
        return "-"
    best = max if worst is min else min
    middle, low, high = (text(float(value)) for value in (np.median(values), worst(values), best(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _in_percent(share: float) -> str:
    return percent(share, 1, "")


def _what(members: list[dict], suite: str) -> str:
    found = [record["suites"][suite] for record in members if not record["failed"]]
    return "; ".join(dict.fromkeys(each["what"] for each in found if each)) or "there are none"
