"""`experiments/circuit.py`: weights that nobody trained, as a run that the commands take."""

import subprocess
import sys
from pathlib import Path

from apformer import circuit, cli, errors

SCRIPT = Path(__file__).parents[1] / "experiments" / "circuit.py"


def script(folder, *args):
    return subprocess.run([sys.executable, SCRIPT, *args], cwd=folder, capture_output=True, text=True, check=False)


def test_the_circuit_is_kept_and_continues_progressions(tmp_path, capsys):
    made = script(tmp_path, "--digits", "2", "--min_difference", "-9")
    assert made.returncode == 0 and made.stdout == "runs/circuit-2\n"
    run = str(tmp_path / "runs" / "circuit-2")
    assert cli.main(["predict", run, "97 90", "--terms", "3"]) == 0
    assert capsys.readouterr().out == "83 76 69\n"
    assert cli.main(["evaluate", run]) == 0
    assert "100.00 %" in capsys.readouterr().out
    again = script(tmp_path, "--digits", "2")
    assert again.returncode == errors.USAGE and "already holds a run" in again.stderr
    wrong = script(tmp_path, "--digits", "2", "--max_difference", "500")
    assert wrong.returncode == errors.USAGE and "--max_difference 500 does not fit" in wrong.stderr


def test_its_window_ends_where_the_recipe_s_does():
    from apformer import recipes

    assert circuit.config(4).window == recipes.exact(4).model.window
