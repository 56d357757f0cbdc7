"""Tables for a terminal: columns are aligned, and a share that is not all is never shown as all."""

import pytest

from apformer.report import tables


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.00 %"), (1 - 1e-9, "99.99 %"), (0.5, "50.00 %"), (0.0, "0.00 %"), (None, "-")],
)
def test_percent(share, text):
    assert tables.percent(share) == text


def test_columns():
    assert tables.columns([["", "count"], ["terms", "7"], ["a", "1,000,000"]]) == [
        "            count",
        "terms           7",
        "a       1,000,000",
    ]
