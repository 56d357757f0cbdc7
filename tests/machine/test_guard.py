"""Every way in which a process may fail for no fault of the program is one sentence and an exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apformer import errors
from apformer.machine.guard import guard

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


def shell(command, **environment):
    command = command.replace("python", sys.executable)
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT | environment, cwd=ROOT
    )


COMMAND = "python -m apformer --help"


def test_a_reader_that_has_had_enough_is_no_fault():
    done = shell(f"{{ {COMMAND}; echo rc $? >&2; }} | head -c 0")
    assert done.stderr == "rc 0\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output():
    done = shell(f"{COMMAND} > /dev/full")
    assert done.returncode == errors.DISK
    assert done.stderr == "apformer: No space left on device; see `apformer doctor` for disk and permissions\n"


def test_a_closed_standard_output():
    done = shell(f"{COMMAND} >&-")
    assert done.returncode == errors.DISK
    assert done.stderr == "apformer: standard output is closed: send it to a file, or to /dev/null\n"


def test_a_closed_standard_error_leaves_standard_output_alone():
    done = shell(f"{COMMAND} 2>&-")
    assert done.returncode == 0 and done.stdout.startswith(shell(COMMAND).stdout[:40])


def test_a_closed_standard_input():
    done = shell("python -m apformer predict --file - <&-")
    sentence = "apformer: standard input is closed: send it a prompt a line, or give --file FILE\n"
    assert (done.returncode, done.stdout, done.stderr) == (errors.DATA, "", sentence)


@pytest.mark.parametrize(("encoding", "printed"), [("utf-8", "né 数"), ("ascii", r"n\xe9 \u6570")])
def test_what_an_encoding_lacks_is_escaped(encoding, printed):
    program = r"from apformer.machine.guard import guard; guard('x', lambda: print('n\xe9 \u6570'))"
    environment = ENVIRONMENT | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert (done.returncode, done.stdout.decode(encoding), done.stderr) == (0, printed + "\n", b"")


def interrupted():
    raise KeyboardInterrupt


def refused():
    raise errors.UserError("--d_model 0 is out of range: give 1 or more", errors.USAGE)


@pytest.mark.parametrize(
    ("call", "exit_code", "said"),
    [
        (interrupted, 130, "x: stopped\n"),
        (refused, errors.USAGE, "x: --d_model 0 is out of range: give 1 or more\n"),
        (lambda: open("/none/file"), errors.DISK, "x: /none/file: No such file or directory; see `apformer doctor`"),
        (lambda: sys.exit(143), 143, ""),
        (lambda: None, 0, ""),
    ],
)
def test_each_fault_is_a_sentence_and_an_exit_code(call, exit_code, said, capsys):
    assert guard("x", call) == exit_code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(said) and err.count("\n") == bool(said)


def test_what_is_ours_to_mend_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        guard("x", lambda: 1 / 0)


NOISY = """
import sys
from apformer.machine.guard import guard
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
