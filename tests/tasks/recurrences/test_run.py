"""A run on recurrences: trained, evaluated, certified, continued, with its page; and a model that is always right."""

import json
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import cli, errors, tasks
from apformer.decoding.bind import Model
from apformer.runs import recipes, restore
from apformer.tasks.recurrences import certificate, continuation, evaluation, generator, training
from apformer.tasks.recurrences.generator import Config

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe recurrences --digits 1 --terms 5 --d_model 16 --n_heads 2 --d_ff 16 --steps 4 --log_every 2 "
    "--save_every 4 --batch_size 8 --test_sequences 20 --rule adamw --mined_per_hard 2"
).split()
THREE = ("fibonacci", "doubling", "progression")
# Compiled whole: operation by operation, each one is a program of its own.
sample = jax.jit(training.sample, static_argnums=1)
exact = jax.jit(training.exact, static_argnums=2)


@pytest.fixture(scope="module", params=[("fibonacci",), THREE], ids=["one", "three"])
def run(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    mined = [] if request.param == THREE else ["--hard_fraction", "0"]
    assert cli.main(["train", *FLAGS, *mined, "--rules", *request.param, "--run_dir", str(path)]) == 0
    return path


def oracle(cfg, wrong=()):
    """A model that knows its rules and reads every row from its first character; it errs on the texts given."""

    def apply(tokens_BT):
        B, T = tokens_BT.shape
        size, start = cfg.digits + 1, generator.head(cfg)
        place_C = 10 ** np.arange(cfg.digits)[::-1]
        logits_BTV = np.full((B, T, 11), -9.0, np.float32)
        for b, tokens_T in enumerate(np.asarray(tokens_BT)):
            rule = cfg.rules[tokens_T[0] - 1] if start else cfg.rules[0]
            first, second = (tokens_T[start + k * size :][: cfg.digits] @ place_C for k in (0, 1))
            text = generator.render(cfg.rules.index(rule), int(first), int(second), 2 + T // size, cfg)
            for t in range(generator.length(cfg, 2) - 1, T):  # before that nothing is known
                right = 10 if text[t + 1] == " " else int(text[t + 1])
                logits_BTV[b, t, (right + (text[: t + 1] in wrong)) % 11] = 9.0
        return logits_BTV

    def plain(tokens_BT):
        shape = jax.ShapeDtypeStruct((*tokens_BT.shape, 11), jnp.float32)
        return jax.pure_callback(apply, shape, tokens_BT)

    def extend(tokens_BT, cache, lengths_B=None):
        B, T = tokens_BT.shape
        at_BT = cache["length"][:, None] + jnp.arange(T, dtype=jnp.int32)[None]
        text_BS = cache["text"].at[jnp.arange(B)[:, None], at_BT].set(tokens_BT, mode="drop")
        logits_BTV = jnp.take_along_axis(plain(text_BS), at_BT[:, :, None], axis=1)
        return logits_BTV, {"text": text_BS, "length": cache["length"] + T}

    def init_cache(batch_size, length):
        return {"text": jnp.zeros((batch_size, length), jnp.int32), "length": jnp.zeros(batch_size, jnp.int32)}

    return Model(*map(Partial, (plain, extend, init_cache)))


def certified(cfg, model, terms=4):
    *_, tally = certificate.enumerate_contexts(cfg, terms, model.apply, certificate.start(), 512)
    return certificate.conclude(cfg, terms, None, tally, model)


def test_a_model_that_knows_its_rules_is_certified():
    cfg = Config(digits=1, rules=("fibonacci", "doubling"))
    result = certified(cfg, oracle(cfg))
    assert result["certified"] and result["contexts"] == 2 * 100 * 2 and result["smallest_margin"] == 18
    assert result["claim"].startswith("greedy decoding continues every row of 1-digit terms by the rules fibonacci, d")
    assert sum(part["contexts"] for part in result["parts"].values()) == result["contexts"]


def test_one_wrong_context_among_all_is_found_and_named():
    cfg = Config(digits=1, rules=("fibonacci", "doubling"))
    result = certified(cfg, oracle(cfg, wrong=("1 7 5 ",)))
    assert not result["certified"] and result["errors"] == 1
    assert result["worst"][0] == {"given": "1 7 5", "expected": " 2", "predicted": " 3", "margin": -18}


def test_an_enumeration_goes_on_from_any_tally():
    cfg = Config(digits=1)
    model = oracle(cfg, wrong=("7 5 ", "3 3 6 "))
    tallies = list(certificate.enumerate_contexts(cfg, 4, model.apply, certificate.start(), 70))
    for kept in tallies[::3]:
        *_, last = [kept, *certificate.enumerate_contexts(cfg, 4, model.apply, json.loads(json.dumps(kept)), 70)]
        assert last == tallies[-1]
    assert tallies[-1]["row"] == 100


def test_what_a_certificate_of_one_rule_rests_on():
    """The window of the recipe holds the last 4 terms of 2 digits; of several rules, or all in view, rows are whole."""
    one, three = (recipes.parse(["--recipe", "recurrences", "--rules", *rules]) for rules in (["fibonacci"], THREE))
    assert certificate.extent(one.data, 8) == (5, 4)
    assert one.model.window == 5 and one.model.n_layers == 2
    assert certificate.extent(one.data, None) == certificate.extent(three.data, 8) == (8, None)


def test_an_evaluation_counts_what_is_right():
    cfg = Config(digits=1, rules=("fibonacci", "doubling"), terms=5)
    rows = generator.numbered(np.arange(200, dtype=np.int32), cfg, 5)
    perfect = evaluation.evaluate(rows, cfg, oracle(cfg), batch_tokens=1000)
    assert perfect["exact_teacher_forced"] == perfect["exact_free_running"] == perfect["exact_sequences"] == 1
    assert perfect["terms"] == 200 * 3 and perfect["left_out"] == 0 and perfect["errors"] == []
    assert [group["count"] for group in perfect["by_rule"]] == [300, 300]
    wrong = evaluation.evaluate(rows, cfg, oracle(cfg, wrong=("1 7 5 ",)), batch_tokens=1000)
    assert wrong["exact_teacher_forced"] == 1 - 1 / 600 and wrong["exact_sequences"] == 1 - 1 / 200
    assert wrong["errors"] == [{"row": "1 7 5 2 7 9", "term": 3, "expected": " 2", "predicted": " 3"}]
    assert [group["teacher_forced"] for group in wrong["by_rule"]] == [1 - 1 / 300, 1]


def test_rows_whose_terms_leave_the_rule_open_are_left_out():
    cfg = Config(digits=1, rules=THREE, named=False, terms=5)
    rows = generator.numbered(np.array([112, 12], np.int32), cfg, 5)  # 1 2 4 8 6, and 1 2 3 5 8
    found = evaluation.evaluate(rows, cfg, oracle(Config(digits=1, rules=("doubling",))))
    assert (found["sequences"], found["left_out"], found["exact_free_running"], found["given"]) == (1, 1, 1, 3)


def test_training_and_validation_see_pairs_of_their_own():
    settings = recipes.parse(FLAGS)
    batch = sample(jax.random.key(0), settings)
    assert batch.tokens_BT.shape == (4 + 2 * 4, 9)
    held_BT = np.asarray(training.validation(settings, None).tokens_BT)
    split = np.asarray(generator.split_of(held_BT[:, 0], held_BT[:, 2], 1))
    assert (split == generator.SPLITS.index("validation")).all()


def test_the_loss_is_of_what_is_known_alone():
    """What is said of the first two terms, and beyond the end of a row, is not judged."""
    settings = recipes.parse([*FLAGS, "--hard_fraction", "0"])
    batch = sample(jax.random.key(0), settings)
    predicted_BT = np.where(batch.weights_BT > 0, batch.tokens_BT, 0)[:, 1:]
    assert float(exact(predicted_BT, batch, settings.data)) == 1
    one_off_BT = predicted_BT.copy()
    one_off_BT[0, 3] += 1
    known = float((np.asarray(batch.weights_BT) > 0).sum() / 2)
    assert float(exact(one_off_BT, batch, settings.data)) == pytest.approx(1 - 1 / known)


def test_what_a_run_says_and_keeps(run):
    result = json.loads((run / "evaluation.json").read_text())
    rules = restore.load_settings(run).data.rules
    assert [group["rule"] for group in result["by_rule"]] == list(rules) and result["sequences"] == 20
    drawn = {file.stem for file in (run / "figures").iterdir()}
    assert drawn == {"loss", "accuracy_by_position", "attention", "architecture"}
    assert "held-out rows, 2 terms given" in evaluation.table(result)
    page = (run / "report.html").read_text()
    assert "continues linear recurrences of 1-digit terms: fibonacci" in page


def test_a_run_is_certified_or_told_how_many_contexts_are_wrong(run, capsys):
    assert cli.main(["certify", str(run), "--json"]) == errors.NOT_CERTIFIED
    result = json.loads(capsys.readouterr().out)
    one = len(restore.load_settings(run).data.rules) == 1
    assert result["contexts"] == (100 * 3 if one else 300 * 3) and result["errors"] > 0
    assert result["outside_difference"] == (0 if one else None)
    assert result == json.loads((run / "certificate.json").read_text())


def test_a_certificate_goes_on_where_it_was_stopped(run, monkeypatch):
    states, whole = [], certificate.enumerate_contexts

    def stopped(cfg, terms, apply, tally, batch_tokens):
        states.append(tally)
        for number, each in enumerate(whole(cfg, terms, apply, tally, 70)):
            if number == len(states):
                raise KeyboardInterrupt
            states[-1] = each
            yield each

    monkeypatch.setattr(certificate, "enumerate_contexts", stopped)
    assert [cli.main(["certify", str(run)]) for _ in range(2)] == [130, 130]
    assert 0 < states[0]["row"] < states[1]["row"]


def test_prompts_are_continued_as_far_as_is_asked(run, capsys):
    named = len(restore.load_settings(run).data.rules) > 1
    prompt = "1 3 5 8" if named else "3 5 8"
    assert cli.main(["predict", str(run), prompt, "--terms", "2"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r".{3}\n", out) and err == ""
    assert cli.main(["predict", str(run), "3 5 9" if not named else "1 3 5 9"]) == errors.DATA
    assert "line 1: does not follow fibonacci" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1 03 5", "give the number of a rule, 1 to 3, and then at least 2 terms of 2 digits, such as 1 03 05"),
        ("4 03 05", "is no row"),
        ("03 05", "is no row"),
        ("2 03 05 08", "does not follow doubling"),
        ("1 03 05 08", None),
        ("3 03 01 99", None),
    ],
)
def test_a_line_that_cannot_be_continued(line, sentence):
    found = continuation.fault(line, Config(rules=THREE))
    assert found is None if sentence is None else sentence in found


def test_without_names_a_line_follows_some_rule():
    cfg = Config(rules=THREE, named=False)
    assert continuation.fault("01 02 04", cfg) is None and continuation.fault("01 02 03", cfg) is None
    assert "does not follow fibonacci or doubling or progression" in continuation.fault("01 02 05", cfg)
    assert "at least 3 terms" in continuation.fault("01 02", cfg)


def test_the_page_judges_by_the_rules_of_the_run():
    cfg = Config(rules=("fibonacci", "0,1,7"))
    settings = SimpleNamespace(data=cfg)
    told = tasks.load("recurrences").page(settings, None, None, None, None)["task"]["prompt"]["terms"]["rules"]
    assert told == [
        {"name": "1", "coefficients": [1, 1], "constant": 0, "modulus": 100},
        {"name": "2", "coefficients": [0, 1], "constant": 7, "modulus": 100},
    ]


def test_flags_that_no_such_run_can_follow(capsys):
    for flags, sentence in (
        (["--rules", "squares"], "--rules squares is no rule: give fibonacci, doubling, alternating, progression"),
        (["--digits", "5"], "--digits 5 is out of range: give 1 to 4"),
        (["--crop_terms", "2"], "--crop_terms 2 is out of range"),
        (["--vocab_size", "12"], "--vocab_size 12 is out of range: give 11"),
    ):
        assert cli.main(["train", "--recipe", "recurrences", *flags]) == errors.USAGE
        assert sentence in capsys.readouterr().err
