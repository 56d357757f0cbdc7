"""The command line: `apformer COMMAND ...`. A command is a file of apformer/commands.

The file of `predict` has a dataclass of flags, `Predict`, and a function of it, `predict`; or a function `main(args)`.

A command is imported when it is called, so that `apformer --help` does not wait for JAX: the help is the first line of
each file.
"""

import difflib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: apformer.proof starts its own threads

from apformer import __version__, flags  # noqa: E402
from apformer.errors import USAGE, UserError  # noqa: E402
from apformer.machine import process  # noqa: E402

FOLDER = Path(__file__).parent / "commands"
ORDER = "train resume predict generate translate neighbours evaluate certify report export sweep".split()  # by use
TOGETHER = ("train", "resume")  # commands that several processes run as one
ADDRESS = {  # flags of one of several processes, with their environment variables
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "processes": "JAX_NUM_PROCESSES",
    "process": "JAX_PROCESS_ID",
}
VALUES = {  # flags of every command, and their values
    "compilation_cache": f"a folder, or {process.FORBIDDEN}",
    "devices": "a number",
    "coordinator": "HOST:PORT",
    "processes": "a number",
    "process": "a number",
}

EPILOGUE = """
RUN is a run directory; the default is runs/latest, the newest run without --run_dir. `apformer COMMAND --help` lists
the flags of a command, `apformer --version` prints the version. Compiled programs are kept in ~/.cache/apformer: every
command takes --compilation_cache FOLDER to keep them elsewhere, or --compilation_cache none. Every command uses all
devices that JAX sees, or with --devices N the first N. --coordinator HOST:PORT --processes N --process K make `train`
or `resume` one of N processes, which train together; --coordinator auto asks Slurm, Open MPI or a TPU for all three.

exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 loss not finite, 6 disk, 7 run in use, 8 not certified,
            9 another process of the run is lost; 130, 143 or 129 stopped by SIGINT, SIGTERM or SIGHUP:
            what was saved is not lost
"""


def commands() -> list[str]:
    """Return the names of the commands, those of everyday use first."""
    return [*ORDER, *sorted({path.stem for path in FOLDER.glob("[a-z]*.py")} - {*ORDER})]


def help_text() -> str:
    """Return the text of `apformer --help`."""
    lines = []
    for name in commands():
        first, _, _ = (FOLDER / f"{name}.py").read_text("utf-8").partition("\n")
        lines.append(f"  {name:11}" + first.strip('"'))
    head = "usage: apformer COMMAND [RUN] [--flag value ...]\n\nTransformers that are small enough to be proven right; "
    return f"{head}language models of a text, and translators.\n\n" + "\n".join(lines) + "\n" + EPILOGUE


def entry(args: Sequence[str] | None = None) -> None:
    """Run one command, and end the process."""
    gc.set_threshold(100_000, 50, 100)  # modules and traces are no garbage: looking through them costs a second
    process.end(main(args))


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code of the process."""
    return process.guard("apformer", partial(_run, sys.argv[1:] if args is None else list(args)))


def _run(args: list[str]) -> None:
    values = {}
    for flag, value_is in VALUES.items():
        args, values[flag] = flags.cut(args, flag, value_is)
    if not args or args[0] in ("-h", "--help"):
        print(help_text(), end="", file=sys.stdout if args else sys.stderr)
        sys.exit(0 if args else USAGE)
    if args[0] == "--version":
        print(f"apformer {__version__}")
        return
    names = commands()
    if args[0] not in names:
        near = difflib.get_close_matches(args[0], [*names, "--version", "--help"], n=1)
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(names)}"
        raise UserError(f"there is no command {args[0]}: {hint}")
    with _joined(args, values):
        process.keep_programs(values["compilation_cache"])
        if values["devices"] is not None:
            from apformer.machine import devices  # which imports JAX

            devices.limit(values["devices"])
        module, name = importlib.import_module(f"apformer.commands.{args[0]}"), args[0]
        if hasattr(module, "main"):  # these read the flags of `train`
            module.main(args[1:])
        else:
            getattr(module, name)(flags.parse(getattr(module, name.title()), args[1:], f"apformer {name}"))


def _joined(args: list[str], values: dict[str, str | None]) -> AbstractContextManager[None]:
    """Return the context of a command, which joins other processes if flags or the environment say so."""
    flagged = [flag for flag in ADDRESS if values[flag]]
    if args[0] not in TOGETHER:
        if flagged:
            together = " and ".join(f"`apformer {name}`" for name in TOGETHER)
            raise UserError(f"`apformer {args[0]}` takes no --{flagged[0]}: {together} run in several processes")
        return nullcontext()
    coordinator, count, index = (values[flag] or os.environ.get(variable) for flag, variable in ADDRESS.items())
    if coordinator is None:
        if flagged:
            raise UserError("--coordinator is missing: give HOST:PORT of process 0, or auto")
        return nullcontext()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before JAX is imported: no warnings, but errors
    from apformer.machine import processes

    # Processes of one run must share the number of devices.
    return processes.joined(coordinator, count, index, [*args, f"--devices={values['devices']}"])
