"""Each recipe from training to its page and its proof, a few steps long, and what is refused."""

import runpy
import shutil
import sys

import jax
import numpy as np
import pytest

from apformer import cli
from apformer.errors import DATA, NOT_CERTIFIED, USAGE
from apformer.files import read_json, write_json
from apformer.report import attention, figures
from apformer_lab import evaluation, rows, training

FEW = "--steps 4 --log_every 2 --save_every 4 --batch_size 8 --test_sequences 2 --rule adamw".split()
SMALL = ["--d_model", "8", "--n_heads", "2", "--d_ff", "8"]
RECIPES = {
    "lsb": ["digits", "--order", "lsb", "--digits", "2", *SMALL],
    "msb": ["digits", "--digits", "2", *SMALL],
    "bases": ["bases", "--digits", "2", "--bases", "2", "3", *SMALL],
    "sums": ["sums", "--digits", "2", "--members", "2"],
    "recurrences": ["recurrences", "--digits", "1", *SMALL],
    "named": ["recurrences", "--digits", "1", "--rules", "fibonacci", "3,-7,11", *SMALL],
}
PROMPTS = {
    "lsb": ("79 89", 3),  # 97 98 99, and 100 does not fit
    "msb": ("007 010", 2),
    "bases": ("+2 12 01", 2),
    "sums": ("52 91", 1),
    "recurrences": ("3 5", 2),
    "named": ("2 3 5", 2),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A function (name of RECIPES) to the directory of a run, made once."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(figures, "save", lambda *_: None)
                patch.setattr(attention, "pictures", lambda *_: {})
                patch.setattr(training, "widths", lambda form: [form.digits])  # each width compiles programs of its own
                assert cli.main(["train", "--recipe", *RECIPES[name], *FEW, "--run_dir", str(made[name])]) == 0
        return made[name]

    return make


def fails(capsys, code, said, *args):
    capsys.readouterr()
    assert cli.main([str(arg) for arg in args]) == code
    out, err = capsys.readouterr()
    assert said in err.splitlines()[-1], err


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_evaluates_predicts_and_has_a_page(name, run_of, capsys):
    run = run_of(name)
    found = read_json(run / "evaluation.json")
    assert found["widths"] and found["pairs"] and 0 <= found["exact_free_running"] <= 1
    assert (run / "report.html").stat().st_size > 10_000
    capsys.readouterr()
    prompt, terms = PROMPTS[name]
    assert cli.main(["predict", str(run), prompt, "--terms", str(terms)]) == 0
    out, err = capsys.readouterr()
    count = 1 if name == "lsb" else terms  # 99, and then 100 has three digits
    words = prompt.split(" ")
    assert len(out) - 1 == count * (len(words[-1]) + 1) - 1 + (name == "sums"), (out, err)
    assert ("no longer fits" in err) == (name == "lsb")


def test_a_model_that_is_right_is_measured_so():
    """All terms of what is said rightly, and one less where one digit is wrong."""
    form = rows.Format(3, wraps=False)
    found = rows.held_out(jax.random.key(0), form, 3, 6, 4)
    tokens_BT = np.asarray(rows.encode(found, form).tokens_BT)

    def said(wrong):
        said_BT = tokens_BT[:, form.given(3) :].copy()
        said_BT[0, -1] = (said_BT[0, -1] + wrong) % 10
        return said_BT, said_BT

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_predicted", lambda tokens, given, wrong: said(wrong))
        right, errors = evaluation.score_terms(tokens_BT, form, 3, 0)
        assert right.all() and right.shape == (2, 6, 2) and not errors
        right, errors = evaluation.score_terms(tokens_BT, form, 3, 1)
        assert right.sum() == 22 and not right[:, 0, 1].any()
        assert errors[0]["given"].count(" ") == 2 and errors[0]["expected"] != errors[0]["predicted"]


@pytest.mark.parametrize("name", ["msb", "sums"])
def test_what_is_wrong_is_not_certified_and_not_proven(name, run_of, tmp_path, capsys):
    run = shutil.copytree(run_of(name), tmp_path / "run")
    fails(capsys, NOT_CERTIFIED, "is not certified (", "certify", run)
    certificate = read_json(run / "certificate.json")
    assert certificate["errors"] > 0 and certificate["worst"][0]["margin"] <= 0
    assert cli.main(["export", str(run), "--to", "proof"]) == 0
    assert {"contexts.py", "strings.py", "check.py"} <= {file.name for file in (run / "proof").iterdir()}
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:  # as a user runs it, beside nothing of apformer
        for module in ("network", "bounds", "directions", "rounding", "contexts", "strings", "check"):
            patch.delitem(sys.modules, module, raising=False)
        patch.syspath_prepend(str(run / "proof"))
        patch.setattr(sys, "argv", ["check.py"])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(run / "proof" / "check.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert stop.value.code == 1 and "contexts are continued wrongly; after" in out
    assert f"contexts {certificate['contexts']:,}, " in out and "PROVEN, the theorem" not in out.replace(
        "NOT PROVEN", ""
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["digits", "--digits", "0"], "--digits 0 is out of range: give 1 to 1000"),
        (["bases", "--bases", "2", "17"], "--bases 2 17 does not fit: give each once"),
        (["bases", "--separator", "3"], "--separator 3 is out of range: give 16"),
        (["bases", "--vocab_size", "9"], "--vocab_size 9 is out of range: give 20"),
        (["sums", "--crop_terms", "2"], "--crop_terms 2 is out of range: give 3 to"),
        (["recurrences", "--rules", "1,2"], "--rules 1,2 is not a rule: give progression, "),
        (["recurrences", "--rules", "fibonacci", "1,1,0"], "gives a rule twice"),
    ],
)
def test_flags_that_do_not_fit_are_refused(args, said, tmp_path, capsys):
    fails(capsys, USAGE, said, "train", "--recipe", *args, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("lsb", "70", "the prompt, line 1: has 1 term; give two or more, such as 300 500"),
        ("lsb", "70 8", "term 2 is not 2 of the digits 0123456789"),
        ("lsb", "70 80 01", "term 3 does not follow by progression in base 10; correct it"),
        ("bases", "=9 70 80", "begins with '=9'; begin with one of =1, =2, +1"),
        ("sums", "52 91 44", "has 3 terms; give two, such as"),
    ],
)
def test_a_line_that_cannot_be_continued_is_refused(name, line, said, run_of, capsys):
    fails(capsys, DATA, said, "predict", run_of(name), line)


def test_more_than_the_sum_and_lines_too_long_are_refused(run_of, capsys):
    said = "--terms 2 is more than the sum of two terms"
    fails(capsys, USAGE, said, "predict", run_of("sums"), "52 91", "--terms", 2)
    said = "--terms 999999 makes a line of"
    fails(capsys, USAGE, said, "predict", run_of("bases"), "+1 01 01", "--terms", 999_999)


def test_a_model_that_reads_otherwise_is_not_certified(run_of, tmp_path, capsys):
    run = shutil.copytree(run_of("sums"), tmp_path / "run")
    config = read_json(run / "config.json")
    config["flags"]["model"]["offsets"] = [0, 2, 3, 5, 7]
    write_json(run / "config.json", config)
    fails(capsys, USAGE, "the contexts are not those of this model: its offsets", "certify", run)
