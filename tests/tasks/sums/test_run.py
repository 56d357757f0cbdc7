"""A run on sums: trained, evaluated, certified, continued, proven anew; and models that are right, or nearly."""

import json
import re
import shutil

import jax
import jax.numpy as jnp
import pytest
from jax.tree_util import Partial

from apformer import cli, errors
from apformer.decoding.bind import Model
from apformer.proof import check
from apformer.runs import recipes
from apformer.tasks.sums import certificate, evaluation, training
from apformer.tasks.sums.proof import contexts
from tests.helpers.commands import fails

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe sums --digits 2 --members 2 --steps 4 --log_every 2 --save_every 4 --batch_size 8 --test_sequences 20 "
    "--hard_fraction 0.5"
).split()
CONTEXTS = 100 + 10_000 + 200


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "VALIDATION_ROWS", 16)
        assert cli.main(["train", *FLAGS, "--run_dir", str(path)]) == 0
    return path


def test_what_a_run_says_and_keeps(run):
    result = json.loads((run / "evaluation.json").read_text())
    assert [(kind["rows"], kind["count"]) for kind in result["by_kind"]] == [
        ("random", 20),
        ("chains", 20),
        ("adversarial", 9),
    ]
    assert result["sequences"] == 40 and [place["place"] for place in result["by_place"]] == [0, 1, 2]
    assert {file.stem for file in (run / "figures").iterdir()} == {"loss", "attention", "architecture"}
    page = (run / "report.html").read_text()
    assert "By kind of pair" in page and "This page cannot run" not in page


def test_a_run_is_certified_or_not_and_numpy_finds_the_same(run, capsys):
    assert cli.main(["certify", str(run), "--check", "--json"]) == errors.NOT_CERTIFIED  # hardly trained
    result = json.loads(capsys.readouterr().out)
    assert result["contexts"] == CONTEXTS and 0 < result["errors"] and result["outside_difference"] == 0
    assert [part["contexts"] for part in result["parts"].values()] == [100, 10_000, 200]
    _, numpy, *others = result["witnesses"]
    assert (numpy["strings"], numpy["errors"]) == (CONTEXTS, result["errors"]) and numpy["largest_gap"] < 1e-4
    assert len(others) == bool(shutil.which("node")) and all(page["largest_gap"] < 1e-4 for page in others)
    assert cli.main(["export", str(run), "--to", "proof"]) == 0
    capsys.readouterr()
    assert check.main(run / "proof", contexts) == 1
    assert (
        f"contexts {CONTEXTS:,}, distinct strings {CONTEXTS:,}, wrong {result['errors']:,}, " in capsys.readouterr().out
    )


def test_two_terms_are_added(run, capsys):
    assert cli.main(["predict", str(run), "50 70"]) == 0
    assert re.fullmatch("[0-9 ]{3}\n", capsys.readouterr().out)
    fails(capsys, "line 1: is not two terms of 2 digits", errors.DATA, "predict", run, "50 7")
    fails(capsys, "--terms 2 is more than the sum", errors.USAGE, "predict", run, "50 70", "--terms", "2")


def test_flags_that_no_such_run_can_follow(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, pattern in (
        (["--digits", "0"], "--digits 0 is out of range: give 1 to 1000"),
        (["--seen_offsets", "1", "2"], r"seen_offsets \(1, 2\) are not 0 and other"),
        (["--hard_fraction", "1"], "--hard_fraction 1.0 is out of range"),
        (["--mined_per_hard", "0"], "--mined_per_hard 0 is out of range"),
        (["--vocab_size", "12"], "--vocab_size 12 is out of range: give 11"),
    ):
        fails(capsys, pattern, errors.USAGE, "train", "--recipe", "sums", *flags)
    for flags, pattern in ((["--seen_offsets", "0", "1"], "its seen_offsets"), (["--position", "none"], "not fixed")):
        with pytest.raises(errors.UserError, match=f"the contexts .*{pattern}"):
            certificate.certify(None, recipes.parse(["--recipe", "sums", *flags]), None)


def adds(wrong_5, tokens_BT):
    """Logits of one who reads five tokens and adds, for terms of 2 digits; wrong after the string that is given."""
    T = tokens_BT.shape[1]
    padded_BT = jnp.pad(tokens_BT, ((0, 0), (6, 0)), constant_values=contexts.START)
    s, b, b_below, a, a_below = (padded_BT[:, 6 - o : 6 - o + T] for o in contexts.offsets(2))
    carried = (a_below < 10) & (b_below < 10) & (a_below + b_below > jnp.where(s == 9, 9, 8)) & (s < 10)
    digit = lambda token: jnp.where(token < 10, token, 0)  # noqa: E731
    says = (digit(a) + digit(b) + carried.astype(jnp.int32)) % 10
    seen = jnp.stack([s, b, b_below, a, a_below], axis=-1)
    return 9.0 * jax.nn.one_hot(jnp.where((seen == wrong_5[None, None]).all(-1), (says + 1) % 10, says), 11)


def extend(wrong_5, tokens_BT, cache, lengths_B=None):
    text, count = cache
    text = jax.lax.dynamic_update_slice(text, tokens_BT, (0, count[0]))
    logits = jax.lax.dynamic_slice(adds(wrong_5, text), (0, count[0], 0), (*tokens_BT.shape, 11))
    return logits, (text, count + tokens_BT.shape[1])


def init_cache(batch_size, length):
    return jnp.zeros((batch_size, length), jnp.int32), jnp.zeros(batch_size, jnp.int32)


def oracle(wrong=5 * (-1,)):
    wrong_5 = jnp.asarray(wrong, jnp.int32)
    return Model(Partial(adds, wrong_5), Partial(extend, wrong_5), Partial(init_cache))


class Work:
    """What commands.certify gives: an ear."""

    def __init__(self):
        self.told = []

    def tell(self, done, total, state=None, note=None):
        self.told.append((done, total))


def test_who_adds_rightly_is_certified_and_one_wrong_answer_is_found():
    settings, work = recipes.parse(FLAGS), Work()
    result = certificate.certify(oracle(), settings, work)
    assert result["certified"] and result["smallest_margin"] == 9 and work.told[-1] == (CONTEXTS, CONTEXTS)
    assert "all 10^4" in result["claim"]
    for wrong, given, part in (
        ((10, 4, 10, 9, 11), "90 40 ", "first digit"),
        ((3, 5, 7, 2, 6), "62 75 3", "digits between"),
        ((9, 10, 9, 10, 9), None, "last digit"),
    ):
        result = certificate.certify(oracle(wrong), settings, Work())
        assert not result["certified"] and result["errors"] == result["parts"][part]["errors"] == 1
        assert given is None or result["worst"][0]["given"] == given


def test_free_running_is_right_where_the_model_is():
    cfg = recipes.parse(FLAGS).data
    result = evaluation.evaluate(cfg, 30, oracle())
    assert result["exact_free_running"] == 1 and all(kind["free_running"] == 1 for kind in result["by_kind"])
    assert result["errors"] == [] and "wrong" not in evaluation.table(result)
    spoilt = evaluation.evaluate(cfg, 30, oracle((10, 9, 10, 9, 11)))  # 99 + 99 alone, of those on the list
    wrong = [error for error in spoilt["errors"] if error["given"] == "99 99"]
    assert (
        wrong == [{"given": "99 99", "expected": "891", "predicted": "991"}]
        and spoilt["by_kind"][2]["free_running"] < 1
    )
    assert "digit 1" in evaluation.table(spoilt) or spoilt["exact_free_running"] == 1
