"""The doctor finds what is not sound in a run, changes nothing, and the remedy that it names mends it."""

import re
import shlex
import shutil

import pytest

from apformer import cli, files
from apformer.report import figures
from apformer.runs import directory, selection
from apformer.tasks.progressions.generator import Config
from tests.helpers.small_models import circuit_run
from tests.runs.test_checkpoint import flip, largest

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("without_pictures")]
FLAGS = """--digits 2 --max_difference 30 --max_terms 6 --d_model 8 --n_layers 1 --n_heads 2 --steps 16 --batch_size 8
 --log_every 2 --save_every 4 --keep 3 --warmup_steps 2 --test_sequences 20 --until steps
 --rule adamw --prefix_rows 0 --hard_fraction 0 --ema 0"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda *_: None)
        assert cli.main(["train", *FLAGS.split(), "--run_dir", str(path)]) == 0
    assert cli.main(["certify", str(path)]) == 8  # so that there is a certificate, of a model that is wrong
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def content(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def told(path, capsys):
    """(exit code, {what: FAULT or sound}, the lines of faults, what was said on standard error)"""
    capsys.readouterr()
    code = cli.main(["doctor", str(path)])
    out, err = capsys.readouterr()
    lines = [re.fullmatch(r"(FAULT|sound)  ?(.+?)  +(.*)", line).groups() for line in out.splitlines()]
    return code, {what: verdict for verdict, what, _ in lines}, [line for line in lines if line[0] == "FAULT"], err


def test_a_run_to_which_nothing_happened_is_sound(copy, capsys):
    before = content(copy)
    code, verdicts, _, err = told(copy, capsys)
    assert code == 0 and err == "" and {*verdicts.values()} == {"sound"} and content(copy) == before
    named = {"config.json", "dataset", "metrics.jsonl", "evaluation.json", "certificate.json", "lock"}
    assert verdicts.keys() == named | {"checkpoint 8", "checkpoint 12", "checkpoint 16"}


def edit(file, **changes):
    files.write_json(file, files.read_json(file) | changes)


def edit_line(path, number, edited):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    lines[number] = edited(lines[number])
    (path / "metrics.jsonl").write_text("".join(line + "\n" for line in lines if line))


HARMS = {
    "a bit": (lambda path: flip(largest(path / "checkpoints" / "12")), "checkpoint 12"),
    "no facts": (lambda path: (path / "checkpoints" / "16" / selection.FILE).unlink(), "checkpoint 16"),
    "torn": (lambda path: edit_line(path, 7, lambda line: line + '\n{"step": 1'), "metrics.jsonl"),
    "a line gone": (lambda path: edit_line(path, 6, lambda line: ""), "metrics.jsonl"),
    "the last lines gone": (lambda path: edit_line(path, slice(6, None), lambda lines: []), "metrics.jsonl"),
    "a score": (
        lambda path: edit_line(path, 7, lambda line: re.sub(r'(validation_loss": )[0-9.]+', r"\g<1>7.5", line)),
        "checkpoint 16",
    ),
    "of other parameters": (lambda path: edit(path / "evaluation.json", parameters_sha256="0" * 64), "evaluation.json"),
    "of another model": (lambda path: edit(path / "certificate.json", model={"d_model": 9}), "certificate.json"),
    "torn evaluation": (lambda path: (path / "evaluation.json").write_text('{"step": 16'), "evaluation.json"),
}


MENDED = ("a bit", "torn", "of another model")  # a kind of each file that a remedy mends


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_not_sound_is_named_and_the_remedy_mends_it(copy, harm, capsys):
    harmed, what = HARMS[harm]
    harmed(copy)
    before = content(copy)
    code, _, faults, err = told(copy, capsys)
    assert code == 4 and content(copy) == before
    assert f"{copy} is not sound ({', '.join(dict.fromkeys(line[1] for line in faults))})" in err
    assert what in [line[1] for line in faults]
    remedy = shlex.split(re.search("`apformer (.*?)`", next(line for line in faults if line[1] == what)[2])[1])
    if harm not in MENDED:
        return
    assert cli.main(remedy) in (0, 8)
    if remedy[0] == "resume":
        assert cli.main(["certify", str(copy)]) == 8  # which goes with the steps that it is of
    code, verdicts, _, _ = told(copy, capsys)
    assert code == 0 and len(verdicts) >= 9


@pytest.mark.parametrize("config", ["", "[]", '{"task": "progressions"}'])
def test_without_its_settings_nothing_can_be_said_of_a_run(copy, config, capsys):
    (copy / "config.json").write_text(config)
    code, verdicts, faults, _ = told(copy, capsys)
    assert code == 4 and verdicts == {"config.json": "FAULT"} and "train anew" in faults[0][2]


def test_a_dataset_or_a_file_of_the_task_that_has_changed_has_the_exit_code_of_data(copy, capsys):
    config = files.read_json(copy / "config.json")
    for changed in ({"data": {"source": "another", "sha256": "0"}}, {"files": {"tokenizer.json": "0"}}):
        files.write_json(copy / "config.json", config | changed)
        code, verdicts, _, _ = told(copy, capsys)
        assert code == 3 and verdicts["dataset"] == "FAULT"


def test_leftovers_and_a_process_at_work_are_said_and_are_no_fault(copy, capsys):
    (copy / "checkpoints" / "4.corrupt").mkdir()
    (copy / "checkpoints" / "20.tmp").mkdir()
    (copy / ".config.json.1.tmp").touch()
    with directory.lock(copy):
        assert cli.main(["doctor", str(copy)]) == 0
    out = capsys.readouterr().out
    assert out.count("sound  leftover") == 3 and "4.corrupt, which is not used" in out and "in use by process" in out


def test_a_run_that_has_not_saved_yet_is_sound(copy, capsys):
    for name in ("metrics.jsonl", "evaluation.json", "certificate.json"):
        (copy / name).unlink()
    shutil.rmtree(copy / "checkpoints")
    code, verdicts, _, _ = told(copy, capsys)
    assert code == 0 and verdicts["checkpoints"] == "sound"


def test_a_model_that_was_kept_without_training_is_sound(tmp_path, capsys):
    circuit_run(tmp_path / "run", Config(digits=2, min_difference=-49, max_difference=49))
    code, verdicts, _, _ = told(tmp_path / "run", capsys)
    assert code == 0 and verdicts["checkpoint 1"] == "sound"
