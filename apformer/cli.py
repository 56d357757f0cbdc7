"""The command line: `apformer COMMAND ...`. A command is a file of apformer/commands, with a function `main(args)`.

Commands are imported when they are called, so that `apformer --help` does not wait for JAX: the first line of their
files says what they do.
"""

import ast
import difflib
import importlib
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: apformer.proof has threads of its own

from apformer import __version__, flags  # noqa: E402
from apformer.errors import USAGE, UserError  # noqa: E402
from apformer.machine import processes  # noqa: E402
from apformer.machine.guard import guard  # noqa: E402

FOLDER = Path(__file__).parent / "commands"
ORDER = "train resume predict generate translate neighbours evaluate certify report export sweep".split()  # by use
TOGETHER = ("train", "resume")  # commands that several processes run as one

EPILOGUE = """
RUN is a run directory; without it, the newest made without --run_dir. `apformer COMMAND --help` lists the flags of a
command, `apformer --version` prints the version. Compiled programs are kept in ~/.cache/apformer: every command takes
--compilation_cache FOLDER to keep them elsewhere, or --compilation_cache none. Every command uses all devices that JAX
sees, or with --devices N the first N. --coordinator HOST:PORT --processes N --process K make `train` or `resume` one
of N processes, which train together.

exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 loss not finite, 6 disk, 7 run in use, 8 not certified,
            9 another process of the run is lost; 130, 143 or 129 stopped by SIGINT, SIGTERM or SIGHUP:
            what was saved is not lost
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


def entry():
    """The process of one command."""
    processes.end(main())


def main(args=None):
    """Run one command; the exit code of the process."""
    exit_code = guard("apformer", partial(_run, sys.argv[1:] if args is None else list(args)))
    processes.leave(exit_code)
    return exit_code


def _run(args):
    args, machine = flags.of_machine(args)
    given = {}
    for flag, value_is in (("coordinator", "HOST:PORT"), ("processes", "a number"), ("process", "a number")):
        args, given[flag] = flags.cut(args, flag, value_is)
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
    # Processes of one run must share the number of devices.
    words = args if machine.devices is None else [*args, f"--devices={machine.devices}"]
    with _one_of_several(words, given):
        flags.use(machine)
        importlib.import_module(f"apformer.commands.{args[0]}").main(args[1:])


def _one_of_several(args, given):
    """The context of a command: together with other processes, where flags or the environment say so."""
    if args[0] in TOGETHER and (place := processes.together(given)):
        return processes.joined(*place, args)
    if any(given.values()):
        together = " and ".join(f"`apformer {name}`" for name in TOGETHER)
        raise UserError(f"`apformer {args[0]}` takes no --coordinator: {together} run in several processes", USAGE)
    return nullcontext()
