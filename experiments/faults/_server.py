"""Run commands of apformer one after the other: `python _server.py` reads a JSON request from each line of its input.

With `fork`, a command runs in a child process, which can be killed; it starts with all modules imported and nothing
compiled. Otherwise it runs in this process, which keeps what it compiles. A request is {args, folder, fork, signals,
fault, clock, streams}, and the answer {code, seconds, calls, fired, kinds}, where code is below 0 for a signal.
`python _server.py REQUEST` runs one command in a new process.

Files in `folder`: out and err hold what was printed; saved lists the steps on the disk after each save.
"""

import ctypes
import fcntl
import importlib
import json
import os
import signal
import sys
import termios
import time
import traceback
from contextlib import suppress
from pathlib import Path

FAULTS = "none kill full broken readonly short fsync lost shifted elsewhere".split()


def main():
    if len(sys.argv) > 1:
        if sys.stdin.isatty() and os.getsid(0) == os.getpid():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # make it the controlling terminal
        os._exit(command(json.loads(sys.argv[1])))
    answers = os.fdopen(os.dup(1), "w")
    for name in "cli commands.train commands.resume commands.certify runs.restore".split():
        importlib.import_module(f"apformer.{name}")
    importlib.import_module("matplotlib.pyplot")
    sys.modules["apformer.runs.checkpoint"].orbax()
    for line in sys.stdin:
        request = json.loads(line)
        began, facts = time.monotonic(), {}
        if request["fork"]:
            code = in_child(request)
        else:
            code = command(request)
            facts = arm(None)
        seconds = time.monotonic() - began
        print(json.dumps({"code": code, "seconds": seconds} | facts), file=answers, flush=True)


def in_child(request):
    """Run a command in a child process, send its signals on time, and return its exit code."""
    child, ready = os.fork(), Path(request["folder"], "ready")
    if not child:
        os._exit(command(request))
    began, waiting = time.monotonic(), sorted(request["signals"], reverse=True)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if waiting and waiting[-1][1] != signal.SIGKILL and not ready.exists():
            began = time.monotonic()
        while waiting and time.monotonic() - began >= waiting[-1][0]:
            os.kill(child, waiting.pop()[1])
        time.sleep(0.002)


def command(request):
    """Run a command in this process and return its exit code; create `ready` once it handles stop signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a background job may ignore some
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    from apformer.machine import process

    folder, before = Path(request["folder"]), [os.dup(stream) for stream in (1, 2)]
    if request["streams"]:
        for stream, name in ((1, "out"), (2, "err")):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, stream)
            os.close(file)
    with process.heard("apformer"):
        (folder / "ready").touch()
        try:
            return _run_with_fault(request, folder)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            if not request["fork"]:
                with suppress(OSError):
                    sys.stdout.flush()
                sys.stderr.flush()
            for stream, old in zip((1, 2), before, strict=True):
                os.dup2(old, stream)
                os.close(old)


def _run_with_fault(request, folder):
    """Run a command under its fault and return its exit code; append the steps on the disk to `saved`."""
    from apformer import cli
    from apformer.machine.process import guard
    from apformer.runs import checkpoint, selection

    wait, clock = checkpoint.Checkpoints.wait, time.time

    def wait_and_record(self):
        wait(self)
        with open(folder / "saved", "a") as saved:
            saved.writelines(f"{step}\n" for step in selection.steps(self.folder))

    checkpoint.Checkpoints.wait = wait_and_record
    if request["clock"]:
        time.time = lambda: clock() + request["clock"]
    try:
        if request["fault"]:
            arm(*request["fault"])
        if request["args"][0] == "sweep":
            from apformer.commands.sweep import main as sweep

            return guard("sweep", lambda: sweep(request["args"][1:]))
        return cli.main(request["args"])
    finally:
        checkpoint.Checkpoints.wait, time.time = wait, clock


def arm(path, fault="none", when=0, seed=0):
    """Start to count the system calls below a folder, with a fault; with path None, stop and return the counts."""
    try:
        shim = ctypes.CDLL(None)
        shim.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    except AttributeError:
        return {}
    if path is not None:
        shim.faults_arm(path.encode(), FAULTS.index(fault), when, seed)
        return {}
    shim.faults_kinds.restype = ctypes.c_char_p
    found = shim.faults_count(), bool(shim.faults_fired()), shim.faults_kinds().decode()
    shim.faults_arm(b"", 0, 0, 0)
    return dict(zip(("calls", "fired", "kinds"), found, strict=True))


if __name__ == "__main__":
    main()
