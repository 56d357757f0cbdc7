"""A short run with three checkpoints, processes that train it under faults, and what such a run must end with."""

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
LIMIT = 120  # seconds after which a command hangs
FOUND = "found.jsonl"
FEW = 20  # items for which one process is enough
HUNG = -99  # the exit code of one that does, or that takes its server with it
TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))
MODEL = "--context 16 --d_model 8 --n_layers 1 --n_heads 1 --dropout 0.1"
PACE = "--batch_size 4 --steps 12 --log_every 2 --save_every 4 --learning_rate 0.01 --warmup_steps 2"


def train_args(folder, run, keep=1):
    """The words of `apformer` that train the run, which keeps `keep` checkpoints besides the best."""
    text = folder / "bottles.txt"
    if not text.exists():
        text.write_text(TEXT)
    return [*f"train --recipe text --text {text} {MODEL} {PACE} --keep {keep} --run_dir".split(), str(run)]


def goes_on(folder, run, keep=1):
    """The words that go on with a run that was cut: those that began it, where it has no config.json yet."""
    return ["resume", str(run)] if (run / "config.json").exists() else train_args(folder, run, keep)


class Outcome(NamedTuple):
    """What came of a command: its exit code, below 0 for a signal; what it printed; the checkpoints it saved."""

    code: int
    out: str
    err: str
    saved: list
    seconds: float = 0.0
    calls: int = 0
    fired: bool = False
    kinds: str = ""


class Server:
    """Two processes that run commands, see _server.py; begun again where one hangs. A context manager.

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
        self.environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # of the tests
        if shim is not None:
            self.environment["LD_PRELOAD"] = str(shim)
        folder.mkdir(exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fork in [*self.processes]:
            self._end(fork)

    def run(self, args, *, fork=True, fresh=False, signals=(), fault=None, clock=0.0):
        """The Outcome of a command. signals: (seconds, number) of each; fault: (folder, name, when, seed)."""
        request = self.request(args, fork=fork, signals=list(signals), fault=fault, clock=clock)
        return self.outcome(**(self._fresh(request, signals) if fresh else self._ask(request, fork)))

    def request(self, args, fork=False, signals=(), fault=None, clock=0.0, streams=True):
        """What _server.py is asked, as JSON. streams: whether it writes what is printed to files."""
        for name in ("out", "err", "saved"):
            (self.folder / name).write_text("")
        (self.folder / "ready").unlink(missing_ok=True)
        facts = {"folder": str(self.folder), "fault": fault and (str(fault[0]), *fault[1:]), "streams": streams}
        return json.dumps(facts | {"args": args, "fork": fork, "signals": signals, "clock": clock})

    def outcome(self, **found):
        """The Outcome with what was printed."""
        out, err, saved = ((self.folder / name).read_text(errors="replace") for name in ("out", "err", "saved"))
        return Outcome(out=out, err=err, saved=[int(step) for step in saved.split()], **found)

    def _fresh(self, request, signals):
        began = time.monotonic()
        with subprocess.Popen(self.words(request), env=self.environment, cwd=self.folder) as process:
            self.signal(process, signals)
            return {"code": process.wait(LIMIT), "seconds": time.monotonic() - began}

    def words(self, request):
        """The command line of a process of its own for a request."""
        return [sys.executable, str(HERE / "_server.py"), request]

    def signal(self, process, signals):
        """Send a process its signals in time; SIGKILL from its beginning, the others from when it hears them."""
        began = time.monotonic()
        for seconds, number in sorted(signals):
            while number != signal.SIGKILL and process.poll() is None and not (self.folder / "ready").exists():
                began = time.monotonic()
                time.sleep(0.002)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, began + seconds - time.monotonic()))
            process.send_signal(number)

    def _ask(self, request, fork):
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
    """The library of _shim.c, compiled into a folder, or why it cannot be: (path, None) or (None, reason)."""
    if not sys.platform.startswith("linux"):
        return None, "the faults of a disk are made by a library for Linux"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None, "there is no C compiler here"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", HERE / "_shim.c", "-ldl"], check=True
    )
    return folder / "shim.so", None


def over(items, work, folder, shim=None, desc=None):
    """[work(server, item) of each item], spread over processes. What is found is kept, and not sought again.

    Items and what is found of them are JSON: lists of pairs in the file FOUND of the folder.
    """
    order = [json.dumps(item) for item in items]
    lines = (folder / FOUND).read_text().splitlines(True) if (folder / FOUND).exists() else []
    lines = [line for line in lines if line.endswith("\n")]  # the last one may be cut
    (folder / FOUND).write_text("".join(lines))
    found = {json.dumps(item): result for item, result in map(json.loads, lines)}
    items = [item for item in order if item not in found]
    workers = 2 if len(items) > FEW else 1  # a Server is ready after seconds
    bar = progress.bar(total=len(order), initial=len(order) - len(items), desc=desc)

    def of_worker(which):
        with Server(folder / f"server-{which}", shim) as server:
            with contextlib.suppress(IndexError):  # none is left
                while True:
                    item = items.pop(0)
                    found[item] = work(server, json.loads(item))
                    kept.write(json.dumps([json.loads(item), found[item]]) + "\n")
                    bar.update()

    with bar, open(folder / FOUND, "a", buffering=1) as kept, ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(of_worker, which) for which in range(workers)]:
            future.result()
    return [found[item] for item in order]


def tell(faults, sentence, case, outcome=None):
    """Take note of a case that did not come out as promised, and say on standard error all that reproduces it."""
    said = "" if outcome is None else f"; exit {outcome.code}\n{outcome.out[-1500:]}\n{outcome.err[-3000:]}"
    progress.write(f"{sentence}: {case}{said}")
    faults.append(sentence)


def sentence_of(outcome, program="apformer"):
    """The one sentence that a failed command ends with; None if there is not exactly one, or a traceback."""
    lines = [line for line in outcome.err.splitlines() if line.startswith(f"{program}: ")]
    return lines[0] if len(lines) == 1 and "Traceback" not in outcome.err else None


def end_of(run):
    """What a run that is done is compared by: all of it but names that orbax draws, times, and pictures."""
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
    """The facts of a checkpoint, with the sha256 of its arrays. Raises UserError if they are others."""
    run = path.parents[1]
    checkpoint.load(path.parent, fit.abstract_state(restore.load_settings(run)), int(path.name))
    return asdict(selection.read_facts(path))


def differences(found, wanted):
    """The names of end_of in which two runs differ, with a little of what differs."""
    return {name: (str(found[name])[:600], str(wanted[name])[:600]) for name in wanted if found[name] != wanted[name]}


def newest_sound(run):
    """The newest step of a run whose checkpoint is as it was written; -1 if there is none."""
    for step in reversed(selection.steps(run / "checkpoints")):
        with contextlib.suppress(UserError):
            return arrays_of(run / "checkpoints" / str(step))["step"]
    return -1


def resumed_at(outcome):
    """The step that a command said it went on from; None if it said none."""
    found = re.search(r": resumed at step ([\d,]+) of", outcome.err)
    return found and int(found[1].replace(",", ""))
