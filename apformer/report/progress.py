"""The progress bar of everything that takes long. It shows in a terminal and in a notebook, not in a file or a pipe."""

import sys

from tqdm import tqdm

COMPILING = "compiling, which takes about half a minute"


def bar(*args, disable=False, **options):
    """A tqdm bar on standard error, with the arguments of tqdm."""
    # The standard error of a Jupyter kernel is no terminal, and still a person reads it.
    seen = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return tqdm(*args, disable=disable or not seen, dynamic_ncols=True, **options)


def write(line):
    """Print a line to standard error, above the bar if there is one."""
    tqdm.write(line, file=sys.stderr)


def reporter(bar):
    """A function (done, total) that moves a bar."""

    def report(done, total):
        bar.total = total
        bar.update(done - bar.n)

    return report
