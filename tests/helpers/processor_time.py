"""The processor's time of test files, which a loaded machine changes little: `pytest -p tests.helpers.processor_time`.

It is that of the process and of the processes that it started and waited for, in seconds.
"""

import os
from collections import Counter

import pytest

NAME, SHOWN = "processor seconds", 40
_before = os.times()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Each phase of a test reports the time since the end of the one before."""
    global _before
    report = yield
    now = os.times()
    report.user_properties = [*report.user_properties, (NAME, sum(now[:4]) - sum(_before[:4]))]
    _before = now
    return report


def pytest_terminal_summary(terminalreporter):
    """The files that took the longest, and all tests together."""
    by_file = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, seconds in getattr(report, "user_properties", ()):
            if name == NAME:
                by_file[report.nodeid.partition("::")[0]] += seconds
    terminalreporter.section(f"{NAME}: {sum(by_file.values()):.0f}")
    for file, seconds in by_file.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:7.1f}  {file}")
