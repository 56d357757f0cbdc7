"""Rows of training are of their split, and the loss of a step is that of its characters, by hand."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from apformer import loss, model
from apformer.errors import USAGE
from apformer.runs import recipes
from apformer.tasks import hard_rows
from apformer.tasks.progressions import Options, bayes, first_two_terms, generator
from apformer.tasks.progressions import training as task
from apformer.tokenizers import digits as tokenizer
from tests.helpers.refusals import refused
from tests.helpers.small_runs import ROWS as DATA
from tests.helpers.small_runs import on_rows

MODEL = model.Config(d_model=8, n_layers=1, n_heads=2, position="relative", window=7)
settings = partial(on_rows, MODEL)
GIVEN = 2 * (DATA.digits + 1) - 1  # characters of the first two terms
draw = jax.jit(task.sample, static_argnums=1)
predict, token_nats = jax.jit(model.apply, static_argnums=2), jax.jit(loss.token_nats)


@pytest.fixture(scope="module")
def params(random_params):
    return random_params(MODEL)


def test_a_file_is_split_by_lines(rows_file):
    splits = task.load(settings(dataset=str(rows_file)))[1]
    assert sum(len(part.first_B) for part in splits.values()) == 300
    for number, (split, part) in enumerate(splits.items()):
        assert split == generator.SPLITS[number] and len(part.first_B) > 10
        assert (generator.split_of(part.difference_B, part.first_B) == number).all()


def test_settings_that_no_rows_can_follow_are_refused(rows_file, tmp_path):
    (tmp_path / "long.txt").write_text(" ".join(f"{k:02d}" for k in range(100)) + "\n")
    short = replace(MODEL, position="learned", position_options=None, window=None, max_len=298)
    long = replace(settings(dataset=str(tmp_path / "long.txt")), model=short)
    with refused(USAGE, "has rows that take 299 positions: give --max_len 299 or more"):
        task.load(long)
    narrow = replace(settings(), data=generator.Config(max_difference=9))
    with refused(USAGE, "no validation lines: give a wider range"):
        task.load(narrow)
    alone = settings(dataset=str(rows_file), prefix_rows=8, prefix_loss="alone")
    with refused(USAGE, "--prefix_loss alone is for rows of the generator: give --prefix_loss plain"):
        task.load(alone)
    none = settings(prefix_rows=4, prefix_loss="none")
    with refused(USAGE, "--prefix_rows 4 teaches the first two terms"):
        task.check(none)


def test_training_rows_are_of_the_training_split_and_depend_on_the_key_alone(rows_file):
    cfg = settings(dataset=str(rows_file), batch_size=64, hard_fraction=0.5)
    read = task.load(cfg)[1]
    train_rows = read["train"]
    lines = {tuple(row) for row in np.stack([train_rows.difference_B, train_rows.first_B % train_rows.difference_B]).T}
    for rows in (read, None):
        step, again = (draw(jax.random.key(4), cfg, task.train_rows(rows)) for _ in range(2))
        jax.tree.map(np.testing.assert_array_equal, step, again)
        assert step.rows.tokens_BT.shape == (32 + 4 * 32, 11) and step.prefixes is None
        used_B = np.asarray(step.rows.weights_BT).any(1)
        first, second = (np.asarray(step.rows.tokens_BT)[used_B, s : s + 2] @ [10, 1] for s in (0, 3))
        difference = second - first
        assert (generator.split_of(difference.astype(np.int32), first.astype(np.int32)) == 0).all()
        if rows is not None:
            assert {tuple(row) for row in np.stack([difference, first % difference]).T} <= lines


def test_validation_and_test_rows_are_the_same_for_every_seed_and_of_their_split():
    test, other = (task.test_rows(settings(seed=seed), None) for seed in (1, 2))
    jax.tree.map(np.testing.assert_array_equal, test, other)
    assert len(test.first_B) == 40 and (generator.split_of(test.difference_B, test.first_B) == 2).all()


def plain_loss(logits_BTV, batch, where=None):
    """Cross-entropy in numpy, of the characters after the first that are there."""
    logits_BTV, targets_BT = np.asarray(logits_BTV, np.float64), np.asarray(batch.tokens_BT)[:, 1:]
    there_BT = np.asarray(batch.weights_BT)[:, 1:] > 0 if where is None else where
    p_BTV = np.exp(logits_BTV - logits_BTV.max(-1, keepdims=True))
    p_BTV /= p_BTV.sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(p_BTV, targets_BT[:, :, None], -1)[:, :, 0])[there_BT].mean()


def test_the_loss_of_the_sketch_is_plain_cross_entropy():
    shape = "--recipe sketch --hard_fraction 0 --prefix_rows 0 --long_rows 0 --digits 2 --batch_size 24 --d_model 16 "
    shape += "--n_layers 1 --max_difference 30 --crop_terms 5"
    cfg = recipes.parse(shape.split())
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    step = draw(jax.random.key(5), cfg)
    # What is there is read from the text: a row of n terms has 3 n - 1 characters, of which the first is given.
    rows = generator.draw(jax.random.split(jax.random.key(5), 5)[0], cfg.data, 24, "train")
    length_B = 3 * np.minimum(np.asarray(rows.terms_B), 5) - 1
    where = np.arange(1, step.rows.tokens_BT.shape[1])[None] < length_B[:, None]
    nats = plain_loss(predict(params, step.rows.tokens_BT[:, :-1], cfg.model), step.rows, where)
    total, metrics = jax.jit(task.make_loss(cfg))(params, step, jax.random.key(1))
    np.testing.assert_allclose([total, metrics["loss"]], nats, rtol=1e-6)


def test_no_recipe_but_bayes_does_anything_else_to_the_loss():
    for recipe in ("exact", "sketch", "recurrent"):
        assert recipes.parse(["--recipe", recipe]).options.prefix_loss == "plain" == Options().prefix_loss
    assert recipes.parse(["--recipe=bayes"]).options.prefix_loss == "alone"


def measured(cfg, params, step, key=1):
    """(loss, loss among the metrics) of a step."""
    found, metrics = jax.jit(task.make_loss(cfg))(params, step, None if key is None else jax.random.key(key))
    return float(found), float(metrics["loss"])


def test_a_step_costs_the_mean_of_drawn_rows_and_the_hardest_candidates(params):
    cfg = settings(batch_size=12, hard_fraction=0.25, mined_per_hard=128)
    batch = draw(jax.random.key(5), cfg).rows
    assert len(batch.tokens_BT) == 9 + 128 * 3
    assert (batch.weights_BT[:9, 1:GIVEN] == 1).all() and not batch.weights_BT[9:, :GIVEN].any()
    logits_BTV = predict(params, batch.tokens_BT[:, :-1], MODEL)
    nats_BT = np.asarray(token_nats(logits_BTV, batch.tokens_BT[:, 1:])) * np.asarray(batch.weights_BT[:, 1:] > 0)
    hardest_B = np.argsort(nats_BT[9:, GIVEN - 1 :].max(1))[-3:]
    keep = lambda leaf: np.concatenate([leaf[:9], leaf[9:][hardest_B]])  # noqa: E731
    expected = plain_loss(keep(logits_BTV), jax.tree.map(keep, batch))
    drawn = plain_loss(logits_BTV[:9], jax.tree.map(lambda leaf: leaf[:9], batch))
    np.testing.assert_allclose(measured(cfg, params, task.Step(batch)), (expected, drawn), rtol=1e-6)


@pytest.mark.parametrize(
    ("flag", "part", "length"), [("prefix_rows", "prefixes", GIVEN), ("long_rows", "long", 3 * DATA.max_terms - 1)]
)
def test_rows_of_two_terms_and_long_rows_count_as_any_other(flag, part, length, params):
    cfg = settings(batch_size=12, **{flag: 7})
    step = draw(jax.random.key(5), cfg)
    assert getattr(step, part).tokens_BT.shape == (7, length)
    batches = step.rows, getattr(step, part)
    nats = [plain_loss(predict(params, batch.tokens_BT[:, :-1], MODEL), batch) for batch in batches]
    expected = np.average(nats, weights=[batch.weights_BT[:, 1:].sum() for batch in batches])
    np.testing.assert_allclose(measured(cfg, params, step), (expected, nats[0]), rtol=1e-6)


def test_rows_of_two_terms_may_teach_the_first_two_terms_alone(params):
    cfg = settings(batch_size=12, prefix_rows=7, prefix_loss="alone")
    step = draw(jax.random.key(5), cfg)
    logits_BTV = predict(params, step.rows.tokens_BT[:, :-1], MODEL)
    rest = jax.tree.map(np.array, step.rows)
    rest.weights_BT[:, :GIVEN] = 0
    prefix_BTV = predict(params, step.prefixes.tokens_BT[:, :-1], MODEL)
    prefix_BTV = first_two_terms.without_unseen_digits(prefix_BTV, step.prefixes.tokens_BT, DATA)
    prefix_BT = np.asarray(token_nats(prefix_BTV, step.prefixes.tokens_BT[:, 1:]))
    prefix_nats = np.average(prefix_BT, weights=step.prefixes.weights_BT[:, 1:])
    expected = (plain_loss(logits_BTV, rest) + 4 * prefix_nats) / 5
    found = measured(cfg, params, step)
    np.testing.assert_allclose(found, (expected, plain_loss(logits_BTV, step.rows)), rtol=1e-6)


def test_the_first_two_terms_can_cost_nothing(params):
    """The loss and its floor are those of the characters after them, in training and validation rows."""
    hard = {"batch_size": 12, "hard_fraction": 0.25, "mined_per_hard": 5}
    plain, cfg = (settings(**hard, prefix_loss=loss) for loss in ("plain", "none"))
    in_training, in_validation = partial(draw, jax.random.key(5)), partial(task.validation, rows=None)
    for rows_of, key, drawn in ((in_training, 1, 9), (in_validation, None, None)):
        step, before_BT = rows_of(cfg), rows_of(plain).rows.weights_BT
        assert before_BT[:, :GIVEN].any() and not step.rows.weights_BT[:, :GIVEN].any()
        np.testing.assert_array_equal(step.rows.weights_BT[:, GIVEN:], before_BT[:, GIVEN:])
        rows = type(step.rows)(*(np.asarray(leaf[:drawn]) for leaf in step.rows))
        expected = plain_loss(predict(params, rows.tokens_BT[:, :-1], MODEL), rows)
        np.testing.assert_allclose(measured(cfg, params, step, key)[1], expected, rtol=1e-6)
    assert task.floor(cfg, None) == 0.0


def test_random_offsets_move_the_positions_of_training_rows_alone(random_params):
    moved = replace(MODEL, position="sinusoidal", position_options=None)
    cfg = replace(settings(position_offset=9), model=moved)
    step, loss_fn = draw(jax.random.key(1), cfg), jax.jit(task.make_loss(cfg))
    params, without = random_params(moved), jax.jit(task.make_loss(replace(cfg, options=Options())))
    costs = [[float(fn(params, step, jax.random.key(seed))[0]) for seed in range(3)] for fn in (loss_fn, without)]
    assert len({*costs[0]}) == 3 and len({*costs[1]}) == 1
    assert loss_fn(params, step, None)[0] == without(params, step, None)[0]


def test_crops_may_keep_the_positions_of_their_rows(random_params):
    moved = replace(MODEL, position="sinusoidal", position_options=None)
    given = dict(batch_size=12, hard_fraction=0.25, mined_per_hard=6, crop_terms=3, long_rows=1, own_positions=True)
    cfg = replace(settings(**given), model=moved)
    step = draw(jax.random.key(6), cfg)
    starts_B, (tokens_BT, weights_BT) = np.asarray(step.start_B), map(np.asarray, step.rows)
    anywhere, near = slice(9, 18), slice(18, 27)  # after the drawn rows
    assert not starts_B[:9].any() and starts_B[anywhere].any() and starts_B[near].any()
    assert weights_BT[near].any(1).sum() > 5  # as many are near round numbers; ordinary rows replace the others
    for start, tokens_T, weights_T in zip(starts_B, tokens_BT, weights_BT, strict=True):
        if weights_T.any():
            first, second = (int(term) for term in tokenizer.decode(tokens_T[:GIVEN]).split())
            assert start % (DATA.digits + 1) == 0
            assert 0 <= first - start // (DATA.digits + 1) * (second - first) < 100
    params, loss_fn = random_params(moved), jax.jit(task.make_loss(cfg))
    moved_loss, plain = (loss_fn(params, each, jax.random.key(1))[0] for each in (step, step._replace(start_B=None)))
    assert moved_loss != plain


def test_the_validation_floor_is_what_bayes_pays_for_the_characters_that_the_crop_keeps():
    cfg = settings(crop_terms=4)
    rows = jax.device_get(generator.draw(jax.random.key(hard_rows.VALIDATION_KEY), cfg.data, 1024, "validation"))
    kept = sum(3 * min(int(terms), 4) - 2 for terms in rows.terms_B)
    assert task.floor(cfg, None) == pytest.approx(bayes.bayes_nats(rows, cfg.data).sum() / kept, rel=1e-6)
