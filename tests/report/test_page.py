"""The page of a run: one file that asks for nothing, with all of the run in it, and a word for what is missing."""

import base64
import dataclasses
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import jax
import numpy as np
import pytest

from apformer import cli, errors, files, model, recurrent, seq2seq
from apformer.commands import report as page
from apformer.commands import train
from apformer.formats import weights as weights_
from apformer.report import sections, template
from apformer.runs import restore
from apformer.runs.metrics import read_metrics
from apformer.tasks.progressions import page_data, recipes

SOURCE = Path(template.__file__).parent / "page"


@pytest.fixture
def run(made_run):
    return made_run("progressions")


@pytest.fixture
def copy(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "copy"))


def read(path):
    """(data, weights) of a page."""
    blocks = dict(re.findall(r'<script id="(\w+)" type="[^"]+">(.*?)</script>', path.read_text(), re.DOTALL))
    return json.loads(blocks["run"]), np.frombuffer(base64.b64decode(blocks["weights"]), "<f4")


def report(path, *flags):
    assert cli.main(["report", str(path), *flags]) == 0
    return read(path / "report.html")


def measured(path):
    """What a page says without its model, which is much to ask."""
    return report(path, "--no-weights")


def test_a_page_holds_the_run_and_its_model(run):
    data, weights = read(run / "report.html")
    settings = restore.load_settings(run)
    params, _, _ = restore.load_params(run, settings)
    leaves = weights_.named(params)
    assert [(leaf["name"], tuple(leaf["shape"])) for leaf in data["leaves"]] == [
        (n, p.shape) for n, p in leaves.items()
    ]
    np.testing.assert_array_equal(weights, np.concatenate([np.ravel(leaf) for leaf in leaves.values()]))
    assert data["parameters"] == len(weights) and data["settings"] == files.read_json(run / "config.json")["flags"]
    assert data["model"] == data["settings"]["model"]
    evaluation = files.read_json(run / "evaluation.json")
    assert data["facts"][0][2] == f"of {evaluation['terms']} held-out terms"
    by_position = data["right"]["blocks"][0]
    assert sum(by_position["counts"]) == evaluation["terms"] and by_position["at"][0] == 3
    assert len(data["wrong"]["rows"]) == len(evaluation["errors"]) > 0
    assert {len(groups) for groups in data["wrong"]["groups"].values()} == {len(evaluation["errors"])}
    assert f"wrong. `apformer certify {run}` finds" in data["missing"]["certificate"] and data["certificate"] is None
    assert data["metrics"][-1]["step"] == 2 and data["floor"]["nats"] > 0
    assert len(data["ablation"]) == 1 + 2 * 2 + 2 + 6
    assert np.shape(data["embedding"]["points"]) == (11, 2)


def test_a_page_asks_for_nothing(run):
    text = (run / "report.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]* (?:src|href)=", text)
    addresses = set(re.findall(r"https?://[^\s\"'`<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a namespace


def test_no_text_ends_the_block_it_stands_in(tmp_path):
    text = template.fill({"vocabulary": ["</script>", "<!--", "é\u2028"]}, None)
    (tmp_path / "page.html").write_text(text)
    assert read(tmp_path / "page.html")[0]["vocabulary"] == ["</script>", "<!--", "é\u2028"]


def test_the_page_of_the_default_model_is_small():
    cfg = recipes.exact(3).model
    shapes = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    text = template.fill({}, weights_.named(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)))
    assert len(text) < 1_000_000


def test_without_its_model_a_page_says_why(copy, monkeypatch, capsys):
    data, weights = report(copy, "--no-weights")
    assert "--no_weights" in data["missing"]["weights"] and not len(weights) and not data["leaves"]
    monkeypatch.setattr(page, "LARGEST", 1000)
    data, weights = report(copy)
    assert re.fullmatch("The model is too large for a page: 0 MB of weights.", data["missing"]["weights"])
    assert "without the model, whose weights are 0 MB" in capsys.readouterr().err and not len(weights)


def test_what_a_run_lacks_is_said(copy):
    (copy / "metrics.jsonl").write_text("{torn")
    (copy / "evaluation.json").unlink()
    data, _ = measured(copy)
    assert "metrics.jsonl is damaged" in data["missing"]["metrics"] and data["metrics"] is None
    assert data["facts"] == [] and data["right"]["blocks"] is data["wrong"]["rows"] is None


@pytest.mark.parametrize("change", [{"by_position": [{"count": "x"}]}, {"errors": 7}])
def test_an_evaluation_of_other_values_is_said_to_be_damaged(copy, change):
    files.write_json(copy / "evaluation.json", files.read_json(copy / "evaluation.json") | change)
    data, _ = measured(copy)
    assert re.match(r"evaluation.json is damaged .*: run `apformer evaluate` again.$", data["missing"]["evaluation"])
    assert data["right"]["blocks"] is data["wrong"]["rows"] is None


def test_a_certificate_is_shown_if_it_is_of_these_weights_and_its_numbers_if_they_are_finite(copy):
    said = files.read_json(copy / "evaluation.json")
    proof = dict.fromkeys(page.CERTIFICATE) | {name: said[name] for name in page.IDENTITY}
    proof |= page.header(restore.load_settings(copy))
    for found, fault in (
        ("words", "is damaged or of another version"),
        (proof | {"data": {}}, "is damaged or of another version"),
        (proof | {"step": 7, "parameters_sha256": "0" * 64}, "is of other parameters, of step 7 and member 0"),
    ):
        files.write_json(copy / "certificate.json", found)
        data, _ = measured(copy)
        assert data["certificate"] is None
        assert data["missing"]["certificate"] == f"certificate.json {fault}: run `apformer certify` again."
    (copy / "certificate.json").write_text(json.dumps(proof | {"smallest_margin": "X"}).replace('"X"', "NaN"))
    assert measured(copy)[0]["certificate"]["smallest_margin"] is None


def test_a_model_that_the_page_cannot_run_is_left_out_and_the_rest_is_shown(copy, monkeypatch):
    monkeypatch.setitem(template.COMPUTED, "position", ("learned",))
    data, weights = report(copy)
    assert data["missing"]["weights"] == "This page cannot run a model with position relative." and not len(weights)
    assert len(data["ablation"]) > 1 and data["right"]["blocks"] and data["embedding"]


def test_the_page_runs_or_refuses_every_kind_of_model_that_there_is():
    for name, module in (("model", model), ("seq2seq", seq2seq), ("recurrent", recurrent)):
        assert template.refusal(name, module.Config()) is None
        for field in dataclasses.fields(module.Config):
            choices = get_args(field.type)
            for choice in set(choices) - {*template.COMPUTED.get(field.name, choices)}:
                refused = f"This page cannot run a model with {field.name} {choice}."
                assert (
                    template.refusal(name, SimpleNamespace(**vars(module.Config()) | {field.name: choice})) == refused
                )
    assert template.refusal("mamba", model.Config()) == "This page cannot run a model of the architecture mamba."


def test_the_loss_of_a_training_file_has_no_floor(run):
    settings = restore.load_settings(run)
    settings = replace(settings, options=replace(settings.options, dataset="rows.txt"))
    assert page_data.page(settings, None, None, None, run)["floor"] is None


def test_a_missing_data_set_leaves_out_what_is_asked_of_it(made_run, tmp_path):
    path = shutil.copytree(made_run("text"), tmp_path / "run")
    file = made_run("text").parent / "bottles.txt"
    file.rename(tmp_path / "bottles.txt")
    try:
        data, weights = report(path)
    finally:
        (tmp_path / "bottles.txt").rename(file)
    assert "bottles.txt cannot be read" in data["missing"]["probe"] and "ablation" not in data and len(weights)


def test_a_member_is_shown_that_is_asked_for_and_one_that_diverged_is_named(
    made_run, tmp_path, says, fails, without_figures
):
    path = shutil.copytree(made_run("members"), tmp_path / "run")
    best, _ = read(path / "report.html")
    assert best["member"] == 0 and best["diverged"] == []
    data, _ = report(path, "--member", "3", "--no-weights")
    assert data["member"] == 3 and "member 0: run `apformer evaluate` again" in data["missing"]["evaluation"]
    assert data["parameters_sha256"] != best["parameters_sha256"]
    fails("--member 4 is out of range", errors.USAGE, "report", path, "--member", 4)
    lines = read_metrics(path)
    lines[-1]["loss"][2] = None
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = says("evaluate", path)
    assert "\nDiverged, and left out: member 2 at step 2.\n" in said and "\nmean ± sd " in said
    found = files.read_json(path / "evaluation.json")
    assert found["diverged"] == [{"member": 2, "step": 2}] and [each["member"] for each in found["members"]] == [
        0,
        1,
        3,
    ]
    assert measured(path)[0]["diverged"] == [{"member": 2, "step": 2}]
    (path / "metrics.jsonl").write_text("{torn")
    assert measured(path)[0]["member"] == 0  # which is the best is told by the checkpoint


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("facts", "many", "page() returned facts 'many' where a list is needed"),
        ("wrong", {"title": "Wrong", "lead": ""}, "page() returned wrong without head, rows"),
    ],
)
def test_what_a_page_cannot_do_without_is_named(name, value, sentence):
    shown = {"vocabulary": ["0"], "task": {}, "facts": [], "right": {"title": "", "lead": "", "blocks": None}}
    assert sections.check(shown) == shown
    with pytest.raises(TypeError, match=re.escape(sentence)):
        sections.check(shown | {name: value})


def test_a_page_that_cannot_be_written_loses_no_run(monkeypatch, tmp_path):
    def fail(*_):
        raise OSError("no ink")

    monkeypatch.setattr(page, "write", fail)
    assert re.match("No page: no ink; .*`apformer report .*run`", train._page(tmp_path / "run", None, None))


def test_wrong_terms_are_marked_and_grouped():
    group = {"count": 2, "teacher_forced": 0.5, "free_running": 0.0}
    error = {"row": "095 107 119 131", "term": 4, "expected": " 131", "predicted": " 121"}
    found = dict.fromkeys(("exact_teacher_forced", "exact_free_running", "exact_sequences", "nats_per_char"), 0.0)
    found |= {
        "terms": 2,
        "errors": [error],
        "by_position": [group | {"term": 3}],
        "by_carries": [group | {"carries": 0}],
        "by_difference": [group | {"from": 1, "to": 500}],
        "by_first_and_difference": [[group]],
    }
    shown = page_data.page(recipes.exact(3), None, None, found, None)
    (row,) = shown["wrong"]["rows"]
    assert row[0] == {"pieces": [["095 107 119", False]], "code": True, "play": "095 107 119"}
    assert row[2]["pieces"] == [["1", False], ["2", True], ["1", False]] and row[3:6] == ["4", "12", "1"]
    said = [groups for (groups,) in shown["wrong"]["groups"].values()]
    assert said == ["1 carry", "off by 10: a carry"]
    assert "1 of 2 wrong terms are listed" in shown["wrong"]["lead"]
    position, carries, *_, cells = shown["right"]["blocks"]
    assert (position["at"], position["counts"], position["series"]["teacher-forced"]) == ([3], [2], [0.5])
    assert carries["groups"][0]["values"] == [0.5, 0.0] and cells["cells"] == [[{"count": 2, "share": 0.0}]]


def test_the_template_is_what_its_source_makes(tmp_path):
    if not (SOURCE / "node_modules" / "esbuild").is_dir() or shutil.which("node") is None:
        pytest.skip("needs node and `npm ci` in apformer/report/page")
    subprocess.run(["node", str(SOURCE / "build.mjs"), str(tmp_path / "template.html")], check=True)
    built, kept = ((folder / "template.html").read_bytes() for folder in (tmp_path, SOURCE.parent))
    assert built == kept, "run `npm run build` in apformer/report/page and commit template.html"
