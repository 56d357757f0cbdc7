"""The protocol of oeis-eval: the circuit is right at every k, and a run of too few digits is refused."""

import json

from apformer import errors
from apformer.runs import restore
from apformer.tasks.progressions.generator import Config
from tests.helpers import circuit, scripts
from tests.helpers.small_models import circuit_run

(oeis_protocol,) = scripts.load("oeis_protocol")


def test_the_circuit_is_right_at_every_k_and_another_model_is_not(tmp_path, monkeypatch, capsys):
    path = circuit_run(tmp_path / "five", Config(digits=5))
    monkeypatch.setattr("sys.argv", ["oeis_protocol.py", str(path), "--tests", "5"])
    assert oeis_protocol.main() == 0
    kept = json.loads((path / "oeis_protocol.json").read_text())
    assert kept["exact"] == {str(k): 1.0 for k in range(2, 21)} and kept["tests"] == 5
    assert json.loads(capsys.readouterr().out) == {str(k): "100.0%" for k in range(2, 21)}
    right = restore.load_params

    def broken(*args):
        params, step, member = right(*args)
        params["head"]["output"]["bias"] = params["head"]["output"]["bias"].at[4].add(2 * circuit.SURE)
        return params, step, member

    monkeypatch.setattr(restore, "load_params", broken)
    assert max(oeis_protocol.measure(path, 5, 0).values()) < 1


def test_too_few_digits_and_flags_out_of_range_are_refused(tmp_path, monkeypatch, capsys):
    path = circuit_run(tmp_path / "three", Config(digits=3))
    for flags, sentence in ([str(path)], "needs 5: train --digits 5"), (["--tests", "0"], "--tests 0 is out of range"):
        monkeypatch.setattr("sys.argv", ["oeis_protocol.py", *flags])
        assert oeis_protocol.main() == errors.USAGE
        assert sentence in capsys.readouterr().err
