"""Several processes train as one does, stop together, and end with a sentence where one of them is lost."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import jax
import numpy as np
import pytest

from apformer import cli, errors
from apformer.errors import UserError
from apformer.machine import processes
from apformer.runs import checkpoint, fit, restore

pytestmark = pytest.mark.long

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import jax, numpy as np
from apformer import cli
from apformer.commands import resume, train as command
from apformer.machine import processes
from apformer.machine.guard import guard
from apformer.runs import checkpoint, fit, restore

folder, port, count, index = Path(sys.argv[1]), *map(int, sys.argv[2:])
SMALL = "--digits 2 --min_difference 20 --max_difference 30 --d_model 16 --n_heads 2 --d_ff 16 --n_layers 1"
SMALL += " --batch_size 8 --prefix_rows 0 --hard_fraction 0 --rule adamw --steps 8 --log_every 2 --save_every 4"
whole, saved = fit.fit, []

def without_evaluation(path, settings, rows, state):
    whole(path, settings, rows, state, None)
    saved.append(path)

command.finish = without_evaluation

def train(name, *words):
    command.main([*SMALL.split(), "--run_dir", str(folder / name), *words])

def at_step(step, number):
    save = fit._save
    def save_and_signal(checkpoints, at, *args, **options):
        save(checkpoints, at, *args, **options)
        if at == step and index == count - 1:
            os.kill(os.getpid(), number)
    fit._save = save_and_signal

def all_of_it():
    train("spread", "--seed", "4")
    train("members", "--members", "4", "--seed", "3")
    if count == 1:
        return resume.main([str(folder / "lost")])
    at_step(4, signal.SIGTERM)
    try:
        train("stopped")
    except SystemExit as stop:
        (folder / f"stopped-{index}").write_text(str(stop.code))
    assert all(str(path).startswith(str(folder)) == processes.first() for path in saved)
    at_step(4, signal.SIGKILL)
    train("lost")

def run():
    if count == 1:
        return all_of_it()
    with processes.joined(("127.0.0.1", port), count, index, ["train"]):
        all_of_it()

code = guard("apformer", run)
processes.leave(code)
sys.exit(code)
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(folder, port, count, index, devices):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    command = [sys.executable, "-c", SCRIPT, *map(str, (folder, port, count, index))]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(*started):
    """What processes wrote to standard error until they ended."""
    try:
        return [process.communicate(timeout=400)[1] for process in started]
    finally:
        for process in started:
            process.kill()


def losses(path):
    return [json.loads(line)["loss"] for line in (path / "metrics.jsonl").read_text().splitlines()]


def params(path):
    settings = restore.load_settings(path)
    return checkpoint.load(path / "checkpoints", fit.abstract_state(settings))[1].params


def test_two_processes_train_as_one_with_as_many_devices(tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    port = free_port()
    pair = [start(together, port, 2, index, devices=2) for index in (0, 1)]
    said = ended(*pair)
    # Process 1 was killed while a fourth run trained; process 0 ends with a sentence.
    assert [process.returncode for process in pair] == [errors.LOST, -9], "\n".join(said)
    assert said[0].splitlines()[-1] == f"apformer: {processes.GONE}"
    # The run before was stopped, by a signal that process 1 alone got.
    assert [(together / f"stopped-{index}").read_text() for index in (0, 1)] == ["143", "143"]
    assert len(losses(together / "stopped")) == 3  # the steps that it ended with
    lost = together / "lost"
    assert sorted(entry.name for entry in (lost / "checkpoints").iterdir()) == ["4"]
    alone.mkdir()
    os.rename(lost, alone / "lost")

    one = start(alone, 0, 1, 0, devices=4)
    said = ended(one)
    assert one.returncode == 0, said
    assert losses(together / "spread") == pytest.approx(losses(alone / "spread"), abs=1e-6)
    assert losses(together / "members") == losses(alone / "members")
    assert jax.tree.all(jax.tree.map(np.array_equal, *(params(folder / "members") for folder in (together, alone))))
    assert len(losses(alone / "lost")) == 4


def indices(peers):
    for peer in peers.values():
        peer.close()
    return sorted(peers)


def meeting(*callers):
    """What each of the processes is told at a meeting: the connections it has, or (sentence, exit code)."""
    address = ("127.0.0.1", free_port())

    def come(caller):
        try:
            return indices(processes.meet(address, *caller))
        except UserError as fault:
            return str(fault).replace(str(address[1]), "PORT"), fault.exit_code

    with ThreadPoolExecutor() as pool:
        return list(pool.map(come, callers))


def test_all_processes_meet():
    words = ["train", "--steps", "8"]
    assert meeting(*((3, index, words) for index in range(3))) == [[1, 2], [0], [0]]


@pytest.mark.parametrize(
    ("others", "fault"),
    [
        ([(2, 1, ["resume"])], "process 1 has the command resume, process 0 train: give all the same"),
        ([(3, 1, ["train"])], "process 1 has --processes 3, process 0 2: give all the same"),
    ],
)
def test_processes_that_differ_are_named(others, fault):
    assert meeting((2, 0, ["train"]), *others) == [(fault, errors.USAGE)] * 2


def test_processes_of_another_version_are_named(monkeypatch):
    versions = iter(("0.10.2", "0.10.2", "0.10.1", "0.10.1"))
    monkeypatch.setattr(processes, "version", lambda name: next(versions))
    fault, code = meeting((2, 0, ["train"]), (2, 1, ["train"]))[0]
    assert code == errors.USAGE
    assert {"0.10.1", "0.10.2"} <= {*fault.replace(",", "").replace(":", "").split()}


def test_two_processes_with_one_number_are_refused():
    fault = "two processes have --process 1: number them 0 to 2", errors.USAGE
    assert meeting(*((3, index, ["train"]) for index in (0, 1, 1))) == [fault] * 3


def test_a_process_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 1)
    fault = "process 2 has not come within 1 s: start it", errors.LOST
    assert meeting(*((3, index, ["train"]) for index in (0, 1))) == [fault] * 2


def test_a_coordinator_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    silent = "--coordinator 127.0.0.1:PORT does not answer for 0.3 s (Connection refused)"
    remedy = "start process 0 on that machine, or open the port"
    assert meeting((2, 1, ["train"])) == [(f"{silent}: {remedy}", errors.LOST)]


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UserError) as refused:
        processes.meet(server.getsockname(), 2, 0, ["train"])
    assert "cannot be opened here (Address already in use)" in str(refused.value)
    assert refused.value.exit_code == errors.USAGE


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100 + b"\n",
        b"[" * 60_000 + b"\n",
        b'{"process": [1], "versions": 0}\n',
    ],
)
def test_a_stranger_at_the_meeting_changes_nothing(noise):
    address = ("127.0.0.1", free_port())
    with ThreadPoolExecutor() as pool:
        first = pool.submit(processes.meet, address, 2, 0, ["train"])
        with processes._call(address) as stranger:
            stranger.sendall(noise)
            with suppress(OSError):  # the first process may have hung up
                stranger.shutdown(socket.SHUT_WR)
            assert indices(processes.meet(address, 2, 1, ["train"])) == [0]
        assert indices(first.result()) == [1]


@pytest.fixture
def watched(monkeypatch):
    """The other end of the one connection of this process, whose watch ends with an exit code instead of a process."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(processes, "_peers", {1: ours})
    monkeypatch.setattr(processes, "_lost", processes.threading.Event())
    monkeypatch.setattr(processes, "GRACE", 0)
    monkeypatch.setattr(processes, "SILENCE", 2)

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(processes, "leave", end)
    with ours, theirs:
        yield theirs


@pytest.mark.parametrize("ends", [socket.socket.close, lambda other: None], ids=["closed", "silent"])
def test_the_watch_ends_a_process_whose_peer_is_lost(watched, ends, capfd):
    ends(watched)
    with pytest.raises(SystemExit) as stop:
        processes._watch()
    assert stop.value.code == errors.LOST and processes._lost.is_set()
    assert processes.GONE in capfd.readouterr().err


def test_a_peer_that_says_goodbye_is_not_lost(watched):
    watched.sendall(processes.ALIVE + processes.GOODBYE)
    processes._watch()
    assert not processes._lost.is_set()
    assert watched.recv(10) == processes.ALIVE


PLACE = ["--coordinator", "127.0.0.1:1234", "--processes", "2", "--process", "1"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["train", *PLACE[:4]], "--process is missing"),
        (["train", "--process", "0"], "--coordinator is missing"),
        (["train", "--coordinator", "host", *PLACE[2:]], "--coordinator host is no address: give HOST:PORT"),
        (["train", "--coordinator", "host:0", *PLACE[2:]], "--coordinator host:0 is no address"),
        (["train", *PLACE[:3], "0", *PLACE[4:]], "--processes 0 is out of range: give 1 to 4096"),
        (["train", *PLACE[:5], "2"], "--process 2 is out of range: give 0 to 1"),
        (["evaluate", *PLACE], "`apformer evaluate` takes no --coordinator"),
    ],
)
def test_flags_that_place_no_process_are_refused(words, fault, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for variable in processes.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    assert cli.main(words) == errors.USAGE
    assert fault in capsys.readouterr().err


def test_devices_are_of_the_command_that_all_processes_compare(monkeypatch):
    told = []

    def meet(address, count, index, words):
        told.append(words)
        raise errors.UserError("enough", errors.LOST)

    monkeypatch.setattr(processes, "meet", meet)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    assert cli.main(["train", "--devices", "1", "--steps=8", *PLACE]) == errors.LOST
    assert told == [["train", "--steps=8", "--devices=1"]]


def test_the_environment_can_place_a_process(monkeypatch):
    none = dict.fromkeys(processes.VARIABLES)
    assert processes.together(none) is None
    for variable, value in zip(processes.VARIABLES.values(), PLACE[1::2], strict=True):
        monkeypatch.setenv(variable, value)
    assert processes.together(none) == (("127.0.0.1", 1234), 2, 1)
    assert processes.together(none | {"process": "0"}) == (("127.0.0.1", 1234), 2, 0)  # a flag comes first
