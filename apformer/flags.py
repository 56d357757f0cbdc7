"""Read command-line flags into frozen dataclasses, by tyro; every fault is one sentence."""

import dataclasses
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Any, get_args

from apformer.errors import DATA, UserError
from apformer.files import FilePath
from apformer.machine import process

# {message of Python or tyro about a flag: our message}
_PLAIN = {
    r".*?(--\w+): .* with base 10: '(.*)'": r"\1 \2 is not a whole number",
    r".*?(--\w+): .*could not convert string to float: '(.*)'": r"\1 \2 is not a number",
    r".*?(--\w+): .* valid parse for arguments: \['(.*)'\]": r"\1 \2 are not all whole numbers",
    r".*?(--\w+): .*STR STR.*": r"\1 wants two values",
    r"[Mm]issing value for argument '(--\w+)'.*": r"\1 wants a value",
    r"[Ii]nvalid choice '(.*?)' for argument '(--\w+)'\. Expected one of \('(.*?)'\).*": r"\2 \1 is none of \3",
}


def parse(config: type, args: Sequence[str], program: str, description: str | None = None) -> Any:
    """Return a dataclass from flags `--d_model 128` or `--d-model 128`, as tyro reads them.

    `--help` prints the flags and raises SystemExit(0).

    Args:
        config: The dataclass.
        args: Words of the command line.
        program: Name of the command, for messages.
        description: First words of `--help`, instead of the docstring of the dataclass.

    Raises:
        UserError: Exit code USAGE; its sentence names the flag.
    """
    from tyro.conf import Positional

    parsed, rest = _read(config, args, program, description=description)
    if any(re.match("-.", word) for word in rest):
        _read(config, args, program, description=description, return_unknown_args=False)  # which refuses them
    if not rest:
        return parsed
    for field in dataclasses.fields(config):
        if field.type == Positional[tuple[str, ...]]:  # these words may also follow flags
            return dataclasses.replace(parsed, **{field.name: (*getattr(parsed, field.name), *rest)})
    remedy = "give the prompt in quotes, with --prompt; " * hasattr(parsed, "prompt")
    raise UserError(f"no flag takes the words {' '.join(rest)}; {remedy}see `{program} --help`")


def first(config: type, args: Sequence[str], program: str) -> Any:
    """Return a dataclass from those flags that are its fields, read as by `parse`; other flags are ignored."""
    return _read(config, args, program, add_help=False)[0]


def _read(config: type, args: Sequence[str], program: str, **options: Any) -> tuple[Any, list[str]]:
    """Return (the dataclass, the words that are none of its flags)."""
    import tyro

    options = {"args": _joined(args), "prog": program, "use_underscores": True, "return_unknown_args": True} | options
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            parsed, rest = tyro.cli(tyro.conf.OmitArgPrefixes[config], **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_sentence(printed.getvalue(), program)) from None
    return map_paths(os.path.expanduser, parsed), rest  # a shell does not expand --flag=~/file


def map_paths(function: Callable[[str], str], part: Any) -> Any:
    """Return a dataclass with function(path) for each path in its fields, and in dataclasses among its fields."""
    changed = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            changed[field.name] = map_paths(function, value)
        elif value and is_path(field.type):
            changed[field.name] = function(value) if isinstance(value, str) else tuple(map(function, value))
    return dataclasses.replace(part, **changed)


def is_path(kind: Any) -> bool:
    """Return whether a field of this type holds one FilePath or more."""
    return kind == FilePath or any(map(is_path, get_args(kind)))


def _joined(args: Sequence[str]) -> list[str]:
    """Return the words with --prompt -5 as --prompt=-5, so that the dash of a value does not begin a flag."""
    joined: list[str] = []
    for word in args:
        is_value = re.match(r"-(?![h-]$|-[a-zA-Z])", word)
        if is_value and joined and re.fullmatch(r"--[a-zA-Z][\w-]*", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def cut(args: Sequence[str], flag: str, value_is: str) -> tuple[list[str], str | None]:
    """Return the words without a flag, and its value or None. Raises UserError (exit USAGE) if it has no value."""
    rest, value, words = [], None, iter(args)
    for word in words:
        name, equals, text = word.partition("=")
        if name.replace("-", "_") != f"__{flag}":
            rest.append(word)
        elif not (value := text if equals else next(words, None)):
            raise UserError(f"--{flag} wants a value: give {value_is}")
    return rest, value


def prompts(
    words: Sequence[str], file: str | None, noun: str, example: str, lines_of: Callable, keep_blank: bool = False
) -> tuple[str | None, list[str], str]:
    """Read the input lines of a command: [RUN] and a line, or [RUN] and --file with many.

    Args:
        words: Arguments that are no flags.
        file: Path of --file; - for standard input.
        noun: Noun for a line in messages, such as "prompt".
        example: A whole command, for a message.
        lines_of: Function that reads the lines of a file.
        keep_blank: Whether blank lines at the end of standard input are lines, too.

    Returns:
        The run or None, the lines, and what to call them in a message.

    Raises:
        UserError: USAGE for too few or too many arguments, DATA for input that cannot be read.
    """
    if file is None:
        if not words or len(words) > 2 or (len(words) == 1 and os.path.isdir(words[0])):
            remedy = f"give a {noun} in quotes, as in `{example}`, or --file FILE with many"
            many = f"{len(words)} arguments, where a run and a {noun} fit"
            fault = f"a {noun} is missing" if len(words) < 2 else many
            raise UserError(f"{fault}: {remedy}")
        return (words[0] if len(words) == 2 else None), [words[-1]], f"the {noun}"
    if len(words) > 1:
        raise UserError(f"--file {file} takes the place of a {noun}: give one of the two")
    run = words[0] if words else None
    return (run, _standard_input(noun, keep_blank), "standard input") if file == "-" else (run, lines_of(file), file)


def _standard_input(noun: str, keep_blank: bool) -> list[str]:
    if sys.stdin is None:
        raise UserError(f"standard input is closed: send it a {noun} a line, or give --file FILE", DATA)
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UserError("standard input is not text: give it as UTF-8", DATA) from None
    if not text.strip("\n"):
        raise UserError(f"standard input is empty: give a {noun} a line", DATA)
    return (text.removesuffix("\n") if keep_blank else text.rstrip("\n")).split("\n")


def require(flag: str, fits: bool, part: Any, what_fits: str) -> None:
    """Raise UserError (exit USAGE) that names a flag, its value in `part` and what fits, unless it fits."""
    if not fits:
        raise UserError(f"--{flag} {getattr(part, flag)} is out of range: give {what_fits}")


def require_whole(flag: str, part: Any, least: int = 1, most: int = 2**31 - 1) -> None:
    """Raise UserError (exit USAGE), as `require` does, unless a whole number in `part` is from least to most."""
    require(flag, least <= getattr(part, flag) <= most, part, f"{least} to {most}")


def script(program: str, config: type, run: Callable[[Any], None]) -> int:
    """Call run(args) with the flags of the command line; return the exit code, every fault is one sentence."""

    def call() -> None:
        args = parse(config, sys.argv[1:], program)
        process.keep_programs()
        run(args)

    return process.guard(program, call)


def _one_sentence(box: str, program: str) -> str:
    """Return the fault that tyro prints in a box of parts between rules, with the nearest flag if there is one.

    tyro has structured faults in `tyro._errors` alone, which it may change in any release.
    """
    text = re.sub(r"\x1b\[[0-9;]*m|│", "", box)
    # The first rule is the top of the box with its title, or, where boxes cannot be drawn, the line below the title.
    parts = re.split(r"^(?:╭.*|╰.*| *[─-]{8,} *)$", text, flags=re.MULTILINE)
    fault = " ".join(parts[1].split()).rstrip(".") if len(parts) > 1 else "wrong flags"
    fault = re.sub("'None', |, 'None'", "", fault)  # the default of a flag that was not given
    for pattern, plain in _PLAIN.items():
        fault = re.sub(f"^{pattern}$", plain, fault).replace("', '", ", ")
    near = re.search(r"^ {4,}(--\w+)", "".join(parts[2:]), re.MULTILINE)
    hint = f"did you mean {near[1]}? " if near and fault.startswith("Unrecognized") else ""
    return f"{fault[0].lower()}{fault[1:]}; {hint}see `{program} --help`"
