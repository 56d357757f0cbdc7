"""Train a short run with three checkpoints under faults, and compare its end with that of an undisturbed run."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from apformer.errors import UserError
from apformer.report import progress
from apformer.runs import checkpoint, fit, restore, selection

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 120  # seconds after which a command counts as hung
FOUND = "found.jsonl"
FEW = 20  # items for which one process is enough
HUNG = -99  # exit code of a command that hung, or that ended its server
TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))
MODEL = "--context 16 --d_model 8 --n_layers 1 --n_heads 1 --dropout 0.1"
PACE = "--batch_size 4 --steps 12 --log_every 2 --save_every 4 --learning_rate 0.01 --warmup_steps 2"


def train_args(folder, run, keep=1):
    """Return the arguments of `apformer` that train the run and keep `keep` checkpoints besides the best."""
    text = folder / "bottles.txt"
    if not text.exists():
        text.write_text(TEXT)
    return [*f"train --recipe text --text {text} {MODEL} {PACE} --keep {keep} --run_dir".split(), str(run)]


def resume_args(folder, run, keep=1):
    """Return the arguments that resume an interrupted run, or that start it if it has no config.json yet."""
    return ["resume", str(run)] if (run / "config.json").exists() else train_args(folder, run, keep)


class Outcome(NamedTuple):
    """Result of a command: exit code, below 0 for a signal; printed text; steps of saved checkpoints."""

    code: int
    out: str
    err: str
    saved: list
    seconds: float = 0.0
    calls: int = 0
    fired: bool = False
    kinds: str = ""


class Server:
    """Two processes that run commands, see _server.py; restarted after a hung command. A context manager.

    One forks a child for each command and never compiles, since a process with the threads of XLA cannot be forked. The
    other runs the commands itself, and keeps what it compiles.
    """

    def __init__(self, folder, shim=None):
        self.folder, self.processes = folder, {}
        cache = Path(os.environ.get("APFORMER_FAULTS_CACHE", folder.parent / "cache"))
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "APFORMER_COMPILATION_CACHE": str(cache),
            "MPLBACKEND": "agg",
        }
        self.environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # set by the tests
        if shim is not None:
            self.environment["LD_PRELOAD"] = str(shim)
        folder.mkdir(exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fork in [*self.processes]:
            self._end(fork)

    def run(self, args, *, fork=True, fresh=False, signals=(), fault=None, clock=0.0):
        """Run a command: return its Outcome. signals: (seconds, number) of each; fault: (folder, name, when, seed)."""
        request = self.request(args, fork=fork, signals=list(signals), fault=fault, clock=clock)
        return self.outcome(**(self._run_fresh(request, signals) if fresh else self._send(request, fork)))

    def resume(self, folder, run, keep=1, **how):
        """Resume a run as if its process had ended over a minute ago: return the Outcome. how: arguments of `run`."""
        age(run)
        return self.run(resume_args(folder, run, keep), **how)

    def request(self, args, fork=False, signals=(), fault=None, clock=0.0, streams=True):
        """Return a request to _server.py as JSON. streams: whether it writes what is printed to files."""
        for name in ("out", "err", "saved"):
            (self.folder / name).write_text("")
        (self.folder / "ready").unlink(missing_ok=True)
        facts = {"folder": str(self.folder), "fault": fault and (str(fault[0]), *fault[1:]), "streams": streams}
        return json.dumps(facts | {"args": args, "fork": fork, "signals": signals, "clock": clock})

    def outcome(self, **found):
        """Return the Outcome with the text that was printed."""
        out, err, saved = ((self.folder / name).read_text(errors="replace") for name in ("out", "err", "saved"))
        return Outcome(out=out, err=err, saved=[int(step) for step in saved.split()], **found)

    def _run_fresh(self, request, signals):
        began = time.monotonic()
        with subprocess.Popen(self.command_line(request), env=self.environment, cwd=self.folder) as process:
            self.signal(process, signals)
            return {"code": process.wait(LIMIT), "seconds": time.monotonic() - began}

    def command_line(self, request):
        """Return the command line of a new process for a request."""
        return [sys.executable, str(HERE / "_server.py"), request]

    def signal(self, process, signals):
        """Send signals on time: SIGKILL counted from the start of the process, others from when it handles signals."""
        began = time.monotonic()
        for seconds, number in sorted(signals):
            while number != signal.SIGKILL and process.poll() is None and not (self.folder / "ready").exists():
                began = time.monotonic()
                time.sleep(0.002)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, began + seconds - time.monotonic()))
            process.send_signal(number)

    def _send(self, request, fork):
        if fork not in self.processes:
            with open(self.folder / "server", "a") as errors:
                self.processes[fork] = subprocess.Popen(
                    [sys.executable, str(HERE / "_server.py")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=self.environment,
                    cwd=self.folder,
                    start_new_session=True,
                )
        process = self.processes[fork]
        process.stdin.write(request + "\n")
        process.stdin.flush()
        timer = threading.Timer(LIMIT, os.killpg, [process.pid, signal.SIGKILL])  # with its children
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            self._end(fork)
            return {"code": HUNG}
        return json.loads(line)

    def _end(self, fork):
        with self.processes.pop(fork) as process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def shim(folder):
    """Compile _shim.c into a folder: return (path of the library, None), or (None, reason why not)."""
    if not sys.platform.startswith("linux"):
        return None, "the faults of a disk are made by a library for Linux"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None, "there is no C compiler here"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", HERE / "_shim.c", "-ldl"], check=True
    )
    return folder / "shim.so", None


def map_cached(items, work, folder, shim=None, desc=None):
    """Return [work(server, item) for each item], computed by one or two servers.

    Pairs (item, result) are saved as JSON lines in the file FOUND of the folder, and not computed again.
    """
    order = [json.dumps(item) for item in items]
    lines = (folder / FOUND).read_text().splitlines(True) if (folder / FOUND).exists() else []
    lines = [line for line in lines if line.endswith("\n")]  # the last one may be cut
    (folder / FOUND).write_text("".join(lines))
    found = {json.dumps(item): result for item, result in map(json.loads, lines)}
    items = [item for item in order if item not in found]
    workers = 2 if len(items) > FEW else 1  # a Server is ready after seconds
    bar = progress.bar(total=len(order), initial=len(order) - len(items), desc=desc)

    def worker(number):
        with Server(folder / f"server-{number}", shim) as server:
            with contextlib.suppress(IndexError):  # none is left
                while True:
                    item = items.pop(0)
                    found[item] = work(server, json.loads(item))
                    file.write(json.dumps([json.loads(item), found[item]]) + "\n")
                    bar.update()

    with bar, open(folder / FOUND, "a", buffering=1) as file, ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(worker, number) for number in range(workers)]:
            future.result()
    return [found[item] for item in order]


def record_failure(faults, sentence, case, outcome=None):
    """Record a failed case, and print to standard error what reproduces it."""
    details = "" if outcome is None else f"; exit {outcome.code}\n{outcome.out[-1500:]}\n{outcome.err[-3000:]}"
    progress.write(f"{sentence}: {case}{details}")
    faults.append(sentence)


def age(run):
    """Make the temporary files of a run old: `apformer` keeps those of the last minute, which may be in use."""
    for torn in run.rglob(".*.tmp"):
        os.utime(torn, (0, 0))


def sentence_of(outcome, program="apformer"):
    """Return the error message of a failed command; None if there is not exactly one, or a traceback."""
    lines = [line for line in outcome.err.splitlines() if line.startswith(f"{program}: ")]
    return lines[0] if len(lines) == 1 and "Traceback" not in outcome.err else None


def end_of(run):
    """Return all that is compared of a finished run: not times, content of pictures, or names drawn by Orbax."""
    folder = run / "checkpoints"
    names = {str(path.relative_to(run)) for path in run.rglob("*") if folder not in path.parents}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    config = json.loads((run / "config.json").read_text())
    flags = config["flags"]
    (flags.get("training") or flags).pop("run_dir", None)
    config.pop("directory", None)
    return {
        "files": sorted(names),
        "checkpoints": {path.name: arrays_of(path) for path in sorted(folder.iterdir()) if path.name.isdecimal()},
        "others": sorted(path.name for path in folder.iterdir() if not path.name.isdecimal()),
        "metrics": [{name: value for name, value in record.items() if name != "seconds"} for record in metrics],
        "config": config,
        "evaluation": json.loads((run / "evaluation.json").read_text()),
    }


def arrays_of(path):
    """Return the facts of a checkpoint, with the sha256 of its arrays. Raises UserError if it is damaged."""
    run = path.parents[1]
    checkpoint.load(path.parent, fit.abstract_state(restore.load_settings(run)), int(path.name))
    return asdict(selection.read_facts(path))


def differences(found, expected):
    """Return the entries of `end_of` in which two runs differ, each cut to 600 characters."""
    return {
        name: (str(found[name])[:600], str(expected[name])[:600]) for name in expected if found[name] != expected[name]
    }


def newest_sound(run):
    """Return the step of the newest sound checkpoint of a run; -1 if there is none."""
    for step in reversed(selection.steps(run / "checkpoints")):
        with contextlib.suppress(UserError):
            return arrays_of(run / "checkpoints" / str(step))["step"]
    return -1


def resumed_at(outcome):
    """Return the step from which a command says it resumed; None if it names none."""
    found = re.search(r": resumed at step ([\d,]+) of", outcome.err)
    return found and int(found[1].replace(",", ""))
