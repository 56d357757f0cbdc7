"""A run in many bases: trained, evaluated, certified, continued, proven anew; and a model that is always right."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import cli, errors
from apformer.decoding.bind import Model
from apformer.proof import check
from apformer.runs import recipes
from apformer.tasks.bases import alphabet, certificate, evaluation, generator, training
from apformer.tasks.bases.generator import Config
from apformer.tasks.bases.proof import contexts
from tests.helpers.commands import fails

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe bases --digits 2 --bases 2 3 --rules fibonacci progression --d_model 16 --n_heads 2 --d_ff 16 --steps 4 "
    "--log_every 2 --save_every 4 --batch_size 8 --test_sequences 2 --rule adamw --mined_per_hard 2"
).split()
CFG = Config(digits=2, bases=(2, 3), rules=("fibonacci", "progression"))
CONTEXTS = 120 + 120 + 693 + 783


@pytest.fixture(autouse=True)
def small_suites(monkeypatch):
    monkeypatch.setattr(training, "VALIDATION_ROWS", 16)
    monkeypatch.setattr(evaluation, "widths", lambda cfg: [cfg.digits, 5])
    monkeypatch.setattr(certificate, "WIDTHS", (5,))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "VALIDATION_ROWS", 16)
        patch.setattr(evaluation, "widths", lambda cfg: [cfg.digits, 5])
        assert cli.main(["train", *FLAGS, "--run_dir", str(path)]) == 0
    return path


def test_what_a_run_says_and_keeps(run):
    result = json.loads((run / "evaluation.json").read_text())
    assert [(suite["digits"], suite["rows"]) for suite in result["widths"]] == [
        (width, kind) for width in (2, 5) for kind in ("random", "hard")
    ]
    assert [(pair["rule"], pair["base"]) for pair in result["pairs"]] == generator.pairs(CFG)
    assert all(suite["terms"] == 4 * 2 * 2 for suite in result["widths"])
    drawn = {file.stem for file in (run / "figures").iterdir()}
    assert drawn == {"loss", "accuracy_by_width", "attention", "architecture"}
    assert "By base" in (run / "report.html").read_text()


def test_a_run_is_certified_or_not_and_numpy_finds_the_same(run, capsys):
    assert cli.main(["certify", str(run), "--check", "--json"]) == errors.NOT_CERTIFIED  # hardly trained
    result = json.loads(capsys.readouterr().out)
    assert result["contexts"] == CONTEXTS and 0 < result["errors"] and result["outside_difference"] == 0
    assert [*result["parts"]] == [f"{rule}, base {base}" for rule, base in generator.pairs(CFG)]
    numpy = result["witnesses"][1]
    assert (numpy["strings"], numpy["errors"]) == (CONTEXTS, result["errors"]) and numpy["largest_gap"] < 1e-4
    assert cli.main(["export", str(run), "--to", "proof"]) == 0
    capsys.readouterr()
    assert check.main(run / "proof", contexts) == 1
    out = capsys.readouterr().out
    assert f"contexts {CONTEXTS:,}, distinct strings {CONTEXTS:,}, wrong {result['errors']:,}, " in out
    assert "NOT PROVEN: the margin is " in out


def test_rows_are_continued_in_any_width(run, capsys):
    for prompt, length in (("+2 0120 1110", 2 * 5 - 1), ("=1 " + "01" * 30 + " " + "10" * 30, 2 * 61 - 1)):
        assert cli.main(["predict", str(run), prompt, "--terms", "2"]) == 0
        assert len(capsys.readouterr().out.rstrip("\n")) == length
    fails(capsys, "line 1: begins with '\\*2'; begin with a rule", errors.DATA, "predict", run, "*2 01 02")


def test_flags_that_no_such_run_can_follow(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, pattern in (
        (["--bases", "17"], "--bases 17 has no digits"),
        (["--separator", "3"], "--separator 3 is out of range: give 16"),
        (["--heading", "1"], "--heading 1 is out of range: give 2"),
        (["--n_layers", "3"], "n_layers 3 is not 2"),
        ("--position learned --max_len 25 --crop_terms 3".split(), "--max_len 25 ends before the longest row: give 26"),
    ):
        fails(capsys, pattern, errors.USAGE, "train", "--recipe", "bases", *flags)
    settings = recipes.parse(["--recipe", "bases", "--position", "relative"])
    with pytest.raises(errors.UserError, match="sees other tokens than --position columns does"):
        certificate.certify(None, settings, None)


def knows(wrong_8, tokens_BT):
    """Logits of one who knows the rules and sees what two layers see; wrong after the string that is given."""
    T = tokens_BT.shape[1]
    at_T = jnp.arange(T, dtype=jnp.int32)[None]
    P_BT = jax.lax.cummin(jnp.where((tokens_BT == alphabet.SPACE) & (at_T > 2), at_T - 2, T + 1), axis=1)

    def back(offset_BT):
        from_BT = at_T - offset_BT
        token_BT = jnp.take_along_axis(tokens_BT, jnp.clip(from_BT, 0, T - 1), axis=1)
        return jnp.where(from_BT >= 2, token_BT, contexts.START)

    z, x, before, x_j, y_j, y = (back(o) for o in (0, P_BT, P_BT + 1, P_BT - 1, 2 * P_BT - 1, 2 * P_BT))
    rule_B1, top_B1 = tokens_BT[:, :1], tokens_BT[:, 1:2]
    a, base = jnp.where(rule_B1 == 18, 1, 2), top_B1 + 1
    b = jnp.where(rule_B1 == 17, -1, jnp.where(rule_B1 == 18, 1, 0))
    carried = 0
    for c in (-1, 1):  # else 0: what the digit before may pass on, and what the written digit speaks of
        upwards = a * before + jnp.where(rule_B1 == 18, top_B1, 0) + 1 >= base
        passes = (before < base) & (upwards if c > 0 else (rule_B1 == 17) & (2 * before < base))
        carried = jnp.where(passes & ((a * x + b * y + c) % base == z), c, carried)
    carried = jnp.where((a * x + b * y) % base == z, 0, carried)  # in base 2, -1 and 1 look alike, but not 0
    carry = jnp.where(x == alphabet.SPACE, 0, (a * x + b * y + carried) // base)
    says = jnp.where(x_j < 16, (a * x_j + b * y_j + carry) % base, alphabet.SPACE)
    seen = jnp.stack(jnp.broadcast_arrays(z, x, before, rule_B1, top_B1, x_j, y_j, y), axis=-1)
    return 9.0 * jax.nn.one_hot(jnp.where((seen == wrong_8[None, None]).all(-1), (says + 1) % base, says), 20)


def extend(wrong_8, tokens_BT, cache, lengths_B=None):
    text, count = cache
    text = jax.lax.dynamic_update_slice(text, tokens_BT, (0, count[0]))
    logits = jax.lax.dynamic_slice(knows(wrong_8, text), (0, count[0], 0), (*tokens_BT.shape, 20))
    return logits, (text, count + tokens_BT.shape[1])


def init_cache(batch_size, length):
    return jnp.zeros((batch_size, length), jnp.int32), jnp.zeros(batch_size, jnp.int32)


def oracle(wrong=()):
    """A model that errs after one string at most. The string is a parameter: all oracles run the same programs."""
    wrong_8 = jnp.asarray(wrong or 8 * (-1,), jnp.int32)
    return Model(Partial(knows, wrong_8), Partial(extend, wrong_8), Partial(init_cache))


class Work:
    """What commands.certify gives: a tally to begin with, and an ear."""

    def __init__(self, state=None):
        self.state, self.told = state, []

    def tell(self, done, total, state=None, note=None):
        self.told.append((done, total, state))


def certified(model, state=None):
    work = Work(state)
    return certificate.certify(model, recipes.parse(FLAGS), work), work.told


def test_who_knows_all_answers_is_certified():
    result, told = certified(oracle())
    assert result["certified"] and result["smallest_margin"] == 9 and result["outside_difference"] == 0
    assert result["contexts"] == CONTEXTS and told[-1][:2] == (CONTEXTS, CONTEXTS)
    assert "the rules fibonacci, progression in the bases 2, 3, of terms of any number of digits" in result["claim"]


def test_one_wrong_answer_is_found_and_named_wherever_it_is():
    for wrong, given, where in (
        ((0, 1, 1, 17, 1, 0, 1, 1), "=1 011 110 00", "progression, base 2"),
        ((16, 16, 2, 18, 2, 1, 2, 16), "+2 202 100 ", "fibonacci, base 3"),
        ((2, 1, 16, 18, 2, 16, 16, 1), "+2 1 1 2", "fibonacci, base 3"),
    ):
        result, _ = certified(oracle(wrong))
        assert not result["certified"] and result["errors"] == 1
        assert (result["worst"][0]["given"], result["worst"][0]["where"]) == (given, where)
        assert result["parts"][where]["errors"] == 1


def test_an_enumeration_goes_on_where_it_was():
    whole, told = certified(oracle())
    states = [json.loads(json.dumps(state)) for _, _, state in told]
    middle = next(state for state in states if state["pair"] == 2)
    rest, again = certified(oracle(), middle)
    assert rest == whole and len(again) < len(told)


def test_free_running_is_right_where_the_model_is():
    result = evaluation.evaluate(CFG, 3, oracle())
    assert result["exact_free_running"] == 1 and all(pair["teacher_forced"] == 1 for pair in result["pairs"])
    assert result["errors"] == [] and "wrong" not in evaluation.table(result)
    spoilt = evaluation.evaluate(CFG, 3, oracle((0, 1, 1, 17, 1, 0, 1, 1)))
    assert spoilt["pairs"][2]["free_running"] < 1 and "progression, base 2" in evaluation.table(spoilt)
    np.testing.assert_array_equal([pair["free_running"] for pair in spoilt["pairs"]][:2], 1)
