"""`apformer certify`: from a run directory to its certificate, stopped and gone on with."""

import dataclasses
import io
import json
import re
import signal
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import cli, errors
from apformer.analysis import certificate
from apformer.commands import certify as certify_
from apformer.commands import train
from apformer.files import read_json
from apformer.machine import process
from apformer.runs import restore
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, evaluation
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.proof import contexts, rows
from tests.helpers import circuit
from tests.helpers.small_models import circuit_run

DATA = Config(digits=2, max_difference=40, max_terms=6)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run whose checkpoint holds the circuit."""
    return circuit_run(tmp_path_factory.mktemp("runs") / "circuit", DATA)


@pytest.fixture
def run(original):
    for file in original.glob("certificate*"):
        file.unlink()
    return original


TOTAL = contexts.count(vars(DATA), vars(circuit.config(2)))


@pytest.fixture
def slices(monkeypatch):
    """Several slices of contexts, after each of which a certificate can be stopped."""
    monkeypatch.setattr(rows, "SLICE", 600)


def call(capsys, *args):
    capsys.readouterr()
    code = cli.main(["certify", *map(str, args)])
    return code, capsys.readouterr()


def test_the_certificate_of_a_run(run, capsys):
    code, printed = call(capsys, run, "--json")
    assert code == 0
    result = json.loads(printed.out)
    assert result == read_json(run / "certificate.json")
    assert result["certified"] and result["errors"] == 0 and result["seconds"] >= 0
    assert result["contexts"] == TOTAL and result["theorem"] and result["rounding"]
    assert result["dtype"] == "float32" and result["backend"] == jax.default_backend() and result["step"] == 1
    assert len(result["parameters_sha256"]) == 64 and not [*run.glob("*.partial.json")]
    code, printed = call(capsys, run)
    assert code == 0 and printed.out.startswith("PROVEN in exact arithmetic: greedy decoding rightly continues every")
    assert "\nPROVEN for any float32 rounding: the least margin is " in printed.out
    proven = read_json(run / "certificate.json")
    assert "proves more, of step 1, and is kept" in call(capsys, run, "--screen")[1].err
    assert read_json(run / "certificate.json") == proven


def test_a_certificate_of_another_version_or_config_is_named_and_asked_again(run, capsys):
    file = run / "certificate.json"
    file.write_text('{"certified": true, "contexts": 1}')
    code, printed = call(capsys, run)
    assert code == 0 and "certificate.json is of another version or config.json: all contexts" in printed.err
    assert read_json(file)["contexts"] == TOTAL
    file.write_text(json.dumps(read_json(file) | {"data": {}}))
    assert "another version" in call(capsys, run, "--theorem")[1].err and not read_json(file)["rounding"]
    assert "another version" not in call(capsys, run)[1].err


def test_a_model_that_is_not_certified_has_an_exit_code_of_its_own(tmp_path, capsys, monkeypatch):
    original = circuit_run(tmp_path / "right", DATA)
    settings = restore.load_settings(original)
    params = jax.tree.map(np.zeros_like, restore.load_params(original, settings)[0])
    training = replace(settings.training, run_dir=str(tmp_path / "wrong"))
    path = train.keep(replace(settings, training=training), params)
    code, printed = call(capsys, path, "--json")
    assert code == errors.NOT_CERTIFIED == 8
    assert json.loads(printed.out) == read_json(path / "certificate.json")
    said = printed.err.splitlines()[-1]
    assert re.fullmatch(rf"apformer: {path} is not certified \(.* of .* contexts are continued wrongly\): .*", said)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert cli.main(["certify", str(path)]) == 8


NUMPY = certify_.PARTIAL.format("numpy")


class Gone(io.StringIO):
    """Standard output that nobody reads any more."""

    def write(self, _):
        raise BrokenPipeError


@pytest.mark.parametrize(("judge", "flag"), [("prove", "--theorem"), ("screen", "--screen")])
def test_a_stopped_enumeration_goes_on_where_it_was(run, capsys, monkeypatch, slices, judge, flag):
    whole = getattr(certificate, judge)
    visited = []

    def interrupted(*args):
        for number, tally in enumerate(whole(*args)):
            if number == 3:
                raise KeyboardInterrupt
            visited.append(tally)
            yield tally

    monkeypatch.setattr(certificate, judge, interrupted)
    code, printed = call(capsys, run, flag)
    assert code == 130 and not (run / "certificate.json").exists()
    (partial,) = run.glob("*.partial.json")
    kept = read_json(partial)
    assert kept["tally"] == json.loads(json.dumps(visited[-1]))

    def watched(*args):
        assert args[-1] == kept["tally"]
        yield from whole(*args)

    monkeypatch.setattr(certificate, judge, watched)
    code, printed = call(capsys, run, "--json", flag)
    result = json.loads(printed.out)
    assert code == 0 and result["contexts"] == TOTAL and result["smallest_margin"] == circuit.SURE
    assert result["certified"] == (judge == "prove") and not result["rounding"]
    assert sum(part["contexts"] for part in result["parts"].values()) == TOTAL


@pytest.mark.parametrize("number", process.STOPS)
def test_a_stop_signal_keeps_what_was_asked(run, capsys, monkeypatch, slices, number):
    whole = certificate.prove

    def stopped(*args):
        tallies = whole(*args)
        yield next(tallies)
        signal.raise_signal(number)
        yield next(tallies)
        raise AssertionError("it goes on")

    monkeypatch.setattr(certificate, "prove", stopped)
    code, printed = call(capsys, run)
    assert code == 128 + number and not (run / "certificate.json").exists()
    assert "contexts are done; the same command continues" in printed.err.splitlines()[-1]
    assert read_json(run / NUMPY)["tally"] is not None


def test_a_damaged_file_of_a_stopped_proof_is_not_gone_on_from(run, capsys):
    (run / NUMPY).write_text("{")
    _, printed = call(capsys, run, "--json")
    result = json.loads(printed.out)
    assert not result["errors"] and result["contexts"] == TOTAL


def test_other_differences_are_another_enumeration(run, capsys, monkeypatch, slices):
    whole = certificate.prove

    def stopped(*args):
        yield next(whole(*args))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(certificate, "prove", stopped)
        assert call(capsys, run)[0] == 130 and (run / NUMPY).exists()
    settings = restore.load_settings(run)
    wider = dataclasses.replace(settings, data=dataclasses.replace(DATA, min_difference=-40))
    result = certify_.certify_run(run, wider)
    assert result["certified"] and result["contexts"] == contexts.count(vars(wider.data), vars(wider.model))


def test_more_than_patience_allows_asks_for_yes(run, capsys, monkeypatch, slices):
    clock = iter(range(0, 10_000_000, 1000))
    monkeypatch.setattr(certify_.time, "monotonic", lambda: next(clock))
    code, printed = call(capsys, run)
    assert (
        code == errors.USAGE and "minutes here, for" in printed.err and f"`apformer certify {run} --yes`" in printed.err
    )
    code, printed = call(capsys, run, "--yes")
    assert code == 0 and "PROVEN" in printed.out


def test_training_ends_with_the_certificate_of_a_model_found_exact(run, monkeypatch):
    settings = Settings("progressions", "model", Training(steps=1, log_every=1), circuit.config(2), DATA, Options())

    def certificate(exact, **sizes):
        changed = replace(settings, model=replace(settings.model, **sizes))
        return train.certificate(run, settings, evaluation.doubt({"exact_teacher_forced": exact}, changed))

    further = f"`apformer resume {run} --steps 2` trains further."
    assert certificate(1.0).startswith("PROVEN") and "trains further" not in certificate(1.0)
    assert certificate(0.5).endswith(f"terms are wrong. `apformer certify {run}` finds all that are, and {further}")
    assert "one head of one block reads one average" in certificate(0.5, n_layers=1, n_heads=1)
    assert "No term can be predicted" in certificate(None)
    monkeypatch.setattr(train.certify, "certify_run", lambda *args: {"errors": 3})
    monkeypatch.setattr(train.tables, "certificate", lambda found: "NOT PROVEN")
    assert train.certificate(run, settings) == f"NOT PROVEN\n\n{further}"
    ended = replace(settings, training=replace(settings.training, patience=3))
    assert "and --steps 2 --patience 0 trains longer." in train.certificate(run, ended)
