"""Show progress bars, in a terminal and in a notebook but not in a file or a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

COMPILING = "compiling, which takes about half a minute"


def bar(*args: Any, disable: bool = False, **options: Any) -> tqdm:
    """Return a tqdm bar on standard error; the arguments are those of tqdm."""
    # The standard error of a Jupyter kernel is no terminal, but is shown to the user.
    visible = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return tqdm(*args, disable=disable or not visible, dynamic_ncols=True, **options)


def write(line: str) -> None:
    """Print a line to standard error, above the bar if there is one."""
    tqdm.write(line, file=sys.stderr)


@contextmanager
def reporting(desc: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that updates a bar, which is cleared in the end."""
    with bar(desc=desc, leave=False) as shown:

        def report(done: int, total: int) -> None:
            if shown.total != total:
                shown.reset(total)
            shown.update(done - shown.n)

        yield report
