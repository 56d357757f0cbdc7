"""A translator trained further begins where the other run ended, keeps its vocabulary, and no longer needs it then."""

import json
import shutil

import jax
import pytest

from apformer import cli, errors
from apformer.runs import restore
from apformer.tasks.translation import recipes

pytestmark = pytest.mark.long

PAIRS = {
    "a.en": ["a dog runs.", "a cat sits.", "two dogs run.", "a man sings."] * 40,
    "a.de": ["ein Hund rennt.", "eine Katze sitzt.", "zwei Hunde rennen.", "ein Mann singt."] * 40,
    "b.en": ["a bird flies.", "two cats sit."] * 40,
    "b.de": ["ein Vogel fliegt.", "zwei Katzen sitzen."] * 40,
}
SHAPE = "--d_model 16 --n_heads 2 --n_encoder_layers 1 --n_decoder_layers 1 --d_ff 16 --byte_pairs 270".split()
FEW = "--steps 6 --log_every 2 --save_every 2 --batch_size 4 --longest 40 --warmup_steps 2".split()


def train(name, run, *flags):
    files = ["--source", f"{name}.en", "--target", f"{name}.de"]
    sets = ["--validation", f"{name}.en", f"{name}.de", "--test", f"{name}.en", f"{name}.de"]
    return cli.main(["train", "--recipe", "translate", *files, *sets, *FEW, *flags, "--run_dir", str(run)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    for name, lines in PAIRS.items():
        (path / name).write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def texts(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def first(texts):
    """The directory of a run that was trained on the pairs a."""
    run = texts / "first"
    if not run.exists():
        assert train("a", run, *SHAPE) == 0
    return run


@pytest.mark.usefixtures("without_pictures")
def test_it_begins_with_the_model_and_the_vocabulary_of_the_run(first, texts, tmp_path, capsys):
    capsys.readouterr()
    assert train("a", tmp_path / "again", "--init_from", str(first)) == 0
    said = capsys.readouterr().err
    losses = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    best = min(line["validation_loss"] for line in losses if "validation_loss" in line)
    assert f"validation loss before the first step: {best:.4f}" in said
    assert train("b", tmp_path / "other", "--init_from", str(first), "--dropout", "0.2") == 0
    assert (tmp_path / "other" / "tokenizer.json").read_text() == (first / "tokenizer.json").read_text()
    shape, theirs = (restore.load_settings(path).model for path in (tmp_path / "other", first))
    assert shape.dropout == 0.2 and shape.d_model == theirs.d_model == 16
    trained, given = (jax.tree.leaves(restore.load(path).params) for path in (tmp_path / "other", first))
    assert all((leaf != other).any() for leaf, other in zip(trained, given, strict=True))


@pytest.mark.usefixtures("without_pictures")
def test_the_run_that_it_came_from_may_be_gone(first, texts, tmp_path, capsys):
    source, run = tmp_path / "source", tmp_path / "run"
    shutil.copytree(first, source)
    assert train("b", run, "--init_from", str(source)) == 0
    whole = (run / "metrics.jsonl").read_text().splitlines()
    shutil.rmtree(source)
    for step in (4, 6):
        shutil.rmtree(run / "checkpoints" / str(step))
    assert cli.main(["resume", str(run)]) == 0
    again = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in again] == [json.loads(line)["loss"] for line in whole]
    assert cli.main(["evaluate", str(run)]) == 0
    capsys.readouterr()
    assert cli.main(["translate", str(run), "a bird flies."]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence", "code"),
    [
        (["--d_model", "32"], "--d_model 32 contradicts --init_from {first}, whose d_model is 16: drop", errors.USAGE),
        (["--vocabularies", "apart"], "--vocabularies apart contradicts --init_from {first}", errors.USAGE),
        (
            ["--byte_pairs", "260"],
            "--byte_pairs 260 contradicts --init_from {first}, whose byte_pairs is 270",
            errors.USAGE,
        ),
        (["--byte_pairs", "4000"], "--byte_pairs 4000 contradicts --init_from {first}, whose", errors.USAGE),
        (["--init_from", "nowhere"], "nowhere is not a directory: name a run of --recipe translate", errors.USAGE),
        (["--init_from", "empty"], "empty holds no run (no config.json): name a run of --recipe", errors.USAGE),
        (["--init_from", "gpt2"], "gpt2 is no run of apformer: name a run of --recipe translate", errors.USAGE),
        (["--init_from", "damaged"], "damaged/config.json is damaged or of another version", errors.CHECKPOINT),
        (["--init_from", "sums"], "sums was not trained to translate: name a run of --recipe", errors.USAGE),
    ],
)
def test_what_contradicts_the_run_is_refused_by_name(flags, sentence, code, first, texts, tmp_path, capsys):
    config = json.loads((first / "config.json").read_text())
    others = {"sums": config | {"task": "sums"}, "gpt2": {"n_layer": 2}, "damaged": config | {"flags": {}}}
    for name, other in others.items():
        (texts / name).mkdir(exist_ok=True)
        (texts / name / "config.json").write_text(json.dumps(other))
    (texts / "empty").mkdir(exist_ok=True)
    given = flags if "--init_from" in flags else ["--init_from", str(first), *flags]
    capsys.readouterr()
    assert train("b", tmp_path / "run", *given) == code
    assert sentence.format(first=first) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_only_recipes_that_read_the_run_take_it(first, texts, tmp_path, capsys):
    files = ["--source", "b.en", "--target", "b.de", "--init_from", str(first)]
    assert cli.main(["train", "--recipe", "base", *files, "--run_dir", str(tmp_path / "run")]) == errors.USAGE
    assert "--init_from is no flag of --recipe base: give --recipe translate, or drop" in capsys.readouterr().err


def test_files_are_not_forgotten(first, texts, tmp_path, capsys):
    flags = ["--recipe", "translate", "--init_from", str(first), "--run_dir", str(tmp_path / "run")]
    assert cli.main(["train", *flags]) == errors.USAGE
    assert f"--init_from {first} was trained on files: give --source and --target" in capsys.readouterr().err


def test_settings_of_an_older_version_take_the_defaults(first, texts, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(first, old)
    config = json.loads((old / "config.json").read_text())
    del config["flags"]["data"]["vocabularies"]
    (old / "config.json").write_text(json.dumps(config))
    assert recipes.translate("b.en", str(old)).data.vocabularies == "shared"


def test_number_words_go_on_in_the_languages_and_to_the_number_of_the_run(first, texts, tmp_path):
    config = json.loads((first / "config.json").read_text())
    counted = {
        "source": None,
        "target": None,
        "validation": None,
        "test": None,
        "from_language": "es",
        "to_language": "de",
        "largest": 999,
    }
    config["flags"]["data"] |= counted
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = recipes.translate(init_from=str(tmp_path)).data
    assert (data.from_language, data.to_language, data.largest, data.byte_pairs) == ("es", "de", 999, 270)


def test_learned_positions_end_where_those_of_the_run_do_and_steps_are_smaller(first, texts, tmp_path):
    config = json.loads((first / "config.json").read_text())
    config["flags"]["model"] |= {"position": "learned", "max_len": 40}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = recipes.translate("b.en", str(tmp_path))
    assert settings.data.longest == 40
    assert settings.optimizer.learning_rate == recipes.translate("b.en").optimizer.learning_rate / 4
