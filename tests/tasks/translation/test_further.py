"""A translator trained further begins where the other run ended, keeps its vocabulary, and no longer needs it then."""

import shutil
from pathlib import Path

import jax
import pytest

from apformer import cli
from apformer.errors import CHECKPOINT, USAGE
from apformer.files import read_json, write_json
from apformer.runs import restore
from apformer.runs.metrics import read_metrics
from apformer.tasks.translation import recipes
from tests.tasks.translation.conftest import train

pytestmark = pytest.mark.long


def config_of(run):
    return read_json(run / "config.json")


def test_it_begins_with_the_model_and_the_vocabulary_of_a_run_that_may_then_be_gone(first, texts, tmp_path, capsys):
    source, run = Path(shutil.copytree(first, tmp_path / "source")), tmp_path / "run"
    capsys.readouterr()
    assert train("a", run, "--init_from", str(source), "--dropout", "0.2") == 0
    best = min(line["validation_loss"] for line in read_metrics(first) if "validation_loss" in line)
    said = capsys.readouterr()
    assert f"validation loss before the first step: {best:.4f}" in said.err
    assert f"translate {run} 'a dog runs.'" in said.out
    assert (run / "tokenizer.json").read_text() == (first / "tokenizer.json").read_text()
    shape = restore.load_settings(run).model
    assert (shape.dropout, shape.d_model) == (0.2, 16)
    trained, given = (jax.tree.leaves(restore.load(path).params) for path in (run, first))
    assert all((leaf != other).any() for leaf, other in zip(trained, given, strict=True))
    shutil.rmtree(source)
    losses = [line["loss"] for line in read_metrics(run)]
    for step in (4, 6):
        shutil.rmtree(run / "checkpoints" / str(step))
    assert cli.main(["resume", str(run)]) == 0
    assert [line["loss"] for line in read_metrics(run)] == losses
    assert cli.main(["translate", str(run), "a bird flies."]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence", "code"),
    [
        (["--d_model", "32"], "--d_model 32 contradicts --init_from {first}, whose d_model is 16: drop", USAGE),
        (["--vocabularies", "apart"], "--vocabularies apart contradicts --init_from {first}", USAGE),
        (["--init_from", "nowhere"], "nowhere is not a directory: name a run of translation", USAGE),
        (["--init_from", "gpt2"], "gpt2 is no run: name a run of translation", USAGE),
        (["--init_from", "damaged"], "damaged/config.json is damaged or of another version", CHECKPOINT),
        (["--init_from", "sums"], "sums is a run of sums: name a run of translation", USAGE),
    ],
)
def test_what_contradicts_the_run_is_refused_by_name(flags, sentence, code, first, texts, tmp_path, capsys):
    config = config_of(first)
    others = {"sums": config | {"task": "sums"}, "gpt2": {"n_layer": 2}, "damaged": config | {"flags": {}}}
    for name, other in others.items():
        (texts / name).mkdir(exist_ok=True)
        write_json(texts / name / "config.json", other)
    given = flags if "--init_from" in flags else ["--init_from", str(first), *flags]
    capsys.readouterr()
    assert train("b", tmp_path / "run", *given) == code
    assert sentence.format(first=first) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_recipes_that_do_not_read_the_run_and_files_that_are_forgotten_are_named(first, texts, tmp_path, fails):
    flags = ["--init_from", str(first), "--run_dir", str(tmp_path / "run")]
    for recipe, sentence in (
        ("base", "--init_from is not a flag of --recipe base: give --recipe translate, or drop"),
        ("translate", f"--init_from {first} was trained on files: give --source and --target"),
    ):
        fails(sentence, USAGE, "train", "--recipe", recipe, *flags)


def test_settings_follow_those_of_the_run(first, texts, tmp_path):
    """Its languages, largest number and learned positions; an older version takes the defaults; steps are smaller."""
    config = config_of(first)
    del config["flags"]["data"]["vocabularies"]
    config["flags"]["data"] |= dict.fromkeys(("source", "target", "validation", "test"))
    config["flags"]["data"] |= {"from_language": "es", "to_language": "de", "largest": 999}
    config["flags"]["model"] |= {"position": "learned", "max_len": 40}
    write_json(tmp_path / "config.json", config)
    settings = recipes.translate(init_from=str(tmp_path))
    data = settings.data
    assert (data.from_language, data.to_language, data.largest, data.byte_pairs) == ("es", "de", 999, 270)
    assert (data.vocabularies, data.longest) == ("shared", 40)
    assert recipes.base("a.en").data.to_language == ""
    assert settings.optimizer.learning_rate == recipes.translate().optimizer.learning_rate / 4
