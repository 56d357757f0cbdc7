"""A run on terms of many widths: trained, evaluated width by width, certified or told why it cannot be."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, model
from apformer.commands import train
from apformer.layers.position import periodic
from apformer.report import tables
from apformer.runs import fit, recipes
from apformer.tasks.digits import (
    certificate,
    continuation,
    dataset,
    evaluation,
    generator,
    training,
)
from tests.helpers.commands import fails

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe digits --digits 3 --d_model 16 --n_heads 2 --d_ff 16 --steps 4 --log_every 2 --save_every 4 "
    "--batch_size 8 --test_sequences 6 --rule adamw --hard_fraction 0"
).split()
LSB_FLAGS = [*FLAGS, "--order", "lsb", "--n_layers", "1"]
LSB = recipes.parse(LSB_FLAGS)


@pytest.fixture(autouse=True)
def small_suites(monkeypatch):
    monkeypatch.setattr(training, "VALIDATION_ROWS", 16)
    monkeypatch.setattr(evaluation, "widths", lambda cfg: [cfg.digits])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of each order: least significant digit first trained, most significant as it begins."""
    paths = {order: tmp_path_factory.mktemp("runs") / order for order in ("lsb", "msb")}
    settings = recipes.parse([*FLAGS, "--run_dir", str(paths["msb"])])
    train.keep(settings, fit.initial_state(settings).params)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "VALIDATION_ROWS", 16)
        patch.setattr(evaluation, "widths", lambda cfg: [cfg.digits])
        assert cli.main(["train", *LSB_FLAGS, "--run_dir", str(paths["lsb"])]) == 0
    return paths


def test_what_a_run_says_and_keeps(run):
    result = json.loads((run["lsb"] / "evaluation.json").read_text())
    assert [(suite["digits"], suite["rows"]) for suite in result["widths"]] == [(3, "random"), (3, "adversarial")]
    assert all(suite["terms"] == 12 for suite in result["widths"]) and result["order"] == "lsb"
    assert "least significant digit first" in evaluation.table(result)
    drawn = {file.stem for file in (run["lsb"] / "figures").iterdir()}
    assert drawn == {"loss", "accuracy_by_width", "attention", "architecture"}


def test_the_evaluation_of_a_run_is_printed(run, capsys):
    assert cli.main(["evaluate", str(run["lsb"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run["lsb"] / "evaluation.json").read_text())


def test_prompts_are_of_any_one_width_in_the_order_of_the_run(run, capsys):
    for order, prompt in (("lsb", "700000000000 010000000000"), ("msb", "000000000007 000000000010")):
        assert cli.main(["predict", str(run[order]), prompt, "--terms", "2"]) == 0
        assert len(capsys.readouterr().out) == 2 * 13
    fails(capsys, "term 2, 010, has width 3", errors.DATA, "predict", run["lsb"], "70 010")
    fails(capsys, "no progression: terms 2 and 3 differ by 3 ", errors.DATA, "predict", run["lsb"], "70 80 11")
    fails(
        capsys, "terms have 100001 digits; use at most 100000", errors.DATA, "predict", run["msb"], "1" * 100_001 + " 2"
    )
    assert cli.main(["predict", str(run["lsb"]), "00009 00059", "--terms", "2"]) == 0
    assert "no longer fits the digits" in capsys.readouterr().err  # 90000, 95000, and then 100000


def test_each_prompt_of_a_file_has_a_width_of_its_own(run, capsys, tmp_path):
    lines = ["700 010 310", "0 1 2", "00009 00059", "12 34", "9 8"]
    (tmp_path / "prompts.txt").write_text("\n".join(lines))
    assert cli.main(["predict", str(run["lsb"]), "--file", str(tmp_path / "prompts.txt"), "--terms", "2"]) == 0
    together = capsys.readouterr().out.splitlines()
    assert [len(text) for text in together] == [7, 3, 0, 5, 3]  # after 95000 comes 100000
    for line, text in zip(lines, together, strict=True):
        assert cli.main(["predict", str(run["lsb"]), line, "--terms", "2"]) == 0
        assert capsys.readouterr().out == text + "\n"
    (tmp_path / "prompts.txt").write_text("7 8\n07 8\n")
    fails(
        capsys,
        "prompts.txt, line 2: term 2, 8, has",
        errors.DATA,
        "predict",
        run["lsb"],
        "--file",
        tmp_path / "prompts.txt",
    )


def test_numbers_may_be_longer_than_python_reads_by_itself():
    line = f"{'0' * 5000} {'9' * 4999}0"
    assert continuation.read([line], "x", "lsb") == [(0, 10**4999 - 1, 2)]
    with pytest.raises(errors.UserError, match=r"^x, line 1: term 2, 11111111111111111111\.\.\.1111"):
        continuation.read([f"{'1' * 4999} {'1' * 5000}"], "x", "lsb")


def test_rows_of_a_file_are_all_that_is_trained_on(capsys, tmp_path):
    file, path = tmp_path / "rows.txt", tmp_path / "run"
    file.write_text("700 010 310 610\n1 2 3\n90 40 98\n1 2 3\n")  # 7 10 13 16, and 9 4 89 is none
    fails(capsys, "line 3: is no progression", errors.DATA, "train", *LSB_FLAGS, "--dataset", file)
    file.write_text("700 010 310 610\n1 2 3\n90 40\n")
    fails(capsys, "line 3: holds 2 terms: give three or", errors.DATA, "train", *LSB_FLAGS, "--dataset", file)
    file.write_text("700 010 310 610\n1 2 3\n0 1 2 3 4\n")
    fails(capsys, "line 3: holds 5 terms: give --crop_terms 5", errors.DATA, "train", *LSB_FLAGS, "--dataset", file)
    file.write_text("7000 0100 3100 6100\n")
    fails(capsys, "line 1: terms have 4 digits; use at most 3", errors.DATA, "train", *LSB_FLAGS, "--dataset", file)
    file.write_text("700 010 310 610\n1 2 3\n1 2 3\n")
    settings, rows = dataset.load(recipes.parse([*LSB_FLAGS, "--dataset", str(file), "--hard_fraction", "0.5"]))
    assert rows.tokens_BT[1].tolist() == [1, 10, 2, 10, 3] + 10 * [0]
    assert rows.weights_BT.sum(1).tolist() == [8, 2, 2]  # the spaces before the terms that count, and their digits
    assert rows.weights_BT[0].tolist() == 7 * [0] + 8 * [1] and rows.term_BT[0, 6:9].tolist() == [1, 2, 2]
    drawn = training.sample(jax.random.key(0), settings, dataset.train_rows(rows))
    assert {row.tobytes() for row in np.asarray(drawn.tokens_BT)} == {row.tobytes() for row in rows.tokens_BT}
    assert cli.main(["train", *LSB_FLAGS, "--dataset", str(file), "--run_dir", str(path)]) == 0
    assert json.loads((path / "config.json").read_text())["data"]["rows"] == 2


def test_a_certificate_is_for_what_depends_on_few_digits(run, capsys, monkeypatch):
    msb = recipes.parse(FLAGS)
    periodic_too = replace(msb, model=replace(msb.model, position="periodic", position_options=None))
    assert "carries from all places below" in certificate.unbounded(periodic_too)
    assert "--residual True lets it see" in certificate.unbounded(replace(msb, model=replace(msb.model, residual=True)))
    assert cli.main(["certify", str(run["msb"]), "--json"]) == errors.NOT_CERTIFIED  # untrained
    assert json.loads(capsys.readouterr().out)["outside_difference"] == 0
    few = {where: (tokens_BT[::500], right_B[::500]) for where, (tokens_BT, right_B) in certificate.contexts().items()}
    monkeypatch.setattr(certificate, "contexts", lambda: few)
    monkeypatch.setattr(certificate, "WIDTHS", (5,))
    assert cli.main(["certify", str(run["lsb"]), "--json"]) == errors.NOT_CERTIFIED
    result = json.loads(capsys.readouterr().out)
    assert not result["certified"] and result["errors"] > 0 and result["outside_difference"] == 0
    assert result == json.loads((run["lsb"] / "certificate.json").read_text())
    assert "NOT CERTIFIED" in tables.certificate(result)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_options": periodic.Scheme(near=2)},
        {"n_layers": 3},
        {"window": 9},
        {"position_options": periodic.Scheme(span_heads=1)},
        {"position": "relative", "position_options": None},
    ],
)
def test_models_that_see_more_are_not_certified(changes):
    assert certificate.unbounded(LSB) is None
    assert "sees other tokens" in certificate.unbounded(replace(LSB, model=replace(LSB.model, **changes)))


def test_flags_that_no_such_run_can_follow(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, pattern in (
        (["--digits", "0"], "--digits 0 does not fit: give 1 to 1000"),
        (["--prefix_rows", "3"], "--prefix_rows is a flag of --recipe exact"),
        (["--position_offset", "3"], "--position_offset is a flag of --recipe exact"),
        (["--max_difference", "3"], "--max_difference"),
        (["--order", "lsb", "--span_heads", "9"], "--span_heads 9 is not in 0 to n_heads 8"),
        (["--window", "3"], "window 3 hides tokens that position ahead reads"),
        (["--n_layers", "2"], "n_layers 2 is not 3"),
        (["--order", "lsb", "--near", "0"], "--near 0 is less than 1"),
        (["--score_noise", "nan"], "--score_noise nan is no finite number of at least 0"),
        (["--order", "lsb", "--logit_scale", "inf"], "--logit_scale inf is no finite number above 0"),
        (["--position", "somewhere"], "--position somewhere is none of ahead, alibi, "),
        (["--position", "rotary", "--near", "2"], "nrecognized"),
        (["--attention_sink", "--weighting", "geometric"], "attention_sink is for a softmax"),
        (["--separator", "3"], "--separator 3 is out of range: give 10"),
        (["--order", "middle"], "order"),
    ):
        fails(capsys, pattern, errors.USAGE, "train", "--recipe", "digits", *flags)
    assert not list(Path().iterdir())


def test_training_rows_have_all_widths_and_the_hardest_are_kept():
    cfg = recipes.parse([*LSB_FLAGS, "--batch_size", "40", "--hard_fraction", "0.25"])
    batch = jax.jit(training.sample, static_argnums=1)(jax.random.key(0), cfg)
    assert len(batch.tokens_BT) == 30 + 4 * 10
    periods = {int(np.argmax(row == generator.SPACE)) + 1 for row in np.asarray(batch.tokens_BT)}
    assert periods == {2, 3, 4}
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(1), cfg.model)
    loss_fn = jax.jit(training.make_loss(cfg))
    hardest, metrics = loss_fn(params, batch, jax.random.key(2))
    assert 0 < float(metrics["loss"]) < float(hardest) and 0 <= float(metrics["exact"]) <= 1


def test_a_term_is_right_when_all_its_characters_are():
    tokens_BT = jnp.asarray([[1, 10, 2, 10, 3, 10, 4]], jnp.int32)
    weights_BT = jnp.asarray([[0, 0, 0, 1, 1, 1, 1]], jnp.float32)
    batch = generator.Batch(tokens_BT, weights_BT, jnp.asarray([[0, 1, 1, 2, 2, 3, 3]], jnp.int32))
    for wrong, share in ((None, 1.0), (1, 1.0), (3, 0.5), (4, 0.5), (6, 0.5)):
        predicted_BT = tokens_BT[:, 1:] if wrong is None else tokens_BT.at[0, wrong].set(9)[:, 1:]
        assert float(training.exact(predicted_BT, batch, 4)) == share


def test_the_recipe_says_where_its_flags_start():
    assert recipes.parse("--recipe digits".split()).data == generator.Config(6, "msb")
    lsb = recipes.parse("--recipe digits --order lsb --digits 10".split())
    assert lsb.data == generator.Config(10, "lsb") and lsb.model.position_options == periodic.Scheme()
    assert training.example(lsb, "RUN") == 'apformer predict RUN "7000 0100 3100" --terms 3'
    assert '"0 3 6"' in training.example(replace(lsb, data=generator.Config(1)), "RUN")
