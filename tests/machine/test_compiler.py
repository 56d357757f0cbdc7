"""Programs that XLA may compute wrongly are named, by the doctor and beside a certificate, with what mends them."""

import json
from importlib.metadata import version

import jax.numpy as jnp
import pytest

from apformer import cli
from apformer.machine import compiler
from tests.helpers.own_process import python

NAMES = [*compiler.PROGRAMS]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_should_give_is_right(name, monkeypatch):
    """Computed operation by operation, which the fusions of XLA do not reach; and one wrong number is found."""
    monkeypatch.setattr(compiler, "PROGRAMS", {name: compiler.PROGRAMS[name]})
    monkeypatch.setattr(compiler.jax, "jit", lambda function: function)
    assert compiler.wrong() == []
    monkeypatch.setattr(compiler.jax, "jit", lambda function: lambda given: jnp.ravel(function(given)).at[-1].mul(0.99))
    assert compiler.wrong() == [name]


@pytest.mark.skipif(version("jaxlib") != "0.10.2", reason="of jaxlib 0.10.2, the newest of Python 3.11")
def test_the_faults_of_this_jaxlib_are_named_and_mended():
    code = "from apformer.machine import compiler; import json; print(json.dumps(compiler.wrong()))"
    for flags, wrong in (("", NAMES), (compiler.REMEDY.removeprefix("XLA_FLAGS="), [])):
        assert json.loads(python("-c", code, XLA_FLAGS=flags).stdout) == wrong


def test_the_doctor_names_them(monkeypatch, capsys, says):
    monkeypatch.setattr(compiler, "wrong", lambda: NAMES[:1])
    assert not json.loads(says("doctor", "--json"))["computes"]
    assert cli.main(["doctor"]) == 0
    assert f"wrongly (test programs: {NAMES[0]}): set {compiler.REMEDY}" in capsys.readouterr().err
