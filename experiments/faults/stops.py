"""Stop commands at random moments: SIGINT, SIGTERM, SIGHUP, a second signal, a closed terminal, full or closed pipes.

Moments are drawn uniformly from the time that the undisturbed command takes after it can handle signals. This time
covers the import of Python's modules (in processes that are not forked), compilation, training, saves, evaluation and
page. The commands are the training of a language model, of word2vec, of a fine-tuned model and of a sweep, and
evaluate, certify and report.

A stopped command has to exit with 128 + the number of the signal, and a sentence. A command that was already done ends
as the undisturbed one does. If the run is resumed, or the command is repeated, it has to end with the same bits.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import threading
from collections import Counter
from functools import partial

import numpy as np
from faults import _runs

QUESTION = "Does a command that is stopped at any moment say so, with its exit code, and keep its work?"
CLAIM = (
    "{cases:,} stops at random moments of training, word2vec, fine-tuning, a sweep, evaluate, certify and report: "
    "SIGINT, SIGTERM and SIGHUP, {twice:,} with a second signal soon after, {terminal:,} by a closed terminal, "
    "{pipes:,} with a full or closed pipe as standard output or error; {stopped:,} met the command at work, the "
    "others came after its end. {unsaid:,} ended without the documented exit code and sentence, {lost:,} lost a "
    "checkpoint that was on the disk, {unequal:,} continued to another result."
)
CASES = 350
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KINDS = ("train", "words", "finetune", "sweep", "evaluate", "certify", "report")
WAYS = ("once", "once", "once", "twice", "fresh", "terminal", "full err", "full out", "closed err", "closed out")
SENTENCES = ("apformer: stopped ", "stopped at step ", " the same command continues")
TINY = "--d_model 8 --n_layers 1 --n_heads 1 --batch_size 4 --steps 8 --log_every 2 --save_every 4"
HOME = "--recipe sketch --hard_fraction 0 --prefix_rows 0 --long_rows 0 "
HOME += "--digits 2 --max_terms 6 --max_difference 30 --test_sequences 16"


def measure(cases, folder):
    """Return {cases, twice, terminal, pipes, stopped, unsaid, lost, unequal} for that many stops."""
    expected, times = {}, {}
    with _runs.Server(folder / "first") as server:
        for kind in KINDS:
            for name in ("compiles", "whole"):
                run = _begin(folder, kind, f"{name}-{kind}")
                done = server.run(_args(folder, kind, run))
                if done.code not in (0, 8):
                    raise RuntimeError(f"an undisturbed {kind} ends with {done.code}: {done.err}")
            expected[kind], times[kind] = (done.code, _end_of(kind, run)), done.seconds
    work = partial(_stop, folder=folder, expected=expected, times=times)
    found = _runs.map_cached(range(cases), work, folder, desc="stops")
    counts = Counter(name for names in found for name in names)
    names = "twice terminal pipes stopped unsaid lost unequal".split()
    return {"cases": cases} | {name: counts[name] for name in names}


def _stop(server, seed, folder, expected, times):
    """Return the names of the counts to which one stop adds 1."""
    rng, kind, way = np.random.default_rng((7, seed)), KINDS[seed % len(KINDS)], WAYS[seed // len(KINDS) % len(WAYS)]
    number, faults = SIGNALS[rng.integers(3)], []
    run = _begin(folder, kind, f"run-{seed}")
    fresh = way not in ("once", "twice")
    moments = [(rng.uniform(0, times[kind] + fresh), number)]
    if way == "twice":
        moments.append((moments[0][0] + rng.uniform(0, 0.3), SIGNALS[rng.integers(3)]))
    case = f"stop {seed}: {kind}, {way}, {[(round(at, 3), stop_signal.name) for at, stop_signal in moments]}"
    if way in ("once", "twice", "fresh"):
        done = server.run(_args(folder, kind, run), fresh=fresh, signals=moments)
    else:
        done = _run_with_streams(server, _args(folder, kind, run), way, moments)
        number = signal.SIGHUP if way == "terminal" else number
    code, end = expected[kind]
    stop_codes = {128 + stop_signal for _, stop_signal in moments} if way != "terminal" else {128 + number}
    stopped = done.code in stop_codes
    explained = any(sentence in done.err for sentence in SENTENCES) or way == "terminal" or way.endswith("err")
    completed = done.code in ({code, 6} if way == "closed out" else {code, 0} if way.startswith("closed") else {code})
    if not (stopped and explained or completed) or "Traceback" in done.err:
        _runs.record_failure(faults, "unsaid", case, done)
    _runs.age(run)
    resumed = server.run(_resume_args(folder, kind, run), fork=False)
    at, newest = _runs.resumed_at(resumed), max(done.saved, default=0)
    if kind in ("train", "words", "finetune") and newest and (at is None or at < newest):
        loss = f"{case}, step {newest} was on the disk, and it resumed from {at}"
        _runs.record_failure(faults, "lost", loss, resumed)
    try:
        found = _end_of(kind, run)
    except Exception as error:  # a file that is missing or damaged, in whatever way
        found = {name: repr(error) for name in end}
    differing = _runs.differences(found, end)
    if resumed.code != code or differing:
        _runs.record_failure(faults, "unequal", f"{case}, exit {done.code}, then {resumed.code}, {differing}", resumed)
    shutil.rmtree(run, ignore_errors=True)
    way = way if way in ("twice", "terminal") else "pipes" if " " in way else "once"
    return [*faults, way, *["stopped"] * stopped]


def _run_with_streams(server, args, way, moments):
    """Return the Outcome of a command in a terminal that closes, or with a pipe that is full or closed."""
    files = {name: open(server.folder / name, "w") for name in ("out", "err")}
    streams = dict(files)
    request, options = server.request(args, streams=False), {}
    if way == "terminal":
        ours, theirs = pty.openpty()
        streams = {"out": theirs, "err": theirs}
        options = {"stdin": theirs, "start_new_session": True}  # _server.py makes it its controlling terminal
    else:
        state, stream_name = way.split()
        ours, streams[stream_name] = os.pipe()
        if state == "full":
            os.set_blocking(streams[stream_name], False)
            try:
                while True:
                    os.write(streams[stream_name], b"." * 1024)
            except BlockingIOError:
                os.set_blocking(streams[stream_name], True)
        else:
            os.close(ours)
            ours = None
    process = subprocess.Popen(
        server.command_line(request),
        env=server.environment,
        cwd=server.folder,
        stdout=streams["out"],
        stderr=streams["err"],
        **options,
    )
    for stream in {*streams.values(), *files.values()}:
        os.close(stream) if isinstance(stream, int) else stream.close()
    if way == "terminal":
        closes = threading.Event()
        reader = threading.Thread(target=_read_until, args=(ours, closes))
        reader.start()
        server.signal(process, [(moments[0][0], 0)])  # signal 0 is none: this only waits
        closes.set()
        reader.join()
        os.close(ours)
        ours = None
    else:
        server.signal(process, moments)
    try:
        code = process.wait(_runs.LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        code = _runs.HUNG
    if ours is not None:
        os.close(ours)
    return server.outcome(code=code)


def _read_until(terminal, closes):
    """Read the output of a terminal until it closes."""
    os.set_blocking(terminal, False)
    while not closes.wait(0.01):
        try:
            os.read(terminal, 65536)
        except OSError:
            continue


def _begin(folder, kind, name):
    """Return the directory of a new run, or, for commands that read a run, of a copy of a finished one."""
    run = folder / name
    if kind in ("evaluate", "certify", "report"):
        home = folder / "home"
        if not home.exists():
            with _runs.Server(folder / "server-home") as server:
                server.run(f"train {HOME} {TINY} --run_dir {home}".split())
            for file in ("evaluation.json", "certificate.json", "report.html"):
                (home / file).unlink(missing_ok=True)
        shutil.copytree(home, run)
    return run


def _args(folder, kind, run):
    """Return the arguments of a command."""
    if kind in ("evaluate", "certify", "report"):
        return [kind, str(run)]
    if kind == "train":
        return _runs.train_args(folder, run)
    text = f"--text {folder / 'bottles.txt'}"
    commands = {
        "words": f"train --recipe words {text} --min_count 1 --d_model 8 --batch_size 8 --steps 8 --log_every 2"
        f" --save_every 4 --run_dir {run}",
        "finetune": f"train --recipe text {text} --init_from {folder / 'whole-train'} --batch_size 4 --steps 8"
        f" --log_every 2 --save_every 4 --run_dir {run}",
        "sweep": f"sweep {HOME} {TINY} --position sinusoidal,rotary --members 2 --run_dir {run}",
    }
    return commands[kind].split()


def _resume_args(folder, kind, run):
    """Return the arguments that resume or repeat a command."""
    if kind in ("train", "words", "finetune") and (run / "config.json").exists():
        return ["resume", str(run)]
    return _args(folder, kind, run)


def _end_of(kind, run):
    """Return all that is compared of a finished command."""
    if kind == "sweep":
        found = json.loads((run / "sweep.json").read_text())
        members = [{name: value for name, value in each.items() if name != "seconds"} for each in found["members"]]
        return {"members": members, "table": (run / "table.md").exists()}
    if kind == "evaluate":
        return {"evaluation": json.loads((run / "evaluation.json").read_text())}
    if kind == "certify":
        found = json.loads((run / "certificate.json").read_text())
        found.pop("seconds")
        return {"certificate": found}
    if kind == "report":
        return {"page": len((run / "report.html").read_text()) > 1000}
    return _runs.end_of(run)
