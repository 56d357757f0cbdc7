"""What a command is asked to go on from: [RUN] and a line, or [RUN] and --file with many."""

import os
import sys

from apformer.errors import DATA, USAGE, UserError


def read(given, file, what, example, lines_of, keep_blank=False):
    """(run or None, lines, what to call them in a message).

    given: the arguments that are no flags. what: such as "a prompt". example: a whole command. lines_of: reads a file.
    keep_blank: blank lines at the end of standard input are lines too.
    Raises UserError: USAGE for too few or too many arguments, DATA for input that cannot be read.
    """
    if file is None:
        if not given or len(given) > 2 or (len(given) == 1 and os.path.isdir(given[0])):
            remedy = f"give {what} in quotes, as in `{example}`, or --file FILE"
            raise UserError(f"{len(given)} arguments, none {what}: {remedy}" if given else remedy, USAGE)
        return (given[0] if len(given) == 2 else None), [given[-1]], what.replace("a ", "the ", 1)
    if len(given) > 1:
        raise UserError(f"--file {file} takes the place of {what}: give one of the two", USAGE)
    run = given[0] if given else None
    return (run, _standard_input(what, keep_blank), "standard input") if file == "-" else (run, lines_of(file), file)


def _standard_input(what, keep_blank):
    if sys.stdin is None:
        raise UserError(f"standard input is closed: send it {what} a line, or give --file FILE", DATA)
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UserError("standard input is not text: give it as UTF-8", DATA) from None
    if not text.strip("\n"):
        raise UserError(f"standard input is empty: give {what} a line", DATA)
    return (text.removesuffix("\n") if keep_blank else text.rstrip("\n")).split("\n")
