"""`experiments/diversify.py`: what each run is given, and what is not done twice. Stand-ins serve as commands."""

import runpy
import subprocess
from pathlib import Path

import pytest

from apformer import errors
from apformer.runs import directory
from apformer.runs import recipes as run_recipes

SCRIPT = Path(__file__).parents[2] / "experiments" / "diversify.py"
TEXTS = {
    "train.en": "a dog runs\na cat sits\n",
    "train.de": "ein Hund rennt\neine Katze sitzt\n",
    "val.en": "a dog\n",
    "val.de": "ein Hund\n",
    "test.en": "a cat\n",
    "test.de": "eine Katze\n",
}
ENDLESS = "sitzt " * 20


def main(monkeypatch, *args):
    """The exit code of the script."""
    monkeypatch.setattr("sys.argv", ["diversify.py", *map(str, args)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return done.value.code


@pytest.fixture
def called(tmp_path, monkeypatch):
    """The words of each command that the script calls; `train` leaves a run, `translate` writes what the run would."""
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        Path(name).write_text(text)
    calls = []

    def run(words, stdout=None):
        words = words[3:]  # python -m apformer
        calls.append(words)
        if words[0] == "train":
            path = Path(words[words.index("--run_dir") + 1])
            path.mkdir(parents=True)
            for name in ("config.json", "evaluation.json"):
                (path / name).write_text("{}")
        elif words[0] == "translate":
            forward = Path(words[1]).name == "forward"
            stdout.write(f"ein Köter läuft\n{ENDLESS}\n" if forward else "a hound runs\na tomcat sits\n")
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(directory, "find", Path)  # the teachers that the tests name are nowhere
    monkeypatch.setattr(run_recipes, "parse", lambda words: None)
    return calls


ASKED = ("train.en", "train.de", "--validation", "val.en", "val.de", "--test", "test.en", "test.de", "--out", "out")


def test_the_last_run_learns_from_all_pairs_and_no_teacher_sees_the_test_part(called, monkeypatch):
    assert main(monkeypatch, *ASKED, "--teacher_steps", 7, "--steps", 9) == 0
    forward, _, backward, _, last = called
    for teacher, sides, steps in ((forward, ("en", "de"), "7"), (backward, ("de", "en"), "7"), (last, None, "9")):
        assert teacher[teacher.index("--steps") + 1] == steps
        assert any("test." in word for word in teacher) == (teacher is last)
        if sides is not None:
            at = teacher.index("--source")
            assert teacher[at : at + 4] == ["--source", f"train.{sides[0]}", "--target", f"train.{sides[1]}"]
    # Of what the forward run wrote, the second line is left out: it says the same again and again.
    sources = TEXTS["train.en"] + "a dog runs\n" + "a hound runs\na tomcat sits\n"
    assert Path("out/train.source.en").read_text() == sources
    assert Path("out/train.target.de").read_text() == TEXTS["train.de"] + "ein Köter läuft\n" + TEXTS["train.de"]


def test_what_is_done_is_not_done_again(called, monkeypatch):
    assert main(monkeypatch, *ASKED) == 0
    done = len(called)
    assert main(monkeypatch, *ASKED) == 0
    assert len(called) == done
    Path("out/run/evaluation.json").unlink()
    assert main(monkeypatch, *ASKED) == 0
    assert called[done:] == [["resume", "out/run"]]


def test_a_command_that_fails_ends_the_script_with_its_exit_code(called, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "run", lambda words, stdout=None: subprocess.CompletedProcess(words, 3))
    assert main(monkeypatch, *ASKED) == 3
    assert "apformer train ended with exit code 3" in capsys.readouterr().err


def test_half_a_translation_is_not_taken_for_a_whole_one(called, monkeypatch, capsys):
    whole = subprocess.run

    def killed(words, stdout=None):
        if words[3] == "train":
            return whole(words, stdout)
        stdout.write("ein Köter läuft\n")
        return subprocess.CompletedProcess(words, -9)

    monkeypatch.setattr(subprocess, "run", killed)
    assert main(monkeypatch, *ASKED) == 137
    assert "apformer translate was killed by signal 9: give the same command again" in capsys.readouterr().err
    assert not Path("out/forward.target.de").exists()
    monkeypatch.setattr(subprocess, "run", whole)
    assert main(monkeypatch, *ASKED) == 0
    assert Path("out/forward.target.de").read_text() == f"ein Köter läuft\n{ENDLESS}\n"


def test_runs_that_are_there_are_asked_and_not_trained(called, monkeypatch):
    assert main(monkeypatch, *ASKED, "--forward", "a/forward", "b/forward", "--backward", "c/run") == 0
    translated = [words[1:] for words in called if words[0] == "translate"]
    assert translated == [
        ["a/forward", "--file", "train.en", "--ensemble", "b/forward", "--beams", "4", "--mbr", "0", "--memory", "0"],
        ["c/run", "--file", "train.de", "--memory", "0"],
    ]
    assert sum(words[0] == "train" for words in called) == 1


def test_the_forward_run_translates_what_the_backward_run_draws(called, monkeypatch):
    assert main(monkeypatch, *ASKED, "--forward", "a/forward", "--backward", "c/run", "--draws", 2) == 0
    translated = [words[1:] for words in called if words[0] == "translate"][2:]
    assert translated == [
        ["c/run", "--file", "train.de", "--temperature", "0.75", "--memory", "0", "--seed", "1"],
        ["a/forward", "--file", "out/draw1.source.en", "--memory", "512"],
        ["c/run", "--file", "train.de", "--temperature", "0.75", "--memory", "0", "--seed", "2"],
        ["a/forward", "--file", "out/draw2.source.en", "--memory", "512"],
    ]
    # Of what the forward run writes, the second line is always left out.
    sources = TEXTS["train.en"] + "a dog runs\n" + "a hound runs\na tomcat sits\n" + "a hound runs\n" * 2
    assert Path("out/train.source.en").read_text() == sources
    answers = TEXTS["train.de"] + "ein Köter läuft\n" + TEXTS["train.de"] + "ein Köter läuft\n" * 2
    assert Path("out/train.target.de").read_text() == answers


def test_pairs_are_looked_up_by_the_forward_run_and_where_the_last_run_is_scored(called, monkeypatch, capsys):
    asked = (*ASKED, "--teacher_memory", 5, "--memory", 7, "--beams", 9, "--mbr", 8)
    assert main(monkeypatch, *asked, "--forward", "a/forward", "b/run") == errors.USAGE
    assert "--teacher_memory serves one forward run alone" in capsys.readouterr().err
    assert main(monkeypatch, *asked, "--teacher_steps", -1) == errors.USAGE
    assert "--teacher_steps -1 is out of range: give 1 or more" in capsys.readouterr().err
    assert not Path("out").exists()
    assert main(monkeypatch, *asked) == 0
    trained, translated = ([words for words in called if words[0] == name] for name in ("train", "translate"))
    assert [words[4:] for words in translated] == [["--memory", "5"], ["--memory", "0"]]
    found = [tuple(words[at : at + 2]) for words in trained for at in range(len(words)) if words[at] == "--memory"]
    assert found == [("--memory", "7")]
    assert "--beams 9 --mbr 8 --memory 7" in " ".join(trained[-1])


def test_a_folder_of_other_flags_is_refused(called, monkeypatch, capsys):
    assert main(monkeypatch, *ASKED, "--forward", "a/run") == 0
    done = len(called)
    assert main(monkeypatch, *ASKED, "--forward", "b/run") == errors.USAGE
    sentence = "--out out was begun with other flags, see out/asked.json: give those, or another --out"
    assert sentence in capsys.readouterr().err
    assert len(called) == done


def test_no_file_of_the_user_is_written_over(called, monkeypatch, capsys):
    assert main(monkeypatch, *ASKED[:-1], ".") == errors.USAGE
    assert ". holds files, and none is overwritten: give a new or an empty folder" in capsys.readouterr().err
    assert {name: Path(name).read_text() for name in TEXTS} == TEXTS and called == []


def test_files_of_one_suffix_are_told_apart(called, monkeypatch):
    for old, new in (("train.en", "en.txt"), ("train.de", "de.txt")):
        Path(old).rename(new)
    assert main(monkeypatch, "en.txt", "de.txt", *ASKED[2:], "--forward", "a/forward", "--backward", "b/run") == 0
    assert Path("out/train.source.txt").read_text().startswith(TEXTS["train.en"])
    assert Path("out/train.target.txt").read_text().startswith(TEXTS["train.de"])


def test_a_text_that_has_changed_is_refused(called, monkeypatch, capsys):
    assert main(monkeypatch, *ASKED) == 0
    for name in ("train.en", "train.de"):
        Path(name).write_text(TEXTS[name] + "more\n")
    assert main(monkeypatch, *ASKED) == errors.DATA
    sentence = "out/forward.target.de has 2 lines and train.en has 3, so the text has changed: give another --out"
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence", "code"),
    [
        (["--draws", -1], "--draws -1 is out of range: give 0 or more", errors.USAGE),
        (["--dropout", 2], "dropout", errors.USAGE),
        (["--forward", "nowhere"], "nowhere is not a directory", errors.USAGE),
        (["--init_from", "nowhere"], "nowhere is not a directory: name a run of --recipe translate", errors.USAGE),
        (["--test", "val.en", "train.de"], "val.en has 1 lines and train.de has 2 lines", errors.DATA),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_made(tmp_path, monkeypatch, capsys, flags, sentence, code):
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        Path(name).write_text(text)
    assert main(monkeypatch, *ASKED, *flags) == code
    assert sentence in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ((), ["--d_ff", "512", "--dropout", "0.2"]),
        (("--d_ff", 64, "--learning_rate", 0.01), ["--learning_rate", "0.01", "--d_ff", "64", "--dropout", "0.2"]),
        (("--init_from", "a/run", "--dropout", 0.3), ["--init_from", "a/run", "--dropout", "0.3"]),
    ],
)
def test_the_model_of_the_last_run(called, monkeypatch, asked, flags):
    assert main(monkeypatch, *ASKED, *asked) == 0
    last = called[-1]
    at = last.index("--steps")
    search = ["--beams", "12", "--mbr", "8", "--memory", "512"]
    assert last[at + 2 : last.index("--run_dir")] == [*flags, *search, "--too_long", "cut"]
