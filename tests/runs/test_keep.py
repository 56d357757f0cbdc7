"""`experiments/circuit.py`: weights that nobody trained, as a run that the commands take."""

import importlib.util
import json
import re
import sys
from pathlib import Path

from apformer import cli, errors
from apformer.analysis import circuit

SCRIPT = Path(__file__).parents[2] / "experiments" / "circuit.py"
spec = importlib.util.spec_from_file_location("experiments_circuit", SCRIPT)
script = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = script  # where --help looks for what a flag means
spec.loader.exec_module(script)


def test_the_circuit_is_kept_and_continues_progressions(tmp_path, monkeypatch, capsys):
    def main(*args):
        monkeypatch.setattr("sys.argv", ["circuit.py", "--digits", "2", *args])
        return script.main(), *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    exit_code, said, _ = main("--min_difference", "-9")
    assert exit_code == 0 and re.fullmatch(r"runs/circuit-2/report.html: .*\nruns/circuit-2\n", said)
    assert (tmp_path / "runs/circuit-2/figures/attention.png").stat().st_size > 5000
    assert "its weights written by hand" in (tmp_path / "runs/circuit-2/report.html").read_text()
    assert cli.main(["predict", "runs/circuit-2", "97 90", "--terms", "3"]) == 0
    assert capsys.readouterr().out == "83 76 69\n"
    config = json.loads((tmp_path / "runs/circuit-2/config.json").read_text())
    config["flags"]["options"]["test_sequences"] = 40  # instead of thousands
    (tmp_path / "runs/circuit-2/config.json").write_text(json.dumps(config))
    assert cli.main(["evaluate", "runs/circuit-2"]) == 0
    assert "100.00 %" in capsys.readouterr().out
    exit_code, _, said = main()
    assert exit_code == errors.USAGE and "already holds a run" in said
    exit_code, _, said = main("--max_difference", "500")
    assert exit_code == errors.USAGE and "--max_difference 500 does not fit" in said


def test_its_window_ends_where_the_recipe_s_does():
    from apformer.tasks.progressions import recipes

    assert circuit.config(4).window == recipes.exact(4).model.window
