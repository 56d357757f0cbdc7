"""Stop signals: SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) end a command with 128 + their number.

A command ends at once, with one sentence: its files are written whole or not at all, so nothing that was saved is lost.
Work that can be kept is `deferred`: the first signal waits until it is saved, the second ends the command at once.

A thread answers the signals, so that the answer does not wait for the device or the compiler, in which the main thread
may be for minutes. A signal that is ignored when the command begins, as SIGHUP under nohup, stays ignored.
"""

import os
import select
import signal
import socket
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GOES_ON = "nothing that was saved is lost: `apformer resume` goes on with a run, other commands are given again"

_deferred = []  # a list for each `deferred` that is entered
_lock = threading.Lock()  # of this list
_answered = threading.Semaphore(0)
_heard = []  # [the program whose signals are heard, its standard error]


@contextmanager
def heard(program):
    """Within, a stop signal ends the process with a sentence of `program`; where work is deferred, the second does.

    Does nothing outside the main thread, and where they are heard already.
    """
    if _heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = _take()
    wakes = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    _heard[:] = program, sys.stderr  # while flags are read, sys.stderr is another
    listener = threading.Thread(target=_listen, args=(ours,), daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)
        theirs.close()
        listener.join(1)
        ours.close()
        _heard.clear()


@contextmanager
def deferred():
    """A list that receives the number of the first stop signal, so that what is in hand is finished and saved before.

    Whoever defers ends the process with 128 + that number; if it came too late for that, the end of this context does.
    A second signal ends the process at once.
    """
    received = []
    with nullcontext() if _heard else heard("apformer"):
        if _heard and threading.current_thread() is threading.main_thread():
            _take()  # again, since jax.distributed takes SIGTERM for itself
        _deferred.append(received)
        try:
            yield received
        finally:
            with _lock:
                _deferred[:] = [other for other in _deferred if other is not received]  # equal lists are others
        if received:
            _say(f"{_heard[0]}: stopped by {signal.Signals(received[0]).name}; {GOES_ON}")
            sys.exit(128 + received[0])


def _take():
    """Take the stop signals that are not ignored; the handlers before."""
    taken = [number for number in NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, _wait) for number in taken}


def _wait(*_):
    """Python's part in a signal, once the main thread is back in Python: wait until it is answered."""
    _answered.acquire(timeout=1)


def _listen(connection):
    """Answer the signals whose numbers come over a connection, until it is closed."""
    with suppress(OSError):
        while numbers := connection.recv(64):
            for number in numbers:
                if number in NUMBERS:
                    with _lock:
                        _answer(number)
                    _answered.release()


def _answer(number):
    if not _deferred or any(_deferred):
        again = "at once" if _deferred else f"by {signal.Signals(number).name}"
        _say(f"{_heard[0]}: stopped {again}; {GOES_ON}")
        os._exit(128 + number)
    for received in _deferred:
        received.append(number)
    _say("stopping after the work in hand is saved; Ctrl-C or the signal again stops at once, without saving")


def _say(sentence):
    """Print a line to standard error, unless that is gone, or a pipe that nobody reads."""
    try:
        place = _heard[1].fileno()
    except (OSError, ValueError, AttributeError):
        with suppress(OSError, ValueError):
            print(sentence, file=_heard[1])  # a notebook's, which is no file
        return
    with suppress(OSError):
        if select.select([], [place], [], 0)[1]:
            os.write(place, f"{sentence}\n".encode(errors="backslashreplace"))
