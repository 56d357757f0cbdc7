"""`experiments/word2vec.py` prints what it keeps."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "experiments" / "word2vec.py"
FEW = ("--steps", "3", "--batch_size", "8", "--d_model", "4", "--min_count", "1")


def main(monkeypatch, *args):
    """The exit code of the script."""
    monkeypatch.setattr("sys.argv", ["word2vec.py", *map(str, args)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return done.value.code


def test_without_a_file_the_words_are_the_characters_of_progressions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, *FEW, "--digits", "2") == 0
    out = capsys.readouterr().out
    table = out.split("\n\n")[0].splitlines()
    assert sorted(line[0] for line in table) == [*"0123456789", "␣"]
    assert all(len(line.split(", ")) == 8 for line in table)
    (run,) = (tmp_path / "runs").glob("*-words")
    assert (run / "figures" / "words.png").is_file() and out.startswith((run / "neighbours.txt").read_text())
