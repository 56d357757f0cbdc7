"""A sweep: every combination of the values of some flags of `apformer train`, each with several seeds, side by side.

    apformer sweep --position sinusoidal,relative --window None,9 --members 4 --steps 500 --d_model 64

Commas separate values, and a value may bring flags of its own: `--position "relative,sinusoidal --position_offset
400"`. `--members` says how many seeds; learning rates and weight decays are further members of the same program, other
flags are compiled and trained in turn. All are trained to their last step, and it is the last state that is measured:
its loss on the validation rows, and the share of them that is exactly right. A task with suites, such as progressions,
measures these instead, and enumerates all contexts, unless there is `--no_certify`.

    runs/<UTC time>-sweep/
        sweep.json      the flags, the versions, one record a member; failed: its numbers were not finite
        table.md        a row a combination; figures/sweep.png has every member
        01-.../         a run like any other, of the members of one program

The same flags with `--run_dir` of a sweep that was stopped continue it.
"""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files, tasks
from apformer.errors import CHECKPOINT, NON_FINITE, USAGE, UserError
from apformer.report import figures, progress, tables
from apformer.runs import checkpoint, directory, provenance, recipes, selection
from apformer.runs.fit import abstract_state, begin, fit, initial_state
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load_rows, load_settings
from apformer.settings import Settings
from apformer.sweep.grid import PROGRAM, Flags, Program, command, name, programs, read
from apformer.train import TrainState, trained


def sweep(args: list[str]) -> None:
    """Train and measure what a sweep has not yet, and print its table.

    Raises UserError: USAGE for flags that no run can follow, or a directory of other flags; NON_FINITE, when all else
    is done, for combinations that came to numbers that are not finite.
    """
    if {"-h", "--help"} & {*args}:
        print(__doc__)
        recipes.parse(["--help", *args], PROGRAM)
    flags = read(args)
    planned = programs(flags)
    path = Path(flags.pop("run_dir", None) or directory.dated("sweep"))
    if not (path / "sweep.json").exists():
        directory.create("sweep", path)
    with directory.lock(path):
        result = _begun(path, flags)
        try:
            for number, program in enumerate(planned, 1):
                print(f"{number} of {len(planned)}: {path / program.folder}", file=sys.stderr)
                _measure(path, program, result)
        except (KeyboardInterrupt, SystemExit):
            print(f"{path}: the same flags with --run_dir {shlex.quote(str(path))} go on", file=sys.stderr)
            raise
        _report(path, result)
    failed = dict.fromkeys(name(record["combination"]) for record in result["members"] if record["failed"])
    if failed:
        raise UserError(f"{'; '.join(failed)}: a loss was not finite, lower --learning_rate there", NON_FINITE)


def _begun(path: Path, flags: Flags) -> dict:
    """Return what sweep.json holds: at least the flags."""
    file = path / "sweep.json"
    if not file.exists():
        files.write_json(file, {"flags": flags, "versions": provenance.versions(), "members": []})
    result = files.read_json(file)
    if not files.has(result, {"flags": dict, "members": list}):
        raise UserError(f"{file} is damaged: restore it from a copy, or give another --run_dir", CHECKPOINT)
    if result["flags"] != flags:
        raise UserError(f"{path} is of other flags ({command(result['flags'])}): give another --run_dir", USAGE)
    return result


def _measure(path: Path, program: Program, result: dict) -> None:
    """Train a program, and put a record of each member that has none into sweep.json."""
    done = {record["member"] for record in result["members"] if record["folder"] == program.folder}
    wanted = [member for member in range(program.joint.training.members) if member not in done]
    if not wanted:
        return
    try:
        state, rows = train(path / program.folder, program)
    except UserError as error:
        if error.exit_code != NON_FINITE:
            raise
        result["members"] += [_record(program, member, failed=True) for member in wanted]
        files.write_json(path / "sweep.json", result)
        return
    settings, params_M, metrics = program.joint, trained(state), read_metrics(path / program.folder)
    suites = getattr(tasks.load(settings.task), "suites", None)
    suite_rows = suites.suites(settings, rows) if suites else {}
    last = {key: metrics[-1].get(f"validation_{key}") for key in ("loss", "exact")}
    last = {key: np.ravel(np.asarray(values, float)) for key, values in last.items() if values is not None}
    clock = np.array([record["seconds"] for record in metrics])
    gained = np.diff(clock, prepend=0.0)  # the clock starts anew whenever a run is gone on with
    seconds = np.where(gained > 0, gained, clock).sum() / settings.training.members
    for member in progress.bar(wanted, desc="certify", unit="member", leave=False):
        begun, record = time.perf_counter(), _record(program, member, not np.isfinite(last["loss"][member]))
        if not record["failed"]:
            several = settings.training.members > 1
            params = jax.tree.map(lambda leaf_M, k=member: leaf_M[k], params_M) if several else params_M
            shares = {key: suite and suites.measure(suite, params, settings) for key, suite in suite_rows.items()}
            validation = {key: float(values[member]) for key, values in last.items()}
            record |= {"suites": shares, "validation": validation}
            if suites and "no_certify" not in result["flags"] and suites.can_enumerate(settings):
                # a wrong term says as much as all contexts would, and sooner
                wrong = (shares["in distribution"] or {}).get("teacher_forced", 1) < 1
                record |= {"certified": False} if wrong else suites.certificate(params, settings)
        record["seconds"] = round(seconds + time.perf_counter() - begun, 1)
        result["members"].append(record)
        files.write_json(path / "sweep.json", result)


def population(settings_H: list[Settings]) -> TrainState:
    """Return the state before the first step of every member: the seeds of the first settings, of the second ..."""
    states = [initial_state(settings) for settings in settings_H]
    if len(states) == 1:
        return states[0]
    if settings_H[0].training.members == 1:
        states = [jax.tree.map(lambda leaf: leaf[None], state) for state in states]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)


def train(path: Path, program: Program) -> tuple[TrainState, Any]:
    """Return the last state of all members and the rows of their dataset, gone on with from the newest checkpoint."""
    settings = program.joint
    with files.disk_errors(path):
        path.mkdir(exist_ok=True)
    with directory.lock(path):
        if selection.steps(path / "checkpoints"):
            if load_settings(path) != settings:
                raise UserError(f"{path} was trained with other settings: give another --run_dir", USAGE)
            rows = load_rows(path)
            step, state = checkpoint.load(path / "checkpoints", abstract_state(settings))
        else:
            (_, rows), step, state = tasks.load(settings.task).load(settings), 0, population(program.settings)
            begin(path, settings, rows)
        directory.forget_after(path, step)
        return fit(path, settings, rows, state), rows


def _record(program: Program, member: int, failed: bool) -> dict:
    """Return what sweep.json says of a member before it is measured; failed: its numbers are not finite."""
    seeds = program.settings[0].training.members
    settings = program.settings[member // seeds]
    shapes = abstract_state(replace(settings, training=replace(settings.training, members=1)))
    return {
        "combination": program.combinations[member // seeds],
        "folder": program.folder,
        "member": member,
        "seed": settings.training.seed + member % seeds,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(shapes.params)),
        "failed": bool(failed),
        "suites": {},
        "validation": {},
        "certified": None,
        "seconds": 0.0,
    }


def _report(path: Path, result: dict) -> None:
    """Print and write the table, and draw the figure: the suites of members, or how their validation loss fell."""
    table = tables.sweep(result["members"], name, command(result["flags"]))
    files.write_text(path / "table.md", table + "\n")
    print(f"{table}\n\n{path / 'table.md'}")
    trained = [record for record in result["members"] if not record["failed"]]
    if not trained:
        return
    key, rows = "exact" if trained[0]["suites"] else "validation_loss", []
    for combination, records in tables.by_combination(trained):
        members, metrics = [record["member"] for record in records], read_metrics(path / records[0]["folder"])
        curve = [(line["step"], np.ravel(np.asarray(line[key], float))[members]) for line in metrics if key in line]
        rows.append((name(combination), curve, [record["suites"] for record in records]))
    figure = figures.sweep(rows) if key == "exact" else figures.losses([row[:2] for row in rows])
    figures.save(path / "figures", {"sweep": figure})
    print(path / "figures" / "sweep.png")
