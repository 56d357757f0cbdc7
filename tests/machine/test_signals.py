"""A stop signal ends a command at once with a sentence, or once the work in hand is saved; a second one at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apformer.machine import signals

ROOT = Path(__file__).parents[1]
STOPPING = "stopping after the work in hand is saved; Ctrl-C or the signal again stops at once, without saving\n"
PROGRAM = """
import signal, sys, time
from apformer.machine.guard import guard
from apformer.machine import signals
signal.signal(signal.SIGINT, signal.default_int_handler)

def wait():
    print("ready", flush=True)
    # In C, as the main thread is while the device or the compiler works.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        sum(range(10**6))

def defer():
    with signals.deferred() as received:
        print("ready", flush=True)
        while not received:
            time.sleep(0.01)
        print("saving", flush=True)
        if sys.argv[2] == "slow":
            time.sleep(20)
        sys.exit(128 + received[0])

def nest():
    with signals.deferred() as received:
        with signals.deferred():
            pass
        print("ready", flush=True)
        while not received:
            time.sleep(0.01)
        sys.exit(128 + received[0])

sys.exit(guard("x", {"wait": wait, "defer": defer, "nest": nest}[sys.argv[1]]))
"""


def begin(*words, shell=(), **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*shell, sys.executable, "-c", PROGRAM, *words], env=environment, **streams | options)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", signals.NUMBERS)
def test_a_command_ends_at_once_with_a_sentence(number):
    with begin("wait") as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=15)
    assert process.returncode == 128 + number
    assert said == f"x: stopped by {signal.Signals(number).name}; {signals.GOES_ON}\n"


@pytest.mark.parametrize("number", signals.NUMBERS)
def test_work_that_is_deferred_is_finished_first(number):
    with begin("defer", "quick") as process:
        process.send_signal(number)
        out, said = process.communicate(timeout=15)
    assert (process.returncode, out) == (128 + number, "saving\n")
    assert said == STOPPING


def test_work_that_defers_hears_signals_after_work_within_it_has_ended():
    """As training does, once a certificate was tried."""
    with begin("nest") as process:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=15)
    assert (process.returncode, said) == (128 + signal.SIGTERM, STOPPING)


def test_a_second_signal_stops_at_once():
    with begin("defer", "slow") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "saving\n"
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=15)
    assert process.returncode == 128 + signal.SIGHUP and said.splitlines()[1].startswith("x: stopped at once; ")


def test_what_is_ignored_stays_ignored():
    with begin("wait", shell=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")) as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=15)
    assert process.returncode == 143


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in signals.NUMBERS]
    with pytest.raises(SystemExit) as stopped, signals.heard("x"), signals.deferred() as received:
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
    assert stopped.value.code == 143  # nobody else has ended the process
    with pytest.raises(SystemExit), signals.deferred() as received:
        signal.raise_signal(signal.SIGHUP)
        assert received == [signal.SIGHUP]
    assert [signal.getsignal(number) for number in signals.NUMBERS] == before and signal.set_wakeup_fd(-1) == -1
