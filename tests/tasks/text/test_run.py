"""A run on a text: trained, judged on all of its last part, and made to write."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import cli, loss
from apformer.commands import generate as command
from apformer.errors import DATA, USAGE
from apformer.files import read_json
from apformer.runs import fit, metrics, recipes, restore
from apformer.tasks.text import perplexity, training
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer
from tests.helpers.small_runs import TEXT

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe baby_gpt_cpu --d_model 16 --n_heads 2 --n_layers 2 --rule adamw --steps 8 --log_every 2 --save_every 4 "
    "--batch_size 4 --context 12"
).split()


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perplexity, "MOST_TOKENS", 180)  # several batches, the last of them filled up
        assert cli.main(["train", *FLAGS, "--text", str(file), "--run_dir", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def bound(run):
    """The model of the run's best checkpoint, `apply` compiled."""
    found = restore.load(run).model
    return replace(found, apply=Partial(jax.jit(found.apply)))


def test_a_run_keeps_its_tokenizer_and_the_cost_of_its_text(run, bound):
    rows, tokenizer = restore.load_rows(run), pretrained.load(run / "tokenizer.json")
    assert restore.load_settings(run).model.vocab_size == tokenizer.vocab_size == len(set(TEXT))
    assert tokenizer.decode(np.concatenate([rows.train, rows.validation])) == TEXT
    evaluation = read_json(run / "evaluation.json")
    tokens_N = rows.validation.astype(np.int32)
    count = len(tokens_N) - 1
    inputs_RT, targets_RT = (
        np.append(part, np.zeros(-count % 12, np.int32)).reshape(-1, 12) for part in (tokens_N[:-1], tokens_N[1:])
    )
    nats = np.ravel(loss.token_nats(bound.apply(inputs_RT), targets_RT))[:count]
    assert evaluation["tokens"] == count
    assert evaluation["nats_per_token"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert evaluation["perplexity"] == pytest.approx(math.exp(np.mean(nats)), rel=1e-5)
    assert evaluation["bits_per_character"] == pytest.approx(sum(nats) / math.log(2) / len(nats), rel=1e-5)
    assert evaluation["nats_by_position"][0] == pytest.approx(np.mean(nats[::12]), rel=1e-5)
    last = metrics.read_metrics(run)[-1]
    assert last["validation_loss"] == pytest.approx(np.mean(nats), rel=1e-5) and "exact" not in last
    figures = {file.stem for file in (run / "figures").iterdir()}
    assert figures == {"loss", "loss_by_position", "attention"}


@pytest.mark.usefixtures("without_pictures")
def test_training_stops_when_nothing_gets_better(file, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.5])

    def step_on(state, train_rows, settings, count, *_):
        return state._replace(step=state.step + count), {"loss": jnp.ones(count)}

    monkeypatch.setattr(fit, "validate", lambda *_: {"loss": np.float32(next(losses))})
    monkeypatch.setattr(fit, "run_steps", step_on)
    path = tmp_path / "run"
    flags = [*FLAGS, "--steps", "40", "--patience", "2", "--text", str(file), "--run_dir", str(path)]
    assert cli.main(["train", *flags]) == 0
    scores = [record.get("validation_loss") for record in metrics.read_metrics(path)]
    assert [score for score in scores if score is not None] == [3, 1, 2, 1.5]
    assert read_json(path / "evaluation.json")["step"] == 8  # the second checkpoint
    assert cli.main(["resume", str(path)]) == 0  # and it stays where it stopped
    assert next(losses) == 0.5


def test_byte_pairs_are_learned_from_the_training_part(file):
    pytest.importorskip("tokenizers")
    settings = recipes.parse([*FLAGS, "--text", str(file), "--tokenizer", "byte_pairs", "--vocab_size", "270"])
    settings, rows = training.load(settings)
    assert settings.model.vocab_size == 270
    assert rows.tokenizer.decode(rows.validation) == TEXT[-rows.validation_characters :]
    assert len(rows.validation) < rows.validation_characters


def test_the_command_writes_what_was_asked_for(run, says, monkeypatch):
    def written(*flags):
        return says("generate", run, "--prompt", "the ", "--tokens", 9, *flags)

    assert len(says("generate", run, "--seed", 0)) == 502  # without a prompt from the first letter, by 500
    first, again, other = (written("--seed", seed) for seed in "001")
    assert all(len(text) == 14 and text.startswith("the ") for text in (first, other))
    assert first == again == written(*"--top_p 1 --min_p 0 --repetition_penalty 1 --stop wwwwwww".split()) != other
    assert written("--temperature", "0") == written("--temperature", "0", "--seed", "1")
    several = written("--samples", "2")
    assert "--- 1 of 2\n" + first in several and "--- 2 of 2\nthe " in several
    # A text ends before a stop, and before a special token.
    assert written("--stop", first[7:10], "--stop", "wwwwwww") == first[: first.index(first[7:10], 4)] + "\n"
    stop = first[6]
    outs = written("--samples", "2", "--stop", stop), several
    shown, whole = (out.replace("--- 2 of 2\n", "--- 1 of 2\n").split("--- 1 of 2\n")[1:] for out in outs)
    assert [text[4:-1] for text in shown] == [text[4:-1].split(stop)[0] for text in whole]
    tokenizer = pretrained.load(run / "tokenizer.json")
    monkeypatch.setattr(type(tokenizer), "special_tokens", frozenset({tokenizer.characters.index(stop)}))
    assert written() == "the " + first[4:].split(stop)[0] + "\n"


def test_a_text_of_one_line_is_continued_from_its_first_character():
    tokenizer = text_tokenizer.train_characters("one line")
    assert command.first_of(text_tokenizer.train_characters("a\n")) == "\n" and command.first_of(tokenizer) == " "


def test_flags_that_cannot_be_followed(run, fails):
    for flags, sentence, exit_code in (
        (["--prompt", "?"], "--prompt '?': character 1 is '?', which the vocabulary lacks", DATA),
        (["--prompt", ""], "--prompt is empty", USAGE),
        (["--temperature", "-1"], "--temperature -1.0 is out of range", USAGE),
        (["--stop", "s", "--stop", ""], "--stop is empty", USAGE),
        (["--stop", "s?"], "--stop 's?': character 2 is '?', which the vocabulary lacks", DATA),
    ):
        fails(sentence, exit_code, "generate", run, *flags)
    fails(" is a run of text, and `apformer predict` takes runs of ", USAGE, "predict", run, "007 010")


def test_texts_that_cannot_be_trained_on(file, tmp_path, fails):
    short, empty, path = (tmp_path / name for name in ("short.txt", "empty.txt", "run"))
    short.write_text("fourteen words" + "!")
    empty.write_text("")
    for text, flags, sentence, exit_code in (
        (None, "", "--text is missing", USAGE),
        (empty, "", f"{empty} is empty: give a text to train on", DATA),
        (short, "", f"the validation part of {short} has 2 tokens, a row 13", DATA),
        (file, "--max_len 5", "--max_len 5 ends before the longest row: give 12", USAGE),
        (file, "--tokenizer nowhere", "nowhere", DATA),
        (file, "--digits 4", "--digits is a flag of --recipe exact", USAGE),
        (file, "--cell gru", "of --recipe text --architecture recurrent: give", USAGE),
        (file, "--special_tokens", "--tokenizer characters has no special tokens", USAGE),
        (file, "--recipe text --lora_rank 2", "--lora_rank 2 adapts a model that was trained before", USAGE),
    ):
        words = [*flags.split(), *(["--text", text] if text else [])]
        fails(sentence, exit_code, "train", *FLAGS, *words, "--run_dir", path)
        assert not path.exists()


def test_special_tokens_of_a_text_are_read_if_they_are_allowed(tmp_path, fails):
    library = pytest.importorskip("tokenizers")
    tokenizer = library.Tokenizer.from_str(text_tokenizer.train_byte_pairs(TEXT, 257).to_json())
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = tmp_path / "text.txt"
    text.write_text(TEXT + "<|end|>" + TEXT)
    words = [*FLAGS, "--text", str(text), "--tokenizer", str(tmp_path / "tokenizer.json")]
    named = f"the training part of {text}: character {len(TEXT) + 1} begins the special token <|end|>: give --special_t"
    fails(named, DATA, "train", *words)
    rows = training.read_rows(recipes.parse([*words, "--special_tokens"]))
    assert list(rows.train).count(257) == 1
