"""Compiled programs outlive the process that compiled them, and none that is damaged or foreign is ever run."""

import os
import subprocess
import sys
import time

import jax
import pytest

from apformer import cli, errors, flags
from apformer.machine import compilation

pytestmark = pytest.mark.long

PROGRAM = """
import jax, jax.numpy as jnp
from apformer.machine import compilation
folder = compilation.keep()
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
value = jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.arange(9.0).reshape(3, 3))
print(folder, repr(float(value)), hits.count("/jax/compilation_cache/cache_hits"))
"""


def run(place):
    """(The folder, the value, how many programs were found in it), of a process of its own."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=env | {compilation.VARIABLE: str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, value, hits = process.stdout.split()
    return folder, value, int(hits), process.stderr


def programs(place):
    return {path: path.read_bytes() for path in compilation._programs(place)}


def test_a_second_process_compiles_nothing(tmp_path):
    folder, value, hits, _ = run(tmp_path)
    kept = programs(tmp_path)
    assert hits == 0 and kept and all(str(path).startswith(folder) for path in kept)
    assert run(tmp_path) == (folder, value, len(kept), "")
    assert programs(tmp_path) == kept


def test_a_damaged_program_costs_a_compilation(tmp_path):
    """Whether it is other than its seal says, or is cut and has none."""
    _, value, _, _ = run(tmp_path)
    kept = programs(tmp_path)
    for number, (path, data) in enumerate(kept.items()):
        middle = len(data) // 2
        if number % 2:
            path.write_bytes(data[:middle])
            compilation._seal_of(path).unlink()
        else:
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    assert len(kept) > 1 and run(tmp_path)[1:] == (value, 0, "")


def test_a_program_without_a_seal_is_removed_after_a_day(tmp_path):
    for name, age in (("old", 2 * compilation.DAY), ("new", 60)):
        (tmp_path / name).write_bytes(b"program")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    compilation._check(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_the_oldest_programs_are_removed_when_all_take_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "LIMIT", 25)
    for age, kind in enumerate((compilation._kind(), "jax-1-jaxlib-1-0123456789ab") * 2):
        path = tmp_path / kind / str(age)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(10))
        os.utime(path, (1000 - age,) * 2)
        compilation._seal_of(path).write_text("seal")
    compilation._prune(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*.sha256")) == ["0.sha256", "1.sha256"]
    assert {path.name for path in programs(tmp_path)} == {"0", "1"}


def test_what_is_no_program_stays_in_the_folder_that_the_user_named(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "LIMIT", 0)
    (tmp_path / "thesis").mkdir()
    for path in (tmp_path / "notes.txt", tmp_path / "thesis" / "chapter.tex"):
        path.write_bytes(bytes(10))
        os.utime(path, (0, 0))
    compilation._prune(tmp_path)  # as `keep` does with the folder around that of this processor and version
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_a_damaged_seal_costs_a_compilation(tmp_path):
    (program := tmp_path / "program").write_bytes(b"program")
    compilation._seal_of(program).write_bytes(b"\xff" * 64)
    compilation._check(tmp_path)
    assert not list(tmp_path.iterdir())


def test_programs_of_another_processor_or_version_lie_elsewhere(monkeypatch):
    here = compilation._kind()
    monkeypatch.setattr(compilation, "version", lambda name: "1.2.3")
    other = compilation._kind()
    monkeypatch.setattr(compilation.platform, "machine", lambda: "other")
    assert len({here, other, compilation._kind()}) == 3
    assert jax.__version__ in here


PLACES = """
import os, sys
from apformer.machine import compilation
for place in sys.argv[1:]:
    os.environ[compilation.VARIABLE] = place
    print(compilation.keep())
"""


def test_a_folder_that_cannot_be_written_costs_a_sentence_and_none_keeps_no_program(tmp_path):
    """The home of nobody is a name like others."""
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        PLACES,
        str(tmp_path / "file" / "folder"),
        "none",
        "~nobody-at-all/x",
    ]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    unwritable, none, nobody = done.stdout.split()
    assert unwritable == none == "None" and nobody.startswith(str(tmp_path / "~nobody-at-all" / "x"))
    assert done.stderr.startswith(f"cannot keep compiled programs in {tmp_path}") and done.stderr.count("\n") == 1
    assert f"set {compilation.VARIABLE} to another folder" in done.stderr


@pytest.mark.parametrize("words", (["--compilation_cache", "F"], ["--compilation-cache=F"]))
@pytest.mark.parametrize("place", (0, 1, 2))
def test_every_command_takes_the_flag_anywhere(words, place):
    args = ["doctor", "--json"]
    assert flags.cut([*args[:place], *words, *args[place:]], "compilation_cache", "a folder") == (args, "F")


def test_the_flag_wants_a_value(capsys):
    assert cli.main(["doctor", "--compilation_cache"]) == errors.USAGE
    assert "--compilation_cache wants a value: give a folder, or none" in capsys.readouterr().err
