"""Several processes train as one does, stop together, and end with a sentence where one of them is lost."""

import contextlib
import os
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jaxlib import _jax

from apformer import cli
from apformer.errors import LOST, USAGE
from apformer.machine import processes
from apformer.runs import checkpoint, fit, metrics, restore

pytestmark = [pytest.mark.long, pytest.mark.skipif(not processes.WATCHES, reason="jax before 0.8.1")]

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import jax, numpy as np
from apformer import cli
from apformer.commands import resume, train as command
from apformer.machine import process, processes
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
    steps = fit.run_steps
    def signal_and_run(state, *args):
        if int(state.step) == step and index == count - 1:
            os.kill(os.getpid(), number)
        return steps(state, *args)
    fit.run_steps = signal_and_run

def all_of_it():
    train("spread", "--seed", "4")
    train("members", "--members", "4", "--seed", "3")
    if count == 1:
        return resume.resume(resume.Resume(str(folder / "lost")))
    at_step(4, signal.SIGTERM)
    try:
        train("stopped")
    except SystemExit as stop:
        (folder / f"stopped-{index}").write_text(str(stop.code))
    assert all(str(path).startswith(str(folder)) == (index == 0) for path in saved)
    at_step(4, signal.SIGKILL)
    train("lost")

def run():
    if count == 1:
        return all_of_it()
    with processes.joined(f"127.0.0.1:{port}", str(count), str(index), ["train"]):
        all_of_it()

process.end(process.guard("apformer", run))
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
        return [process.communicate(timeout=900)[1] for process in started]
    finally:
        for process in started:
            process.kill()


def losses(path):
    return [line["loss"] for line in metrics.read_metrics(path)]


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
    assert [process.returncode for process in pair] == [LOST, -9], "\n".join(said)
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


MEETS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
from apformer import cli
from apformer.commands import train
from apformer.machine import process, processes

processes.PATIENCE = 3
train.main = lambda args: processes.most(7)
process.end(cli.main(["train", *sys.argv[1:]]))
"""


def meeting(*callers):
    """What processes of other words say, and their exit codes."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEETS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words in callers
    ]
    said = ended(*started)
    return [process.returncode for process in started], said


def at(place, index, *more, count=2):
    return ["--coordinator", place, "--processes", str(count), "--process", str(index), *more]


def test_processes_of_other_flags_are_named():
    place = f"127.0.0.1:{free_port()}"
    codes, said = meeting(at(place, 0), at(place, 1, "--devices", "1"))
    fault = "apformer: process 1 has other versions, --processes or flags than process 0: give all the same"
    assert codes == [USAGE] * 2 and all(lines.splitlines()[-1] == fault for lines in said)


@pytest.mark.parametrize("host", ["[::1]", socket.gethostname()])
def test_processes_meet_by_every_name_and_behind_a_proxy(host, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    place = f"{host}:{free_port()}"
    assert meeting(at(place, 0), at(place, 1)) == ([0, 0], ["", ""])


@pytest.mark.parametrize(
    ("own", "coordinator", "address"),
    [
        ("127.0.1.1", "10.0.0.1", "10.0.0.2"),  # as its route to the coordinator says
        ("127.0.1.1", "127.0.1.1", "192.168.0.5"),  # of process 0, whose own name is the coordinator's
        ("192.168.0.5", "10.0.0.1", None),
    ],
)
def test_a_process_is_reached_where_its_own_name_is_a_loopback_address(own, coordinator, address, monkeypatch):
    routes = {"10.0.0.1": "10.0.0.2", "127.0.1.1": "127.0.0.1", "192.0.2.1": "192.168.0.5"}

    class Caller(contextlib.AbstractContextManager):
        def __init__(self, *kind):
            pass

        def __exit__(self, *fault):
            pass

        def connect(self, place):
            self.place = place

        def getsockname(self):
            return routes[self.place[0]], 1

    monkeypatch.setattr(socket, "gethostbyname", {socket.gethostname(): own}.__getitem__)
    monkeypatch.setattr(socket, "socket", Caller)
    monkeypatch.setattr(_jax, "make_gloo_tcp_collectives", dict)
    processes._be_reached(coordinator, 80)
    assert _jax.make_gloo_tcp_collectives() == ({"hostname": address} if address else {})


@pytest.mark.skipif(sys.platform != "linux", reason="sockets without a file are of Linux")
def test_two_processes_of_one_number_are_told_before_they_meet():
    place = f"127.0.0.1:{free_port()}"
    codes, said = meeting(at(place, 1), at(place, 1))
    assert sorted(codes) == [USAGE, LOST]
    assert "--process 1 is that of another process on this machine: give each its own" in said[codes.index(USAGE)]


def test_processes_that_find_nobody_say_so():
    """No coordinator, one that is a stranger, and a coordinator whose other process does not come."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        places = [f"127.0.0.1:{port}" for port in (free_port(), stranger.getsockname()[1], free_port())]
        codes, said = meeting(at(places[0], 1), at(places[1], 1), at(places[2], 0))
    assert codes == [LOST] * 3
    for place, lines in zip(places, said, strict=True):
        assert lines.startswith(f"apformer: not all processes came to {place} within 3 s: start all of them")
        assert lines.count("\n") == 1


PLACE = ["--coordinator", "127.0.0.1:1234", "--processes", "2", "--process", "1"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["train", "--process", "0"], "--coordinator is missing: give HOST:PORT"),
        (["train", "--coordinator", "host:x", *PLACE[2:]], "cannot join others at host:x .no whole number: 'x'.: "),
        (["train", "--coordinator", "nobody.invalid:80", *PLACE[2:]], "at nobody.invalid:80 .*not known"),
        (["evaluate", *PLACE], "`apformer evaluate` takes no --coordinator"),
    ],
)
def test_flags_that_place_no_process_are_refused(words, fault, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for variable in cli.ADDRESS.values():
        monkeypatch.delenv(variable, raising=False)
    assert cli.main(words) == USAGE
    said = capsys.readouterr().err
    assert re.search(fault, said) and said.count("\n") == 1


def test_what_jax_refuses_is_a_sentence():
    codes, said = meeting(PLACE[:4], ["--coordinator", "auto"], [*PLACE[:5], "2"])
    assert codes == [USAGE] * 3
    for lines, fault in zip(said, ("process id", "coordinator_address", "process_id < num_processes"), strict=True):
        assert re.search(f"cannot join others at .*{fault}.*: give --coordinator HOST:PORT", lines)
        assert lines.count("\n") == 1


def test_jax_finds_what_slurm_says(monkeypatch):
    slurm = {"JOB_ID": "77", "STEP_NODELIST": "localhost", "STEP_NUM_TASKS": "1", "NTASKS": "1"}
    for name, value in (slurm | {"PROCID": "0", "LOCALID": "0"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert meeting(["--coordinator", "auto"]) == ([0], [""])


def test_a_port_that_is_taken_is_named(fails):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        fails("Address already in use", USAGE, "train", *at(place, 0))


def test_the_environment_can_place_a_process(monkeypatch):
    told = []
    monkeypatch.setattr(processes, "joined", lambda *given: told.append(given))
    for variable, value in zip(cli.ADDRESS.values(), PLACE[1::2], strict=True):
        monkeypatch.setenv(variable, value)
    given = dict.fromkeys(cli.VALUES)
    cli._joined(["train"], given)
    cli._joined(["train"], given | {"process": "0"})  # a flag comes first
    assert told == [("127.0.0.1:1234", "2", number, ["train", "--devices=None"]) for number in ("1", "0")]
