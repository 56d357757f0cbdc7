"""The command line: `apformer COMMAND ...`. A command is a file of apformer/commands, with a function `main(args)`.

Commands are imported when they are called, so that `apformer --help` does not wait for JAX: the first line of their
files says what they do.
"""

import ast
import difflib
import importlib
import sys
from functools import partial
from pathlib import Path

from apformer import __version__
from apformer.errors import USAGE, UserError, guard

FOLDER = Path(__file__).parent / "commands"
ORDER = "train resume predict generate translate neighbours evaluate certify report export".split()  # as they are used

EPILOGUE = """
RUN is a run directory; without it, the latest. `apformer COMMAND --help` lists the flags of a command.
`apformer --version` prints the version.

exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 loss not finite, 6 disk, 7 run in use, 8 not certified,
            130 or 143 stopped and saved
"""


def commands():
    """The names of the commands: those of everyday use first."""
    names = {path.stem for path in FOLDER.glob("[a-z]*.py")}
    return [name for name in ORDER if name in names] + sorted(names - {*ORDER})


def help_text():
    """What `apformer --help` prints."""
    lines = (f"  {name:11}{_first_line(FOLDER / f'{name}.py')}" for name in commands())
    head = "usage: apformer COMMAND [RUN] [--flag value ...]\n\nTransformers that are small enough to be proven right; "
    return f"{head}language models of a text, and translators.\n\n" + "\n".join(lines) + "\n" + EPILOGUE


def _first_line(file):
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))).splitlines()[0]


def main(args=None):
    """Run one command; the exit code of the process."""
    return guard("apformer", partial(_run, sys.argv[1:] if args is None else list(args)))


def _run(args):
    if not args or args[0] in ("-h", "--help"):
        print(help_text(), end="", file=sys.stdout if args else sys.stderr)
        sys.exit(0 if args else USAGE)
    if args[0] == "--version":
        print(f"apformer {__version__}")
        return
    known = commands()
    if args[0] not in known:
        near = difflib.get_close_matches(args[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(known)}"
        raise UserError(f"there is no command {args[0]}: {hint}", USAGE)
    importlib.import_module(f"apformer.commands.{args[0]}").main(args[1:])
