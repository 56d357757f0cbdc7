"""The table of a sweep, in Markdown: a row for each combination of flags, from one record for each member."""

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


def _shares(measured):
    """98.4 (90.1 to 100.0) of the free-running shares; - where the suite does not exist."""
    if None in measured or not measured:
        return "-"
    shares = [each["free_running"] for each in measured]
    middle, worst, best = map(_percent, (np.median(shares), min(shares), max(shares)))
    return middle if worst == best else f"{middle} ({worst} to {best})"


def _percent(share):
    """One decimal, where 100.0 means all."""
    return f"{100 if share == 1 else min(100 * share, 99.9):.1f}"


def _what(members, suite):
    found = [record["suites"][suite] for record in members if not record["failed"]]
    return "; ".join(dict.fromkeys(each["what"] for each in found if each)) or "there are none"
