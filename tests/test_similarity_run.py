"""`experiments/similarity.py`: a small run leaves the published figure alone."""

from apformer import flags
from tests.helpers import scripts

(script,) = scripts.load("similarity")
TINY = "--widths 2 --keys 3 --d_models 4 --row 2 --steps 10 --batch_size 2 --learning_rates 1e-3 --members 1".split()


def test_the_figure_lies_in_a_new_directory_of_any_name(tmp_path, monkeypatch, capsys):
    """No model is trained here: none of them costs anything."""
    (tmp_path / "experiments" / "figures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script, "fit", lambda key, rate, cfg, args: script.np.ones(args.steps))
    monkeypatch.setattr("sys.argv", ["similarity.py", *TINY])
    assert flags.script("similarity.py", script.Similarity, script.run) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("-similarity") and (run / "similarity.png").stat().st_size > 5000
    assert "| 4 | scaled_dot | 0.001 | never | 1 |" in capsys.readouterr().out
    assert not [*(tmp_path / "experiments" / "figures").iterdir()]
