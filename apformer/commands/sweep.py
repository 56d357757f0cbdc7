"""Compare combinations of flags, each with several seeds: apformer sweep --position alibi,relative.

    apformer sweep --position sinusoidal,relative --window None,9 --members 4 --steps 500 --d_model 64

Commas separate values. A value may have flags of its own: `--position "relative,sinusoidal --position_offset 400"`.
`--members` is the number of seeds. Models that differ only in seed, learning rate or weight decay are trained in one
program, others one after the other. All are trained to their end, and measured there: the loss on the validation
rows, and the share of these rows that is exactly right. Flags that change these rows, such as --crop_terms, --digits or
--prefix_loss, make losses that cannot be compared: compare `apformer evaluate` of the runs instead.

    runs/<UTC time>-sweep/
        sweep.json      the flags, the versions, one record a member; failed: its numbers were not finite
        table.md        a row a combination; figures/sweep.png has the losses
        01-.../         a run like any other, of the members of one program

The same flags with `--run_dir` of a sweep that was stopped continue it.
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from apformer import files, optimizer, tasks
from apformer.errors import CHECKPOINT, NON_FINITE, UserError, tell
from apformer.report import figures, tables
from apformer.runs import checkpoint, directory, provenance, recipes, selection
from apformer.runs.begin import begin
from apformer.runs.fit import abstract_state, fit, initial_state
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load_rows, load_settings
from apformer.settings import Settings, with_part
from apformer.tasks import defaults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROGRAM = "apformer sweep"
VALIDATION = "validation_"  # prefix of the metrics of validation rows in metrics.jsonl

Flags = dict[str, str | list[str] | None]


class Program(NamedTuple):
    """Settings that differ in `hyper` alone, each with all its seeds: compiled and trained as one population."""

    folder: str
    combinations: list[dict[str, str]]  # {flag: value} of each of the settings
    settings: list[Settings]

    @property
    def joint(self) -> Settings:
        """Return the settings of the population: all seeds of the first settings, of the second ..."""
        first = self.settings[0]
        members = len(self.settings) * first.training.members
        return with_part(first, "training", members=members)

    @property
    def members(self) -> list[tuple[int, dict]]:
        """Return (seed, flags of the optimizer) of each member of the population."""
        run = self.settings[0].training
        return [(run.seed + n, asdict(each.optimizer)) for each in self.settings for n in range(run.members)]


def main(args: list[str]) -> None:
    """Train and measure the programs that are left, print the table and draw the figure.

    Raises:
        UserError: What `run` and `require_finite` raise.
    """
    if {"-h", "--help"} & {*args}:
        print(__doc__)
        recipes.parse(["--help", *(word.partition(",")[0] for word in args)], PROGRAM)
    flags = read(args)
    planned = programs(flags)
    if [program.joint.training.members for program in planned] == [1]:
        raise UserError("nothing is compared: give a flag several values, such as --n_heads 1,4, or --members 4")
    path, result = run(flags, planned)
    members = result["members"]
    table = tables.sweep(members, name, command(result["flags"]))
    losses = curves(path, members, "validation_loss")
    publish(path, table, figures.losses(losses) if losses else None)
    require_finite(members)


def read(args: Sequence[str]) -> Flags:
    """Return {flag: words quoted as for a shell, list of values, or None for a switch}, sorted by name.

    Raises:
        UserError: Exit code USAGE, for a word that follows no flag.
    """
    flags, flag = {}, None
    for word in (part for arg in args for part in (arg.split("=", 1) if arg.startswith("--") else [arg])):
        if word.startswith("--"):
            flag = word[2:].replace("-", "_")
            flags[flag] = None
        elif flag is None or isinstance(flags[flag], list):
            raise UserError(f"{word} belongs to no flag: give --flag value, several values separated by commas")
        elif flags[flag] is None and "," in word and flag != "run_dir":
            flags[flag] = [*dict.fromkeys(word.split(","))]
        else:
            flags[flag] = " ".join([*filter(None, [flags[flag]]), shlex.quote(word)])
    return dict(sorted(flags.items()))


def command(flags: Flags, program: str = PROGRAM) -> str:
    """Return the command line of these flags."""
    words = ((f"--{flag}", shlex.quote(",".join(v)) if isinstance(v, list) else v) for flag, v in flags.items())
    return " ".join([program, *(word for pair in words for word in pair if word is not None)])


def name(combination: dict[str, str]) -> str:
    """Return the name of a combination: position relative, window 9."""
    return ", ".join(f"{flag} {value}" for flag, value in combination.items()) or "no flag varied"


def programs(flags: Flags) -> list[Program]:
    """Return the programs that train all combinations. Raises UserError for one that no run can follow."""
    varied = {flag: values for flag, values in flags.items() if isinstance(values, list)}
    fixed = {flag: value for flag, value in flags.items() if not isinstance(value, list)}
    plain = [flag for flag, values in varied.items() if "--" not in ",".join(values)]  # without flags of their own
    numbers = {flag: varied.pop(flag) for flag in plain if flag in optimizer.Config().hyper()}
    result: list[Program] = []
    for shared in _choices(varied):
        combinations = [shared | chosen for chosen in _choices(numbers)]
        settings = [_settings(fixed, combination) for combination in combinations]
        # Our rules take these numbers as arguments; a package's rule has them as constants, and needs a program each.
        joint = settings[0].optimizer.rule in optimizer.RULES
        joint &= settings[0].task in tasks.OWN or tasks.of(settings[0]).make_optimizer is defaults.make_optimizer
        size = len(settings) if joint else 1
        for start in range(0, len(settings), size):
            words = ",".join(f"{flag}={value}" for flag, value in (shared if joint else combinations[start]).items())
            folder = re.sub(r"[^\w.,=-]+", "_", f"{len(result) + 1:02d}-{words}".rstrip("-"))
            result.append(Program(folder, combinations[start : start + size], settings[start : start + size]))
    return result


def _choices(varied: dict[str, list[str]]) -> list[dict[str, str]]:
    return [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]


def _settings(fixed: dict[str, str | None], combination: dict[str, str]) -> Settings:
    words = [word for flag, value in fixed.items() for word in (f"--{flag}", *shlex.split(value or ""))]
    for flag, value in combination.items():  # the flag may be a switch; the value may have more flags
        switches = {"True": [f"--{flag}"], "False": [f"--no_{flag}"]}
        words += switches.get(value) or [f"--{flag}", *(value.split() or [value])]
    try:
        settings = recipes.parse(words, PROGRAM)
        task = tasks.of(settings)
        for flag, refused in (("average", settings.training.average > 1), ("init_from", task.init_from(settings))):
            if refused:
                raise UserError(f"--{flag} is not a flag of a sweep, which measures new models at the end: drop it")
        settings, _ = task.load(settings)
    except UserError as error:
        raise UserError(f"{name(combination)}: {error}" if combination else str(error), error.exit_code) from None
    return with_part(settings, "training", run_dir=None)


def run(flags: Flags, planned: list[Program]) -> tuple[Path, dict]:
    """Train and measure the programs that are left; return the directory and the content of sweep.json.

    planned: `programs` of the flags. Raises UserError (exit USAGE) for a directory of other flags.
    """
    flags = dict(flags)
    run_dir = flags.pop("run_dir", None)
    path = Path(os.path.expanduser(*shlex.split(str(run_dir)))) if run_dir else directory.dated("sweep")
    if not (path / "sweep.json").exists():
        directory.create("sweep", path)
    with directory.lock(path):
        result = _begun(path, flags)
        try:
            for number, program in enumerate(planned, 1):
                tell(f"{number} of {len(planned)}: {path / program.folder}")
                if program.folder not in {record["folder"] for record in result["members"]}:
                    result["members"] += _measure(path / program.folder, program)
                    files.write_json(path / "sweep.json", result)
        except (KeyboardInterrupt, SystemExit):
            tell(f"{path}: the same flags with --run_dir {shlex.quote(str(path))} continue")
            raise
    return path, result


def _begun(path: Path, flags: Flags) -> dict:
    """Return the content of sweep.json, which is written with the flags if there is none."""
    file = path / "sweep.json"
    if not file.exists():
        files.write_json(file, {"flags": flags, "versions": provenance.versions(), "members": []})
    result = files.read_json(file)
    if not files.has(result, {"flags": dict, "members": list}):
        raise UserError(f"{file} is damaged: restore it from a copy, or give another --run_dir", CHECKPOINT)
    if result["flags"] != flags:
        raise UserError(f"{path} was begun with other flags ({command(result['flags'])}): give another --run_dir")
    return result


def _measure(path: Path, program: Program) -> list[dict]:
    """Train a program, and return a record of each member for sweep.json."""
    members, seeds = program.members, program.settings[0].training.members
    try:
        train(path, program)
        metrics = read_metrics(path)
        clock = np.array([line["seconds"] for line in metrics])
        gained = np.diff(clock, prepend=0.0)  # the clock starts anew when a run is resumed
        seconds = np.where(gained > 0, gained, clock).sum() / len(members)
        last = {
            key.removeprefix(VALIDATION): np.ravel(np.asarray(value, float))
            for key, value in metrics[-1].items()
            if key.startswith(VALIDATION)
        }
    except UserError as error:
        if error.exit_code != NON_FINITE:
            raise
        seconds = 0.0
        last = {"loss": np.full(len(members), np.nan)}
    shapes = jax.tree.leaves(abstract_state(program.joint).params)
    return [
        {
            "combination": program.combinations[member // seeds],
            "folder": program.folder,
            "member": member,
            "seed": members[member][0],
            "parameters": sum(leaf.size for leaf in shapes) // len(members),
            "failed": not finite,
            "validation": {key: float(values[member]) for key, values in last.items()} if finite else {},
            "seconds": round(seconds, 1),
        }
        for member, finite in enumerate(np.isfinite(last["loss"]).tolist())
    ]


def train(path: Path, program: Program) -> None:
    """Train all members of a program to the last step, from the newest checkpoint where there is one."""
    settings = program.joint
    with files.disk_errors(path):
        path.mkdir(exist_ok=True)
    with directory.lock(path):
        if selection.steps(path / "checkpoints"):
            provenance.require_environment(path)
            if load_settings(path) != settings:
                raise UserError(f"{path} was trained with other settings: give another --run_dir")
            rows = load_rows(path)
            step, state = checkpoint.load(path / "checkpoints", abstract_state(settings))
        else:
            _, rows = tasks.of(settings).load(settings)
            step = 0
            begin(path, settings, rows, members=program.members)
            hypers = [each.optimizer.hyper() for each in program.settings]
            state = initial_state(program.settings[0], hypers=hypers)
        directory.forget_after(path, step)
        fit(path, settings, rows, state)


def curves(path: Path, members: list[dict], key: str) -> list[tuple[str, list[tuple[int, np.ndarray]]]]:
    """Return (name, [(step, metric of each member)]) of each combination; members that failed are left out.

    Args:
        path: Directory of the sweep.
        members: Records of sweep.json.
        key: Name of the metric in metrics.jsonl; lines without it are left out.
    """
    result = []
    for combination, records in tables.by_combination([record for record in members if not record["failed"]]):
        lines, chosen = read_metrics(path / records[0]["folder"]), [record["member"] for record in records]
        points = [(line["step"], np.ravel(np.asarray(line[key], float))[chosen]) for line in lines if key in line]
        result.append((name(combination), points))
    return result


def publish(path: Path, table: str, figure: "Figure | None") -> None:
    """Print and write the table, and save the figure, if there is one."""
    files.write_text(path / "table.md", table + "\n")
    print(f"{table}\n\n{path / 'table.md'}")
    if figure:
        figures.save(path / "figures", {"sweep": figure})
        print(path / "figures" / "sweep.png")


def require_finite(members: list[dict]) -> None:
    """Raise UserError (exit NON_FINITE) that names the combinations of which a member failed."""
    failed = dict.fromkeys(name(record["combination"]) for record in members if record["failed"])
    if failed:
        raise UserError(f"{'; '.join(failed)}: a loss was not finite, lower --learning_rate there", NON_FINITE)
