"""A run's directory is new, whole and its own; what is wrong with one is said in a sentence with an exit code."""

import errno
import json
import math
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from apformer import files
from apformer.errors import CHECKPOINT, DISK, LOCKED, USAGE
from apformer.runs import directory, metrics
from tests.helpers.own_process import ROOT, python
from tests.helpers.refusals import refused

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def make_run(path):
    """A directory with what `find` looks for."""
    (path / "checkpoints" / "5").mkdir(parents=True)
    (path / "checkpoints" / "5" / "MANIFEST.json").touch()
    files.write_json(path / "config.json", {})
    return path


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The folder of runs that are given no directory."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def test_each_run_has_a_new_directory_and_latest_names_it(root):
    paths = [directory.create("exact") for _ in range(4)]
    assert len(set(paths)) == 4
    for path in paths:
        assert re.fullmatch(r"\d{8}-\d{6}-exact(-\d)?", path.name)
    latest = root / "latest"
    assert os.readlink(latest) == paths[-1].name
    make_run(paths[-1])
    assert directory.find() == directory.find(str(latest)) == paths[-1]
    assert {path.name for path in root.iterdir()} == {"latest", *(path.name for path in paths)}


def test_on_a_file_system_without_links_the_latest_run_is_found_by_its_name(root, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "symlink", unsupported)
    with refused(USAGE, "runs has no latest run: train one"):
        directory.find_begun()
    for _ in range(2):
        path = directory.create("exact")
        (path / "config.json").write_text('{"flags": {}}')
    assert directory.find_begun() == directory.find_begun(root / "latest") == path


def test_a_copy_of_runs_without_links_takes_new_runs(root):
    make_run(root / "20200101-000000-exact")
    make_run(root / "latest")  # a copy of that run
    path = directory.create("exact")
    make_run(path)
    assert directory.find() == directory.find(root / "latest") == path and os.listdir(path).count(".latest") == 0


def test_run_dir_may_be_new_or_empty(tmp_path):
    path = tmp_path / "new and/deep/données-数"
    assert directory.create("exact", path) == path
    directory.create("exact", path)  # now it exists, and is empty
    with directory.lock(path):
        directory.create("exact", path)  # a lock alone is no run
    assert not (tmp_path / "latest").exists()


@pytest.mark.parametrize(
    ("file", "said"), [("checkpoints", "already holds a run: resume it"), ("x", "holds files, and none is overwritten")]
)
def test_nothing_is_ever_overwritten(tmp_path, file, said):
    (tmp_path / file).touch()
    with refused(USAGE, f"{tmp_path} {said}"):
        directory.create("exact", tmp_path)


def a_file(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file"


def read_only(tmp_path):
    (tmp_path / "read only").mkdir(mode=0o500)
    return tmp_path / "read only"


@pytest.mark.parametrize(
    "place",
    [a_file, lambda tmp_path: tmp_path / ("x" * 300), pytest.param(read_only, marks=not_root)],
    ids=["file", "long name", "read only"],
)
def test_a_place_that_cannot_be_written(tmp_path, monkeypatch, place):
    path = place(tmp_path)
    monkeypatch.setattr(directory, "RUNS", path)
    for run_dir in (path, None):
        with refused(DISK, "cannot write .*: fix that, or use another directory"):
            directory.create("exact", run_dir)
    with refused(USAGE, "is not a directory|holds no run"):
        directory.find(path)


def test_too_little_space_is_seen_before_training(tmp_path, root, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    assert directory.create("exact", tmp_path / "a", needs=3_000_000).is_dir()
    for run_dir in (tmp_path / "b", None):
        with refused(DISK, "has 3 MB free and this takes about 4 MB: free some space"):
            directory.create("exact", run_dir, needs=3_000_001)
    assert not list(root.iterdir())


def test_a_latest_run_that_is_gone_is_named(root):
    latest = root / "latest"
    root.mkdir()
    with refused(USAGE, "has no latest run: train one .* or name the directory"):
        directory.find()
    latest.symlink_to("two")
    for run in (None, latest):
        with refused(USAGE, "latest names .*two, which is gone"):
            directory.find(run)


def test_what_is_missing_from_a_run_is_said(tmp_path):
    with refused(USAGE, "absent is not a directory"):
        directory.find(tmp_path / "absent")
    with refused(USAGE, r"holds no run \(no config.json\)"):
        directory.find(tmp_path)
    files.write_json(tmp_path / "config.json", {})
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    again = f"`apformer resume {tmp_path}` begins it anew"
    with refused(CHECKPOINT, f"{tmp_path} holds no checkpoint: if it is a run, {again}"):
        directory.find(tmp_path)
    (checkpoints / "5.corrupt").mkdir()  # there was one: what is left of it is not to be trained over
    assert directory.find(tmp_path) == tmp_path
    shutil.rmtree(checkpoints)
    checkpoints.touch()  # which cannot be read as a folder: that there was none is not known
    with refused(DISK, "cannot read"):
        directory.find(tmp_path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "value.json"
    files.write_json(path, 1)
    with pytest.raises(TypeError):
        files.write_json(path, object())
    monkeypatch.setattr(files, "fsync", lambda _: os.open(tmp_path / "none", os.O_RDONLY))
    with refused(DISK, "cannot write"):
        files.write_json(path, 2)
    assert files.read_json(path) == 1
    assert os.listdir(tmp_path) == ["value.json"]


@pytest.mark.parametrize("content", [b'{"a": 1', b"\xff\xfe"])
def test_broken_json_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with refused(CHECKPOINT, "config.json is not valid JSON"):
        files.read_json(tmp_path / "config.json")


@pytest.mark.parametrize("torn", [b'{"step": 40, "lo', b'{"step": 10}'])
def test_metrics_are_cut_back_to_a_step(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    for step in (0, 10, 20, 30):
        files.append_record(path, {"step": step, "loss": step / 3, "members": np.ones(2, np.float32)})
    kept = b"".join(path.read_bytes().splitlines(keepends=True)[:3])
    path.write_bytes(path.read_bytes() + torn)
    files.truncate_after(path, 20)
    after = path.read_bytes()
    assert after == kept + (torn + b"\n" if torn.endswith(b"}") else b"")
    files.append_record(path, {"step": 25, "loss": math.nan})
    assert json.loads(path.read_text().splitlines()[-1]) == {"step": 25, "loss": None}
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "line",
    [b"[" * 100_000, b'{"step": NaN}', b'{"loss": 1}', b'{"step": 2, "loss": [{}]}', b'{"step": 2, "x": "\xff"}'],
)
def test_what_is_left_of_damaged_metrics_can_be_read(tmp_path, line):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    with refused(CHECKPOINT, "metrics.jsonl is damaged .*: `apformer resume .*` repairs it"):
        metrics.read_metrics(tmp_path)
    files.truncate_after(file, 2)
    assert metrics.read_metrics(tmp_path) == [{"step": 1}]


def test_metrics_of_other_numbers_of_members_are_damaged(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1}\n{"step": 2}\n{"step": 3, "validation_loss":[1]}\n')
    with refused(CHECKPOINT, "losses of different numbers of members.*: restore it"):
        metrics.read_metrics(tmp_path)


def test_a_record_that_cannot_be_written(tmp_path):
    if os.path.exists("/dev/full"):
        with refused(DISK, r"the disk is full\): free some space, then resume the run"):
            files.append_record("/dev/full", {"step": 1})
    with refused(DISK, "cannot write"):
        files.append_record(tmp_path / "none" / "metrics.jsonl", {"step": 1})


HOLD = """
import pathlib, sys, time
from apformer import errors
from apformer.runs import directory
try:
    with directory.lock(pathlib.Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.read()
except errors.UserError as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


def hold(path):
    command = [sys.executable, "-c", HOLD, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_second_process_is_kept_out_until_the_first_ends(tmp_path):
    with hold(tmp_path) as first:
        assert first.stdout.readline() == "held\n"
        with hold(tmp_path) as second:
            said, _ = second.communicate()
        assert second.returncode == LOCKED
        assert f"{tmp_path} is in use by process {first.pid} on " in said and said.count("\n") == 1
        with refused(LOCKED, f"in use by process {first.pid} on .*: wait until it ends, or stop it"):
            with directory.lock(tmp_path):
                pass
        first.kill()
    with directory.lock(tmp_path):  # a dead process holds nothing
        with refused(LOCKED, f"in use by process {os.getpid()} on "):
            with directory.lock(tmp_path):
                pass
    with directory.lock(tmp_path):
        pass


REFUSES = """
import json, os, sys
from itertools import combinations
from pathlib import Path
from apformer import errors
from apformer.runs import directory
os.chdir(os.environ["REFUSED_BELOW"])
found, root, kinds = {}, Path("runs"), ("link", "rename", "lock", "append", "fsync", "force")
for refused in [(), *combinations(kinds, 1), *combinations(kinds, 2)]:
    os.environ["REFUSED"] = ",".join(refused)
    path = directory.create("exact")
    try:
        with directory.lock(path):
            found[os.environ["REFUSED"]] = ["held", (root / "latest").is_symlink()]
    except errors.UserError as error:
        found[os.environ["REFUSED"]] = [str(error), error.exit_code]
    (root / "latest").unlink(missing_ok=True)
    assert os.listdir(path) == [".lock"]
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc")
def test_what_a_disk_cannot_do_is_found_before_the_first_step(tmp_path):
    """Each of six things, alone and in pairs."""
    library = tmp_path / "refuse.so"
    source = ROOT / "experiments" / "faults" / "_refuse.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    done = python("-c", REFUSES, LD_PRELOAD=str(library), REFUSED_BELOW=str(tmp_path))
    found = json.loads(done.stdout)
    needed = {"append": "append to files", "fsync": "force files", "force": "force files", "rename": "rename folders"}
    assert len(found) == 22 and done.stderr.count("has no locks: start no second process on this run\n") == 6
    for lacks, (said, more) in found.items():
        lacking = [what for kind, what in needed.items() if kind in lacks.split(",")]
        if lacking:
            assert more == DISK and re.search(f"the disk of .* cannot {'|'.join(lacking)}.*: give a --run", said)
        else:
            assert (said, more) == ("held", "link" not in lacks)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_without_fsync_does_without_and_a_broken_disk_is_not_hidden(tmp_path, monkeypatch, number):
    def unsupported(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", unsupported)
    with refused(DISK, "Input/output error") if number == errno.EIO else nullcontext():
        files.write_json(tmp_path / "value.json", 1)
        assert files.read_json(tmp_path / "value.json") == 1


def test_the_temporary_files_of_a_process_that_was_killed_are_removed(tmp_path):
    torn, kept = [".config.json.1.tmp", ".evaluation.json.2.tmp"], [".notes.tmp", "config.json.tmp"]
    for name in torn + kept:
        (tmp_path / name).touch()
    for name, time in zip(torn, (0, 2**32), strict=True):  # the second as where the clock went back
        os.utime(tmp_path / name, (time, time))
    with directory.lock(tmp_path):
        assert not any((tmp_path / name).exists() for name in torn)
        assert all((tmp_path / name).exists() for name in kept)


def test_a_run_that_was_killed_before_its_first_file_can_be_begun_again(tmp_path):
    (tmp_path / ".config.json.1.tmp").touch()
    (tmp_path / ".lock").touch()
    assert directory.create("exact", tmp_path) == tmp_path
