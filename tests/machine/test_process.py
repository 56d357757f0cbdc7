"""Faults and stop signals end a command with one sentence; compiled programs that are damaged or foreign never run."""

import os
import re
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from apformer.errors import DATA, DISK, USAGE, UserError
from apformer.machine import process
from apformer.machine.process import guard
from tests.helpers.own_process import ROOT, python

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
COMMAND = "python -m apformer --help"
has_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")


def shell(command):
    command = command.replace("python", sys.executable)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT)


# Faults


def test_a_reader_that_has_had_enough_is_no_fault():
    done = shell(f"{{ {COMMAND}; echo rc $? >&2; }} | head -c 0")
    assert done.stderr == "rc 0\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "said"),
    [
        pytest.param(f"{COMMAND} > /dev/full", DISK, "No space left on device; see `apformer doctor`", marks=has_full),
        (f"{COMMAND} >&-", DISK, "standard output is closed: send it to a file, or to /dev/null\n"),
        ("python -m apformer predict --file - <&-", DATA, "standard input is closed: send it a prompt a line"),
    ],
)
def test_a_stream_that_is_full_or_closed_is_a_sentence(command, exit_code, said):
    done = shell(command)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (exit_code, "", 1)
    assert done.stderr.startswith(f"apformer: {said}")


def test_a_closed_standard_error_leaves_standard_output_alone():
    done = shell(f"{COMMAND} 2>&-")
    assert done.returncode == 0 and done.stdout.startswith("usage: apformer COMMAND")


def test_what_an_encoding_lacks_is_escaped():
    program = r"from apformer.machine.process import guard; guard('x', lambda: print('n\xe9 \u6570'))"
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, rb"n\xe9 \u6570" + b"\n", b"")


def interrupted():
    raise KeyboardInterrupt


def refused():
    raise UserError("--d_model 0 is out of range: give 1 or more", USAGE)


@pytest.mark.parametrize(
    ("call", "exit_code", "said"),
    [
        (interrupted, 130, "x: stopped\n"),
        (refused, USAGE, "x: --d_model 0 is out of range: give 1 or more\n"),
        (lambda: open("/none/file"), DISK, "x: /none/file: No such file or directory; see `apformer doctor`"),
        (lambda: sys.exit(143), 143, ""),
        (lambda: sys.exit("no"), USAGE, "x: no\n"),
        (lambda: None, 0, ""),
    ],
)
def test_each_fault_is_a_sentence_and_an_exit_code(call, exit_code, said, capsys):
    assert guard("x", call) == exit_code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(said) and err.count("\n") == bool(said)


def too_large():
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.\nmore")


def too_large_for_numpy():
    np.empty(2**58)


def transferred():
    with jax.transfer_guard("disallow"):
        jax.jit(lambda x: x + 1)(np.ones(3))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (too_large, r"not enough memory \(.*allocating 99 bytes.*--batch_size .*--accumulate, --remat"),
        (too_large_for_numpy, r"not enough memory \(Unable to allocate 2.00 EiB.*--batch_size"),
        (transferred, r"JAX_TRANSFER_GUARD is set \(Disallowed host-to-device transfer\).*: unset it"),
    ],
)
def test_what_the_machine_refuses_is_a_sentence(call, said, capsys):
    assert guard("x", call) == USAGE
    err = capsys.readouterr().err
    assert re.search(said, err) and err.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_a_platform_that_is_not_here_is_named(command):
    done = python("-m", "apformer", command, code=USAGE, cwd="/", JAX_PLATFORMS="rocm")
    assert done.stderr.count("\n") == 1
    assert re.search(r"JAX does not start \(.*rocm.*\): set JAX_PLATFORMS=cpu", done.stderr)


def test_flags_are_read_without_docstrings():
    done = python("-OO", "-m", "apformer", "train", "--help")
    assert "--batch_size" in done.stdout and done.stderr == ""


def test_what_is_ours_to_mend_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        guard("x", lambda: 1 / 0)


NOISY = """
import sys
from apformer.machine.process import guard
guard("x", lambda: print("." * 99, file=sys.stderr))
print("done")
"""


@pytest.mark.parametrize("state", ["full", "closed"])
def test_nothing_stops_for_a_standard_error_that_nobody_reads(state):
    ours, theirs = os.pipe()
    if state == "closed":
        os.close(ours)
    else:
        os.set_blocking(theirs, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(theirs, b"." * 1024)
        os.set_blocking(theirs, True)
    done = subprocess.run(
        [sys.executable, "-c", NOISY], stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, b"done\n")
    os.close(theirs)
    if state == "full":
        os.close(ours)


# Stop signals


STOPPING = "stopping after the work in hand is saved; Ctrl-C or the signal again stops at once, without saving\n"
PROGRAM = """
import signal, sys, time
from apformer.machine.process import deferred, guard
signal.signal(signal.SIGINT, signal.default_int_handler)

def wait():
    print("ready", flush=True)
    # In C, as the main thread is while the device or the compiler works.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        sum(range(10**6))

def defer():
    with deferred() as received:
        with deferred():  # as certifying is within training
            pass
        print("ready", flush=True)
        while not received:
            time.sleep(0.01)
        print("saving", flush=True)
        if sys.argv[2] == "slow":
            time.sleep(20)
        sys.exit(128 + received[0])

sys.exit(guard("x", {"wait": wait, "defer": defer}[sys.argv[1]]))
"""


def begin(*words, shell=()):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen([*shell, sys.executable, "-c", PROGRAM, *words], env=ENVIRONMENT, **streams)
    assert started.stdout.readline() == "ready\n"
    return started


@pytest.mark.parametrize("number", process.STOPS)
def test_a_command_ends_at_once_with_a_sentence(number):
    with begin("wait") as command:
        command.send_signal(number)
        _, said = command.communicate(timeout=15)
    assert command.returncode == 128 + number
    assert said == f"x: stopped by {signal.Signals(number).name}; {process.GOES_ON}\n"


@pytest.mark.parametrize("number", process.STOPS)
def test_work_that_is_deferred_is_finished_first(number):
    with begin("defer", "quick") as command:
        command.send_signal(number)
        out, said = command.communicate(timeout=15)
    assert (command.returncode, out, said) == (128 + number, "saving\n", STOPPING)


def test_a_second_signal_stops_at_once():
    with begin("defer", "slow") as command:
        command.send_signal(signal.SIGTERM)
        assert command.stdout.readline() == "saving\n"
        command.send_signal(signal.SIGHUP)
        _, said = command.communicate(timeout=15)
    assert command.returncode == 128 + signal.SIGHUP and said.splitlines()[1].startswith("x: stopped at once; ")


def test_what_is_ignored_stays_ignored():
    with begin("wait", shell=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")) as command:
        command.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert command.poll() is None
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=15)
    assert command.returncode == 143


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in process.STOPS]
    with pytest.raises(SystemExit) as stopped, process.heard("x"), process.deferred() as received:
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
    assert stopped.value.code == 143  # nobody else has ended the process
    with pytest.raises(SystemExit), process.deferred() as received:
        signal.raise_signal(signal.SIGHUP)
        assert received == [signal.SIGHUP]
    assert [signal.getsignal(number) for number in process.STOPS] == before and signal.set_wakeup_fd(-1) == -1


# Compiled programs


KEEPS = """
import sys
import jax, jax.numpy as jnp
from apformer.machine import process
process.keep_programs(sys.argv[1])
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
value = jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.arange(9.0).reshape(3, 3))
print(jax.config.jax_compilation_cache_dir, repr(float(value)), hits.count("/jax/compilation_cache/cache_hits"))
"""


def run(place, cwd=None):
    """Return the folder, the value, how many programs were found, and what was said, of a process of its own."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    env = {name: value for name, value in ENVIRONMENT.items() if name not in unset}
    command = [sys.executable, "-W", "error", "-c", KEEPS, str(place)]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=True)
    folder, value, hits = done.stdout.split()
    return folder, value, int(hits), done.stderr


@pytest.mark.long
def test_a_second_process_compiles_nothing_unless_programs_are_damaged(tmp_path):
    """They are other than their seals say, or cut and have none."""
    folder, value, hits, _ = run(tmp_path)
    programs = process._programs(tmp_path)
    assert hits == 0 and len(programs) > 1 and all(str(path).startswith(folder) for path in programs)
    assert run(tmp_path) == (folder, value, len(programs), "")
    for number, path in enumerate(programs):
        data, middle = path.read_bytes(), path.stat().st_size // 2
        if number % 2:
            path.write_bytes(data[:middle])
            process._seal_of(path).unlink()
        else:
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    assert run(tmp_path)[1:] == (value, 0, "")


def program(path, age, size=10, seal=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    if seal is not None:
        process._seal_of(path).write_bytes(process.sha256(path).encode() if seal else b"\xff" * 64)


def test_old_or_damaged_programs_are_removed_and_the_oldest_of_all_kinds(tmp_path, monkeypatch):
    """And nothing else that lies in a folder which the user named."""
    ours, other = tmp_path / process._kind(), tmp_path / "jax-1-jaxlib-1-0123456789ab"
    program(ours / "new without a seal", age=60)
    program(ours / "old without a seal", age=2 * process.DAY)
    program(ours / "old", age=3 * process.DAY, seal=True)
    program(ours / "of a damaged seal", age=60, seal=False)
    program(other / "of another kind", age=4 * process.DAY)
    program(other / "oldest", age=9 * process.DAY, seal=True)
    program(tmp_path / "thesis" / "chapter.tex", age=99 * process.DAY)
    monkeypatch.setattr(process, "LIMIT", 50)
    process._tidy(ours)
    left = {"new without a seal", "old", "old.sha256", "of another kind", "chapter.tex"}
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == left


def test_programs_of_another_processor_or_version_lie_elsewhere(monkeypatch):
    here = process._kind()
    monkeypatch.setattr(process, "version", lambda name: "1.2.3")
    other = process._kind()
    monkeypatch.setattr(process.platform, "machine", lambda: "other")
    assert len({here, other, process._kind()}) == 3
    assert jax.__version__ in here


def test_where_programs_are_kept(tmp_path, monkeypatch, capsys):
    """A folder that cannot be written costs a sentence; the home of nobody is a name like others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process.atexit, "register", lambda call: None)
    (tmp_path / "file").touch()
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        process.keep_programs("none")
        monkeypatch.setenv(process.CACHE, str(tmp_path / "file" / "folder"))
        process.keep_programs()
        process.keep_programs()
        assert jax.config.jax_compilation_cache_dir is None
        said = capsys.readouterr().err
        process.keep_programs("~nobody-at-all/x")
        assert jax.config.jax_compilation_cache_dir.startswith(str(tmp_path / "~nobody-at-all" / "x"))
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        process._programs_before.clear()
    assert said.startswith(f"cannot keep compiled programs in {tmp_path}") and said.count("\n") == 1
    assert f"with --compilation_cache or {process.CACHE}" in said
