"""A run on a text: trained, judged on all of its last part, gone on with, and made to write."""

import json
import math
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import cli, errors, loss, model, recurrent
from apformer.commands import generate as command
from apformer.decoding import generate, stream
from apformer.decoding.bind import bind
from apformer.runs import checkpoint, fit, metrics, recipes, restore, selection, settings_file
from apformer.tasks.text import training
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer
from tests.helpers.abilities import able

pytestmark = pytest.mark.long

TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))
FLAGS = (
    "--recipe baby_gpt_cpu --d_model 16 --n_heads 2 --n_layers 2 --rule adamw --steps 8 --log_every 2 --save_every 4 "
    "--batch_size 4 --context 12"
).split()

TEXT_FLAGS = (
    "--recipe text --d_model 16 --n_layers 2 --steps 4 --log_every 2 --save_every 4 --batch_size 4 --context 12"
).split()


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    """So that the validation part fills more than one, the last of them in part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "VALIDATION_TOKENS", 180)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "bottles.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", *FLAGS, "--text", str(file), "--run_dir", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def bound(run):
    """The model of the run's best checkpoint, `apply` compiled."""
    found = restore.load(run).model
    return replace(found, apply=Partial(jax.jit(found.apply)))


def fails(capsys, sentence, exit_code, *args):
    capsys.readouterr()
    assert cli.main([str(arg) for arg in args]) == exit_code
    out, err = capsys.readouterr()
    assert out == "" and sentence in err.splitlines()[-1], err


def test_a_run_keeps_its_tokenizer_and_what_its_text_costs(run, bound):
    settings = restore.load_settings(run)
    rows = restore.load_rows(run)
    tokenizer = pretrained.load(run / "tokenizer.json")
    assert settings.model.vocab_size == tokenizer.vocab_size == len(set(TEXT))
    joined = np.concatenate([rows["train"], rows["validation"]])
    assert tokenizer.decode(joined) == TEXT
    evaluation = json.loads((run / "evaluation.json").read_text())
    nats, tokens_N = [], rows["validation"].astype(np.int32)
    for start in range(0, len(tokens_N) - 1, 12):
        row_T = tokens_N[start : start + 13]
        padded_BT = np.zeros((1, 12), np.int32)
        padded_BT[0, : len(row_T) - 1] = row_T[:-1]
        logits_BTV = bound.apply(padded_BT)[:, : len(row_T) - 1]
        nats += np.asarray(loss.token_nats(logits_BTV, row_T[None, 1:]))[0].tolist()
    assert len(nats) == evaluation["tokens"] == len(tokens_N) - 1
    assert evaluation["nats_per_token"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert evaluation["perplexity"] == pytest.approx(math.exp(np.mean(nats)), rel=1e-5)
    assert evaluation["bits_per_character"] == pytest.approx(sum(nats) / math.log(2) / (len(nats) + 1), rel=1e-5)
    first = nats[::12]
    assert evaluation["nats_by_position"][0] == pytest.approx(np.mean(first), rel=1e-5)
    last = metrics.read_metrics(run)[-1]
    assert last["validation_loss"] == pytest.approx(np.mean(nats), rel=1e-5) and "exact" not in last
    drawn = {file.stem for file in (run / "figures").iterdir()}
    assert drawn == {"loss", "loss_by_position", "attention", "architecture"}


@pytest.mark.usefixtures("without_pictures")
def test_a_resumed_run_ends_as_the_uninterrupted(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    assert cli.main(["resume", str(copy), "--step", "4"]) == 0
    abstract = fit.abstract_state(restore.load_settings(run))
    (step, state), (same, again) = (checkpoint.load(path / "checkpoints", abstract, 8) for path in (run, copy))
    assert step == same == 8
    jax.tree.map(np.testing.assert_array_equal, state.params, again.params)


@pytest.mark.usefixtures("without_pictures")
def test_training_stops_when_nothing_gets_better(file, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.5])

    def step_on(state, train_rows, settings, count, *_):
        return state._replace(step=state.step + count), {"loss": jnp.ones(count)}

    monkeypatch.setattr(fit, "validate", lambda *_: {"loss": np.float32(next(losses))})
    monkeypatch.setattr(fit, "run_steps", step_on)  # what is learned in these steps would change nothing
    path = tmp_path / "run"
    flags = [*FLAGS, "--steps", "40", "--patience", "2", "--text", str(file), "--run_dir", str(path)]
    assert cli.main(["train", *flags]) == 0
    assert [scores["loss"] for record in metrics.read_metrics(path) if (scores := selection.validation(record))] == [
        3,
        1,
        2,
        1.5,
    ]
    assert json.loads((path / "evaluation.json").read_text())["step"] == 8  # the second checkpoint
    assert cli.main(["resume", str(path)]) == 0  # and it stays where it stopped
    assert next(losses) == 0.5


def test_byte_pairs_are_learned_from_the_training_part(file):
    pytest.importorskip("tokenizers")
    settings = recipes.parse([*FLAGS, "--text", str(file), "--tokenizer", "byte_pairs", "--vocab_size", "270"])
    settings, rows = training.load(settings)
    assert settings.model.vocab_size == 270
    assert rows["tokenizer"].decode(rows["validation"]) == TEXT[-rows["validation_characters"] :]
    assert len(rows["validation"]) < rows["validation_characters"]
    nats = 2.0  # a token; fewer tokens than characters, so fewer bits a character
    expected = nats / math.log(2) * (len(rows["validation"]) - 1) / rows["validation_characters"]
    assert training.bits_per_character(nats, rows) == pytest.approx(expected)


def test_what_is_shown_in_pieces_is_what_is_generated_at_once(bound):
    key, sample = jax.random.key(3), generate.sampler(1.5)
    prompt_T = np.array([1, 2, 3], np.int32)
    chunks = [*stream.write(prompt_T, 9, 2, 12, bound, key=key, sample=sample)]
    prompt_BT, lengths_B = generate.pad_prompts([prompt_T, prompt_T])
    at_once = generate.generate(
        bound.extend, bound.init_cache(2, 24), prompt_BT[:, :12], lengths_B, 9, key=key, sample=sample
    )
    np.testing.assert_array_equal(np.concatenate(chunks, axis=1), at_once)
    assert not (at_once[0] == at_once[1]).all()


def test_a_cache_that_grows_writes_what_a_large_one_does(monkeypatch):
    cfg = model.Config(10, d_model=16, n_heads=2, n_layers=1, position="rotary", window=5, max_len=None)
    rotary = bind(model, model.init(jax.random.key(0), cfg), cfg)
    prompt_BT, lengths_B = generate.pad_prompts([[1, 2, 3]])
    drawn = {"key": jax.random.key(3), "sample": generate.sampler()}
    large = generate.generate(rotary.extend, rotary.init_cache(1, 64), prompt_BT, lengths_B, 32, **drawn)
    monkeypatch.setattr(stream, "ROOM", 16)
    rooms = []
    spied = replace(rotary, init_cache=lambda B, room: rooms.append(room) or rotary.init_cache(B, room))
    chunks = [*stream.write([1, 2, 3], 32, 1, None, spied, **drawn)]
    np.testing.assert_array_equal(np.concatenate(chunks, axis=1), large)
    assert rooms == [16, 32, 35]
    assert len({*large[0].tolist()}) > 2


@pytest.mark.parametrize("length", [1, 12, 15])
def test_beyond_the_last_position_the_last_half_is_a_prompt(bound, length):
    """And of a prompt all counts that there are positions for."""
    written = [4 + k % 7 for k in range(length)]
    chunks = stream.write(np.array(written), 30, 1, 12, bound, key=None, sample=generate.greedy)
    tokens_N = np.concatenate([*chunks], 1)[0]
    assert len(tokens_N) == 30
    context = written[-12:]
    for token in tokens_N:
        if len(context) > 12:
            context = written[-6:]
        padded_BT = np.array([context + [0] * (12 - len(context))], np.int32)  # so that one shape is compiled
        assert token == int(bound.apply(padded_BT)[0, len(context) - 1].argmax())
        written.append(int(token))
        context.append(int(token))


def test_the_command_writes_what_was_asked_for(run, capsys):
    words = ["generate", str(run), "--prompt", "the ", "--tokens", "9"]  # no new beginning, so one shape is compiled
    written = []
    for flags in ([], ["--seed", "0"], ["--seed", "1"], ["--temperature", "0"], ["--top_p", "1e-9"]):
        assert cli.main([*words, *flags]) == 0
        written.append(capsys.readouterr().out)
    without = "--top_p 1 --min_p 0 --repetition_penalty 1 --stop wwwwwww".split()
    assert cli.main([*words, *without]) == 0 and capsys.readouterr().out == written[0]
    assert all(len(text) == 14 and text.startswith("the ") for text in written)
    assert written[0] == written[1] != written[2]
    assert written[3] == written[4]
    assert cli.main([*words, "--samples", "2"]) == 0
    several = capsys.readouterr().out
    assert "--- 1 of 2\n" + written[0] in several and "--- 2 of 2\nthe " in several


@pytest.mark.parametrize(
    ("flags", "sentence", "exit_code"),
    [
        (["--prompt", "?"], "character 1 is '?', which the vocabulary lacks", errors.DATA),
        (["--prompt", ""], "--prompt is empty", errors.USAGE),
        (["--tokens", "0"], "--tokens 0 is out of range", errors.USAGE),
        (["--temperature", "-1"], "--temperature -1.0 is out of range", errors.USAGE),
        (["--min_p", "1.5"], "--min_p 1.5 is out of range: give 0 to 1", errors.USAGE),
        (["--repetition_penalty", "0"], "--repetition_penalty 0.0 is out of range", errors.USAGE),
        (["--stop", "s", "--stop", ""], "--stop is empty", errors.USAGE),
        (["--stop", "s?"], "--stop 's?' cannot occur: character 2 is '?', which the vocabulary lacks", errors.DATA),
    ],
)
def test_flags_that_cannot_be_followed(run, capsys, flags, sentence, exit_code):
    fails(capsys, sentence, exit_code, "generate", run, *flags)


def test_commands_say_which_runs_they_are_for(run, capsys, file):
    def of(command):
        return f" is a run of text, and `apformer {command}` takes runs of {able(command)}: name one, or try `apformer"

    fails(capsys, of("predict"), errors.USAGE, "predict", run, "007 010")
    fails(capsys, of("certify"), errors.USAGE, "certify", run)


@pytest.mark.parametrize(
    ("flags", "sentence", "exit_code"),
    [
        ([], "--text is missing", errors.USAGE),
        (["--text", "{short}"], "the validation part of {short} has 2 tokens, a row 13", errors.DATA),
        (["--text", "{file}", "--max_len", "5"], "--max_len 5 ends before the longest row: give 12", errors.USAGE),
        (["--text", "{file}", "--tokenizer", "nowhere"], "nowhere", errors.DATA),
        (["--text", "{file}", "--digits", "4"], "--digits is a flag of --recipe exact", errors.USAGE),
        (
            ["--text", "{file}", "--cell", "gru"],
            "of --recipe text --architecture recurrent: give",
            errors.USAGE,
        ),
    ],
)
def test_texts_that_cannot_be_trained_on(file, tmp_path, capsys, flags, sentence, exit_code):
    short = tmp_path / "short.txt"
    short.write_text("fourteen words" + "!")
    names = {"file": file, "short": short}
    words = [word.format(**names) for word in flags]
    fails(capsys, sentence.format(**names), exit_code, "train", *FLAGS, *words, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_text_that_has_changed_is_refused(run, file, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("ale", "gin"))
    config = json.loads((copy / "config.json").read_text())
    config["flags"]["data"]["text"] = str(other)
    (copy / "config.json").write_text(json.dumps(config))
    fails(capsys, "has changed since", errors.DATA, "evaluate", copy)


def test_a_recurrent_model_of_a_text(file):
    """Its own flags, the vocabulary of the text, and the same rows."""
    settings = recipes.parse([*TEXT_FLAGS, "--architecture", "recurrent", "--cell", "gru", "--text", str(file)])
    settings, _ = training.load(settings)
    assert settings.model == recurrent.Config(len(set(TEXT)), "gru", d_model=16, n_layers=2)
    assert settings_file.from_dict(json.loads(json.dumps(settings_file.to_dict(settings))), "config.json") == settings


def test_a_recurrent_run_is_evaluated_resumed_and_writes(file, tmp_path, capsys):
    path = tmp_path / "run"
    flags = [*TEXT_FLAGS, "--architecture", "recurrent", "--text", str(file), "--run_dir", str(path)]
    assert cli.main(["train", *flags]) == 0
    evaluation = json.loads((path / "evaluation.json").read_text())
    assert evaluation["nats_per_token"] == pytest.approx(metrics.read_metrics(path)[-1]["validation_loss"], rel=1e-5)
    page = (path / "report.html").read_text()
    assert '"architecture": "recurrent"' in page or '"architecture":"recurrent"' in page
    capsys.readouterr()
    assert (
        cli.main(["generate", str(path), "--prompt", "the ", "--tokens", "30"]) == 0
    )  # beyond the context of training
    assert len(capsys.readouterr().out) == 4 + 30 + 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--lora_rank", "2"],
            "--lora_rank 2 adapts a model that was trained before: give --init_from FOLDER",
        ),
        (
            ["--special_tokens"],
            "--special_tokens reads what --tokenizer characters has not: give --tokenizer FILE with",
        ),
    ],
)
def test_flags_that_need_others(file, capsys, flags, sentence):
    fails(capsys, sentence, errors.USAGE, "train", *TEXT_FLAGS, "--text", file, *flags)


def test_a_text_of_one_line_is_continued_from_its_first_character():
    """Where a prompt is missing; one that cannot be is named."""
    tokenizer = text_tokenizer.train_characters("one line")
    assert command.read_prompt(command.Generate(), text_tokenizer.train_characters("a\n"))[0] == "\n"
    prompt, prompt_T = command.read_prompt(command.Generate(), tokenizer)
    assert prompt == " " and prompt_T.tolist() == tokenizer.encode(" ").tolist() == [0]
    with pytest.raises(errors.UserError, match="--prompt '\\\\u65e5': character 1 is"):
        command.read_prompt(command.Generate(prompt="日"), tokenizer)


def test_special_tokens_of_a_text_are_read_if_they_are_allowed(file, tmp_path, capsys):
    library = pytest.importorskip("tokenizers")
    tokenizer = library.Tokenizer.from_str(text_tokenizer.train_byte_pairs(TEXT, 257).to_json())
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = tmp_path / "text.txt"
    text.write_text(TEXT + "<|end|>" + TEXT)
    words = [*FLAGS, "--text", str(text), "--tokenizer", str(tmp_path / "tokenizer.json")]
    named = f"the training part of {text}: character {len(TEXT) + 1} begins the special token <|end|>: give --special_t"
    fails(capsys, named, errors.DATA, "train", *words)
    text.write_text("")
    fails(capsys, f"{text} is empty: give a text to train on", errors.DATA, "train", *words)
    text.write_text(TEXT + "<|end|>" + TEXT)
    rows = training.read_rows(recipes.parse([*words, "--special_tokens"]))
    assert list(rows["train"]).count(257) == 1


def test_a_text_that_is_written_ends_before_a_special_token_and_before_a_stop(run, monkeypatch, capsys):
    def written(samples, *flags):
        words = ["generate", str(run), "--prompt", "t", "--tokens", "40", "--temperature", "9", "--samples", samples]
        assert cli.main([*words, *flags]) == 0
        return capsys.readouterr().out

    whole, *two = written("1"), written("2", "--stop", "e"), written("2")
    assert "e" in whole and "e" not in two[0] and "e" in two[1]
    stop = whole[7:10]
    assert whole.index(stop) == 7 and written("1", "--stop", stop, "--stop", "wwwwwww") == whole[:7] + "\n"
    shown, expected = (out.replace("--- 2 of 2\n", "--- 1 of 2\n").split("--- 1 of 2\n")[1:] for out in two)
    assert [text[:-1] for text in shown] == [text[:-1].split("e")[0] for text in expected]
    tokenizer = pretrained.load(run / "tokenizer.json")
    monkeypatch.setattr(type(tokenizer), "special_tokens", frozenset({tokenizer.characters.index("e")}))
    assert written("1") == whole[: whole.index("e")] + "\n"
    assert "e" not in written("2")
