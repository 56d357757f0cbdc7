"""Command-line flags: the fields of frozen dataclasses, read by tyro, every fault one sentence."""

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import NamedTuple

from apformer.errors import DATA, USAGE, UserError
from apformer.machine import compilation
from apformer.machine.guard import guard

# What Python says of a value, in the user's words.
_PLAIN = {
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is no whole number",
    r"could not convert string to float: (.*)": r"\1 is no number",
}


def parse(config, args, program, description=None):
    """A dataclass from flags `--d_model 128` or `--d-model 128`, as tyro reads them.

    description: what `--help` says first, instead of the docstring of the dataclass.
    `--help` prints the flags and raises SystemExit(0). Raises UserError (exit USAGE): one sentence that names the flag.
    """
    import tyro

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return tyro.cli(
                tyro.conf.OmitArgPrefixes[config],
                args=args,
                prog=program,
                description=description,
                use_underscores=True,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_sentence(printed.getvalue(), program), USAGE) from None


def first(config, args, program):
    """A dataclass from the flags that it has, read as `parse` reads them; the other flags are left for later."""
    import tyro

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            known, _ = tyro.cli(config, args=args, add_help=False, use_underscores=True, return_unknown_args=True)
            return known
    except SystemExit:
        raise UserError(_one_sentence(printed.getvalue(), program), USAGE) from None


def cut(args, flag, value_is):
    """(The words without a flag, its value or None). Raises UserError (exit USAGE) for a flag without a value."""
    rest, value, words = [], None, iter(args)
    for word in words:
        name, equals, given = word.partition("=")
        if name.replace("-", "_") != f"__{flag}":
            rest.append(word)
        elif not (value := given if equals else next(words, None)):
            raise UserError(f"--{flag} wants a value: give {value_is}", USAGE)
    return rest, value


class Machine(NamedTuple):
    """What every command is told of the machine, as words; None for what it is not told."""

    compilation_cache: str | None
    devices: str | None


def of_machine(args):
    """(The words without `--compilation_cache` and `--devices`, the Machine). Raises UserError (exit USAGE)."""
    args, place = cut(args, "compilation_cache", f"a folder, or {compilation.FORBIDDEN}")
    args, count = cut(args, "devices", "a number")
    return args, Machine(place, count)


def use(machine):
    """Compile and compute as a Machine says, from now on. Raises UserError (exit USAGE) for devices there are not."""
    compilation.keep(machine.compilation_cache)
    if machine.devices is not None:
        from apformer.machine import devices  # which imports JAX

        devices.limit(machine.devices)


def prompts(
    given: list[str], file: str | None, what: str, example: str, lines_of: Callable, keep_blank: bool = False
) -> tuple[str | None, list[str], str]:
    """Read what a command continues: [RUN] and a line, or [RUN] and --file with many.

    Args:
        given: Arguments that are no flags.
        file: Path of --file; - for standard input.
        what: Name of a line, such as "a prompt".
        example: A whole command, for a message.
        lines_of: Reads a file.
        keep_blank: Whether blank lines at the end of standard input are lines, too.

    Returns:
        The run or None, the lines, and what to call them in a message.

    Raises:
        UserError: USAGE for too few or too many arguments, DATA for input that cannot be read.
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


def _standard_input(what: str, keep_blank: bool) -> list[str]:
    if sys.stdin is None:
        raise UserError(f"standard input is closed: send it {what} a line, or give --file FILE", DATA)
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UserError("standard input is not text: give it as UTF-8", DATA) from None
    if not text.strip("\n"):
        raise UserError(f"standard input is empty: give {what} a line", DATA)
    return (text.removesuffix("\n") if keep_blank else text.rstrip("\n")).split("\n")


def require(flag, fits, part, what_fits):
    """Raises UserError (exit USAGE) that names the flag, its value in `part` and what fits, unless it fits."""
    if not fits:
        raise UserError(f"--{flag} {getattr(part, flag)} is out of range: give {what_fits}", USAGE)


def script(program, config, run):
    """Call run(args) with the flags of the command line: the exit code of the process, every fault one sentence."""

    def call():
        args = parse(config, sys.argv[1:], program)
        compilation.keep()
        run(args)

    return guard(program, call)


def _one_sentence(box, program):
    """What tyro prints in a box of parts between rules, as one sentence: the fault, and the nearest flag if any."""
    text = re.sub(r"\x1b\[[0-9;]*m|│", "", box)
    # The first rule is the top of the box with its title, or, where boxes cannot be drawn, the line below the title.
    parts = re.split(r"^(?:╭.*|╰.*| *[─-]{8,} *)$", text, flags=re.MULTILINE)
    fault = " ".join(parts[1].split()).rstrip(".") if len(parts) > 1 else "wrong flags"
    for python, plain in _PLAIN.items():
        fault = re.sub(python, plain, fault)
    choice = re.match(r"[Ii]nvalid choice '(.*?)' for argument '(--[\w-]+)'\. Expected one of \((.*?)\)", fault)
    if choice:
        fault = f"{choice[2]} {choice[1]} is none of {choice[3].replace(chr(39), '')}"
    near = re.search(r"^ {4,}(--\w+)", "".join(parts[2:]), re.MULTILINE)
    hint = f"did you mean {near[1]}? " if near and fault.startswith("Unrecognized") else ""
    return f"{fault[0].lower()}{fault[1:]}; {hint}see `{program} --help`"
