"""The doctor says what a run here would stand on, and fails where a run would."""

import json

import jax
import pytest

from apformer import cli, files
from apformer.errors import DISK, USAGE, UserError
from apformer.machine import compiler


@pytest.fixture(autouse=True)
def a_compiler_that_is_right(monkeypatch):
    monkeypatch.setattr(compiler, "wrong", lambda: [])


def test_it_prints_versions_devices_disk_and_permissions(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    lines = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert lines["jax"] == jax.__version__ and lines["backend"] == "cpu"
    assert lines["computes"] == lines["writable"] == "True"
    assert float(lines["free_disk_gb"]) > 0 and int(lines["processors"]) > 0
    assert lines["directory"] == str(tmp_path) and err == ""
    assert not list(tmp_path.iterdir())


def test_json_is_one_object(says, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ("gpt2", "gpt2 nowhere", "runs ."):
        fails(f"{words} names no folder: give one after gpt2", USAGE, "doctor", *words.split())
    (tmp_path / "runs").mkdir()
    facts = json.loads(says("doctor", "--json"))
    assert facts["versions"].keys() >= {"python", "jax", "flax", "optax", "numpy"}
    assert facts["devices"] and facts["writable"] is True and facts["directory"] == str(tmp_path / "runs")


def test_it_fails_after_its_report_where_a_run_could_not_write(capsys, monkeypatch):
    def refuse(directory, needs):
        raise UserError(f"cannot write {directory}: use another directory", DISK)

    monkeypatch.setattr(files, "preflight", refuse)
    assert cli.main(["doctor", "--json"]) == DISK
    out, err = capsys.readouterr()
    assert json.loads(out)["writable"] is False
    assert err.startswith("apformer: cannot write ") and err.count("\n") == 1


def test_it_says_that_jax_does_not_start(capsys, tmp_path, monkeypatch):
    def refuse():
        raise RuntimeError("Unable to initialize backend 'tpu'\nand more")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax, "devices", refuse)
    assert cli.main(["doctor"]) == USAGE
    out, err = capsys.readouterr()
    assert "backend           none" in out and "writable          True" in out
    assert err.startswith("apformer: JAX does not start (Unable to initialize backend 'tpu'): set JAX_PLATFORMS=cpu")
