"""A recipe is where the flags start; settings that no run can follow are refused, and config.json holds the rest."""

import dataclasses
import json
from contextlib import nullcontext

import pytest

from apformer import model
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.runs import fit, recipes
from apformer.tasks import settings_file
from apformer.tasks.progressions.recipes import exact
from tests.helpers.refusals import refused


@pytest.mark.parametrize(("words", "warmup"), [("", 0), ("--steps 101", 100), ("--warmup_steps 100", 100)])
def test_the_warm_up_of_a_recipe_fits_a_short_run_unless_a_flag_gives_it(words, warmup):
    assert recipes.parse(["--steps", "4", *words.split()]).optimizer.warmup_steps == warmup


def test_the_sketch_is_the_plain_model():
    settings = recipes.parse(["--recipe=sketch"])
    assert settings.model == model.Config(n_layers=4, embedding_std=1.0)
    assert settings.training.recipe == "sketch"


def test_exact_is_the_default_and_its_window_reaches_the_term_before():
    settings = recipes.parse([])
    assert settings == recipes.parse(["--recipe=exact"]) == exact(3)
    assert settings.model.window == 5 and settings.model.position == "relative"
    for flag in (["--digits", "5"], ["--digits=5"]):
        assert recipes.parse(flag).model.window == 8


@pytest.mark.parametrize(
    ("flags", "canonical"),
    [
        ("--recipe=exact --recipe sketch", "--recipe sketch"),
        ("--digits 5 --digits=03", "--digits 3"),
        ("--recipe text --text a.txt --context 8 --context 016", "--recipe text --text a.txt --context 16"),
        ("--position rotary --position relative", "--position relative"),
    ],
)
def test_a_flag_is_the_last_that_is_given_however_it_is_spelt(flags, canonical):
    """What decides other flags is read as they are: else a run has the name of one recipe, and the model of another."""
    assert recipes.parse(flags.split()) == recipes.parse(canonical.split())


@pytest.mark.parametrize(("recipe", "digits", "largest"), [("exact", 1, 9), ("sketch", 2, 99), ("exact", 9, 500)])
def test_differences_fit_the_digits(recipe, digits, largest):
    data = recipes.parse(["--recipe", recipe, "--digits", str(digits)]).data
    assert (data.digits, data.min_difference, data.max_difference) == (digits, 1, largest)


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        ("--n_heads 3 --d_model 128", "--d_model 128 is not a multiple of n_heads 3"),
        ("--n_heads 1 --d_model 99999999999", "--d_model 99999999999 is out of range"),
        ("--min_lr 2 --learning_rate 1", "--min_lr 2.0 is out of range: give 0 to --learning_rate, 1.0"),
        ("--crop_terms 2", "--crop_terms 2 is out of range: give 3 to"),
        ("--digits 999999999999", "--digits 999999999999 is out of range: give 1 to 9"),
        ("--seed 2147483647 --members 2", "--seed 2147483647 is out of range: give 0 to 2147483646"),
        ("--learning_rate 0", "--learning_rate 0.0 is out of range: give more than 0 and less than 10"),
        ("--vocab_size 12", "--vocab_size 12 is out of range: give 11"),
        ("--position learned --max_len 398", "--max_len 398 ends before the longest row: give 399 or more"),
        (
            "--recipe translate --source a --target b --d_model 6 --n_heads 4",
            "--d_model 6 is not a multiple of n_heads 4",
        ),
        ("--recipe skech", "--recipe skech is none of .*exact, bayes, sketch, .*: give one of these"),
        ("--d_modle 128", "did you mean --d_model"),
        ("--recipe recurrent --own_positions", "--own_positions is for transformers: drop it"),
        ("--recipe recurrent --remat", "--remat is for transformers: drop it"),
    ],
)
def test_what_no_run_can_follow_is_refused_with_what_fits(flags, pattern):
    with refused(USAGE, pattern):
        recipes.parse(flags.split())


def assert_survives(settings):
    config = json.loads(json.dumps(settings_file.to_dict(settings)))
    assert settings_file.from_dict(config, "config.json") == settings


@pytest.mark.parametrize(
    "flags", [[], ["--recipe", "sketch", "--dataset", "rows.txt"], ["--d_ff", "3", "--members", "4"]]
)
def test_settings_survive_config_json(flags):
    assert_survives(recipes.parse(flags))


@pytest.mark.parametrize(("weighting", "fits"), [("softmax", True), ("geometric", False)])
def test_flags_that_are_gone_are_left_out_where_they_ask_for_what_there_is(weighting, fits):
    config = json.loads(json.dumps(settings_file.to_dict(exact(3))))
    config["flags"]["model"] |= {"weighting": weighting, "norm_bias": True}
    config["flags"]["optimizer"] |= {"newton_steps": 0}
    config["flags"]["data"] |= {"sequences": 10_000}
    with nullcontext() if fits else pytest.raises(UserError, match="of another version of apformer .*weighting"):
        assert settings_file.from_dict(config, "config.json") == exact(3)


def test_a_whole_number_may_stand_for_a_real_one():
    assert_survives(dataclasses.replace(exact(3), model=model.Config(dropout=0)))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("model", "d_model", 64.0),
        ("model", "window", True),
        ("model", "n_heads", 3),
        ("model", "norm", "layr"),
        ("model", "heads", 2),
        ("training", "steps", None),
        ("data", "digits", 0),
    ],
)
def test_a_config_json_that_was_changed_is_refused(part, field, value):
    config = settings_file.to_dict(exact(3))
    config["flags"][part][field] = value
    with refused(CHECKPOINT, "^runs/x/config.json is damaged or of another version"):
        settings_file.from_dict(config, "runs/x/config.json")


NAMED = {"task": "progressions", "architecture": "model"}


@pytest.mark.parametrize(
    "config",
    [None, {"model": {}}, NAMED, NAMED | {"flags": {"training": 1, "model": 1, "data": 1}}],
)
def test_a_config_json_without_settings_is_refused(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with refused(CHECKPOINT, "config.json"):
        settings_file.read(tmp_path)


def test_checkpoints_are_due_where_metrics_are_written():
    run = recipes.parse("--steps 130 --log_every 20 --save_every 50".split()).training
    assert [step for step in (*range(0, 130, 20), 130) if fit.on_schedule(step, run)] == [0, 60, 120, 130]
