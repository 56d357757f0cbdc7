"""`studies/diversify.py`: what each run is given, and what is not done twice. Stand-ins serve as commands."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from apformer.errors import DATA, USAGE
from apformer.runs import directory, recipes

SCRIPT = Path(__file__).parents[1] / "studies" / "diversify.py"
TEXTS = {
    "train.en": "a dog runs\na cat sits\n",
    "train.de": "ein Hund rennt\neine Katze sitzt\n",
    "val.en": "a dog\n",
    "val.de": "ein Hund\n",
    "test.en": "a cat\n",
    "test.de": "eine Katze\n",
}
FLAGS = ("train.en", "train.de", "--validation", "val.en", "val.de", "--test", "test.en", "test.de", "--out", "out")
ENDLESS = "sitzt " * 20


def main(monkeypatch, *args):
    """The exit code of the script."""
    monkeypatch.setattr("sys.argv", ["diversify.py", *map(str, args)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return done.value.code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        Path(name).write_text(text)


@pytest.fixture
def called(folder, monkeypatch):
    """The words of each command that the script calls; `train` leaves a run, the translator writes what it would."""
    calls = []
    elsewhere = subprocess.run

    def run(words, stdout=None, **others):
        if words[0] != sys.executable:  # such as `uname`
            return elsewhere(words, stdout=stdout, **others)
        calls.append(words := words[2:])  # python -m
        if words[1] == "train":
            path = Path(words[words.index("--run_dir") + 1])
            path.mkdir(parents=True)
            for name in ("config.json", "evaluation.json"):
                (path / name).write_text("{}")
        elif words[0] == "apformer_lab.translate":
            forward = Path(words[1]).name == "forward"
            stdout.write(f"ein Köter läuft\n{ENDLESS}\n" if forward else "a hound runs\na tomcat sits\n")
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(directory, "find", Path)  # the teachers that the tests name are nowhere
    monkeypatch.setattr(recipes, "parse", lambda words: None)
    return calls


def test_the_last_run_learns_from_all_pairs_and_no_teacher_sees_the_test_part(called, monkeypatch):
    assert main(monkeypatch, *FLAGS, "--steps", 9, "--memory", 7, "--teacher_memory", 5) == 0
    forward, wrote, backward, back, last = called
    for teacher, sides in ((forward, ("en", "de")), (backward, ("de", "en"))):
        at = teacher.index("--source")
        assert teacher[at : at + 4] == ["--source", f"train.{sides[0]}", "--target", f"train.{sides[1]}"]
        assert not any("test." in word for word in teacher)
    assert wrote == ["apformer_lab.translate", "out/forward", "--file", "train.en", "--memory", "5"]
    assert back == ["apformer_lab.translate", "out/backward", "--file", "train.de", "--memory", "0"]
    said = " ".join(last)
    assert "--recipe diversified" in said and "--steps 9" in said and "--beams 12 --mbr 8 --memory 7" in said
    # Of what the forward run wrote, the second line is left out: it repeats itself.
    sources = TEXTS["train.en"] + "a dog runs\n" + "a hound runs\na tomcat sits\n"
    assert Path("out/train.source.en").read_text() == sources
    assert Path("out/train.target.de").read_text() == TEXTS["train.de"] + "ein Köter läuft\n" + TEXTS["train.de"]


def test_what_is_done_is_not_done_again_and_other_flags_are_refused(called, monkeypatch, capsys):
    teachers = ("--forward", "a/forward", "--backward", "c/run")
    assert main(monkeypatch, *FLAGS, *teachers) == 0
    assert [words[1] for words in called] == ["a/forward", "c/run", "train"]
    Path("out/run/evaluation.json").unlink()
    assert main(monkeypatch, *FLAGS, *teachers) == 0
    assert called[3:] == [["apformer", "resume", "out/run"]]
    assert main(monkeypatch, *FLAGS) == USAGE
    assert "--out out was begun with other flags, see out/flags.json" in capsys.readouterr().err
    Path("train.en").write_text("one more\n" + TEXTS["train.en"])
    Path("train.de").write_text("one more\n" + TEXTS["train.de"])
    assert main(monkeypatch, *FLAGS, *teachers) == DATA
    assert "out/forward.de has 2 lines and train.en has 3, so the text has changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence", "code"),
    [
        (["--teacher_memory", -1], "--teacher_memory -1 is out of range: give 0 or more", USAGE),
        (["--mbr", 13], "--mbr 13 is out of range: give 0, or 2 to 12", USAGE),
        (["--forward", "nowhere"], "nowhere is not a directory", USAGE),
        (["--test", "val.en", "train.de"], "val.en has 1 lines and train.de has 2 lines", DATA),
        (["--out", "."], ". holds files, and none is overwritten: give a new or an empty folder", USAGE),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_does_not_fit_is_said_before_anything_is_made(monkeypatch, capsys, words, sentence, code):
    assert main(monkeypatch, *FLAGS, *words) == code
    assert sentence in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == set(TEXTS)
