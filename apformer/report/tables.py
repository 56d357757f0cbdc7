"""Tables: of a sweep, in Markdown, a row for each combination of flags; and of any result, for a terminal."""

import numpy as np

HEAD = """`{}`

Predictable terms exactly right, free-running, in %: median over the seeds (worst to best, where they differ). Seconds
are those of training and measuring all seeds.
"""


def by_combination(members):
    """[(combination, its records)] from records with a combination each, in their order."""
    groups = []
    for record in members:
        found = next((group for combination, group in groups if combination == record["combination"]), None)
        if found is None:
            groups.append((record["combination"], found := []))
        found.append(record)
    return groups


def sweep(members, name, command):
    """The table of a sweep's records; name(combination) puts one in words."""
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


def percent(share, decimals=2, unit=" %"):
    """A share in percent. 100 means all: anything less is at most 99.99. No share is a dash."""
    if share is None:
        return "-"
    return f"{100 if share == 1 else min(100 * share, 100 - 10**-decimals):.{decimals}f}{unit}"


def columns(rows):
    """Lines of a table for a terminal, from rows of cells: the first column to the left, the rest to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def doubt(result):
    """Why no certificate is worth trying after an evaluation; None if it may stand."""
    if result["exact_teacher_forced"] is None:
        return "no term can be predicted, since no progression has a third."
    if result["exact_teacher_forced"] < 1:
        return "some of these terms are wrong. `apformer certify` finds all that are."
    return None


def certificate(result):
    """A certificate for a terminal."""
    reach = f"; {result['depends']}" if result["depends"] else ""
    margin = lambda part: "-" if part["smallest_margin"] is None else f"{part['smallest_margin']:.3g}"  # noqa: E731
    rows = [["", "contexts", "errors", "smallest margin"]]
    rows += [[name, f"{p['contexts']:,}", f"{p['errors']:,}", margin(p)] for name, p in result["parts"].items()]
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


def _witnesses(result):
    """Who computed the logits, where that is known: a line, or none."""
    names = [each["witness"] for each in result.get("witnesses", [])]
    if len(names) < 2:
        return [f"computed by {name} alone" for name in names]
    gaps = [each["largest_gap"] for each in result["witnesses"][1:]]
    return [f"computed by {names[0]}, and by {'; '.join(names[1:])}: logits at most {max(gaps):.2g} apart"]


def _counter_example(context):
    """A wrong context in at most 100 characters."""
    given = context["given"] if len(context["given"]) <= 40 else f"... {context['given'][-36:]}"
    return f"after {given!r}: {context['predicted'][:20]!r}, not {context['expected'][:20]!r}"


def _shares(measured):
    """98.4 (90.1 to 100.0) of the free-running shares; - where the suite does not exist."""
    if None in measured or not measured:
        return "-"
    shares = [each["free_running"] for each in measured]
    middle, worst, best = (percent(share, 1, "") for share in (np.median(shares), min(shares), max(shares)))
    return middle if worst == best else f"{middle} ({worst} to {best})"


def _what(members, suite):
    found = [record["suites"][suite] for record in members if not record["failed"]]
    return "; ".join(dict.fromkeys(each["what"] for each in found if each)) or "there are none"
