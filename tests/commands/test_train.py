"""A run's rows are split by lines; its best checkpoint is measured on rows it has never seen, and its files say so."""

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from apformer import files as file_io
from apformer import loss, model
from apformer.commands import evaluate
from apformer.commands import train as experiment
from apformer.errors import CHECKPOINT, DATA, DISK, USAGE, UserError
from apformer.runs import checkpoint, fit, recipes, restore, selection, settings_file
from apformer.runs import metrics as log
from apformer.settings import Settings, Training
from apformer.tasks import hard_rows
from apformer.tasks.progressions import Options, bayes, first_two_terms, generator, text_file
from apformer.tasks.progressions import training as task

pytestmark = pytest.mark.long

DATA_CFG = generator.Config(digits=2, max_difference=30, max_terms=6)
MODEL = model.Config(d_model=16, n_layers=2, n_heads=2, position="relative", window=7, dropout=0.1)


def settings(**changes):
    options = {"test_sequences": 40} | {name: changes.pop(name) for name in [*changes] if hasattr(Options, name)}
    return Settings("progressions", "model", Training(**changes), MODEL, DATA_CFG, Options(**options))


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.txt"
    text_file.write(path, generator.draw(jax.random.key(9), DATA_CFG, 300), 2)
    return path


draw = jax.jit(task.sample, static_argnums=1)


def make_run(path, settings, scores, validation=None):
    """A run directory as training would leave it: an untrained state saved at a step for each of the scores."""
    rows = task.read_rows(settings)
    config = settings_file.to_dict(settings) | {"data": task.describe(settings, rows)}
    path.mkdir()
    file_io.write_json(path / "config.json", config)
    state = fit.initial_state(settings)
    with checkpoint.Checkpoints(path / "checkpoints") as checkpoints:
        for step, score in scores.items():
            checkpoints.save(step, state, () if score is None else score)
            record = {"step": step, "loss": [1.0, 2.0][: settings.training.members], "exact": [0.0, 0.0]}
            file_io.append_record(path / "metrics.jsonl", record | (validation or {}))
    return path


def test_rows_of_a_file_are_split_by_whole_lines(rows_file):
    splits = task.read_rows(settings(dataset=str(rows_file)))
    everything, _ = text_file.read(rows_file)
    assert sum(len(part.first_B) for part in splits.values()) == len(everything.first_B) == 300
    for number, (split, part) in enumerate(splits.items()):
        assert split == generator.SPLITS[number] and len(part.first_B) > 10
        assert (generator.split_of(part.difference_B, part.first_B) == number).all()


def test_rows_longer_than_learned_positions_are_refused(tmp_path):
    (tmp_path / "long.txt").write_text(" ".join(f"{k:02d}" for k in range(100)) + "\n")
    cfg = model.Config(position="learned", max_len=298)
    with pytest.raises(UserError, match="has rows of 299 characters: give --max_len 299 or more") as caught:
        task.read_rows(dataclasses.replace(settings(dataset=str(tmp_path / "long.txt")), model=cfg))
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize(("least", "most", "split"), [(1, 9, "validation"), (0, 0, "validation"), (10, 10, "")])
def test_differences_without_a_split_are_refused_before_a_run_begins(least, most, split):
    cfg = generator.Config(min_difference=least, max_difference=most)
    missing = [name for name in generator.SPLITS if not generator.has_split(cfg, name)]
    assert missing
    with pytest.raises(UserError, match=f"no {missing[0]} lines: give a wider range") as caught:
        task.read_rows(dataclasses.replace(settings(), data=cfg))
    assert caught.value.exit_code == USAGE


def test_training_rows_are_of_the_training_split_and_depend_on_the_key_alone(rows_file):
    files = settings(dataset=str(rows_file), batch_size=64)
    read = task.read_rows(files)
    train_rows = read["train"]
    lines = {tuple(row) for row in np.stack([train_rows.difference_B, train_rows.first_B % train_rows.difference_B]).T}
    for rows in (read, None):
        device_rows = task.train_rows(rows)
        step = draw(jax.random.key(4), files, device_rows)
        again = draw(jax.random.key(4), files, device_rows)
        jax.tree.map(np.testing.assert_array_equal, step, again)
        assert step.rows.tokens_BT.shape == (64, 11) and step.prefixes is None
        first, second = (np.asarray(step.rows.tokens_BT)[:, s : s + 2] @ [10, 1] for s in (0, 3))
        difference = second - first
        assert (generator.split_of(difference.astype(np.int32), first.astype(np.int32)) == 0).all()
        if rows is not None:
            assert {tuple(row) for row in np.stack([difference, first % difference]).T} <= lines


predict, token_nats = jax.jit(model.apply, static_argnums=2), jax.jit(loss.token_nats)


def plain_loss(logits_BTV, batch, where=None):
    """Cross-entropy in numpy, of the characters after the first that are there, and its gradient in the logits."""
    logits_BTV, targets_BT = np.asarray(logits_BTV, np.float64), np.asarray(batch.tokens_BT)[:, 1:]
    there_BT = np.asarray(batch.weights_BT)[:, 1:] > 0 if where is None else where
    p_BTV = np.exp(logits_BTV - logits_BTV.max(-1, keepdims=True))
    p_BTV /= p_BTV.sum(-1, keepdims=True)
    nats_BT = -np.log(np.take_along_axis(p_BTV, targets_BT[:, :, None], -1)[:, :, 0])
    gradient_BTV = (p_BTV - np.eye(11)[targets_BT]) * there_BT[:, :, None] / there_BT.sum()
    return nats_BT[there_BT].mean(), gradient_BTV


def test_the_loss_of_the_sketch_is_plain_cross_entropy_and_so_is_its_gradient():
    cfg = recipes.parse("--recipe sketch --digits 2 --batch_size 24 --d_model 16 --max_difference 30".split())
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    step = draw(jax.random.key(5), cfg)
    # What is there is read from the text: a row of n terms has 3 n - 1 characters, of which the first is given.
    rows = generator.draw(jax.random.split(jax.random.key(5), 5)[0], cfg.data, 24, "train")
    length_B = 3 * np.minimum(np.asarray(rows.terms_B), 16) - 1
    where = np.arange(1, step.rows.tokens_BT.shape[1])[None] < length_B[:, None]
    logits_BTV, pull = jax.vjp(jax.jit(lambda params: predict(params, step.rows.tokens_BT[:, :-1], cfg.model)), params)
    nats, gradient_BTV = plain_loss(logits_BTV, step.rows, where)
    (expected,) = pull(jax.numpy.asarray(gradient_BTV, jax.numpy.float32))
    found = jax.jit(jax.value_and_grad(task.make_loss(cfg), has_aux=True))(params, step, jax.random.key(1))
    (total, metrics), gradient = found
    np.testing.assert_allclose([total, metrics["loss"]], nats, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient, expected)


def test_a_step_costs_the_mean_of_drawn_rows_and_the_hardest_candidates():
    cfg = settings(batch_size=12, hard_fraction=0.25, mined_per_hard=5)
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(MODEL, dropout=0.0))
    step = draw(jax.random.key(5), cfg)
    given, batch = 2 * (DATA_CFG.digits + 1) - 1, step.rows
    assert len(batch.tokens_BT) == 9 + 5 * 3
    assert (batch.weights_BT[:9, 1:given] == 1).all() and not batch.weights_BT[9:, :given].any()

    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    logits_BTV = predict(params, batch.tokens_BT[:, :-1], cfg.model)
    nats_BT = np.asarray(token_nats(logits_BTV, batch.tokens_BT[:, 1:])) * np.asarray(batch.weights_BT[:, 1:] > 0)
    hardest_B = np.argsort(nats_BT[9:, given - 1 :].max(1))[-3:]
    keep = lambda leaf: np.concatenate([leaf[:9], leaf[9:][hardest_B]])  # noqa: E731
    found, metrics = jax.jit(task.make_loss(cfg))(params, step, jax.random.key(1))
    np.testing.assert_allclose(found, plain_loss(keep(logits_BTV), jax.tree.map(keep, batch))[0], rtol=1e-6)
    drawn = jax.tree.map(lambda leaf: leaf[:9], batch)
    np.testing.assert_allclose(metrics["loss"], plain_loss(logits_BTV[:9], drawn)[0], rtol=1e-6)


def test_with_rows_of_two_terms_these_alone_teach_the_first_two_terms():
    cfg = settings(batch_size=12, prefix_rows=7, prefix_loss="alone")
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(MODEL, dropout=0.0))
    step, given = draw(jax.random.key(5), cfg), 2 * (DATA_CFG.digits + 1) - 1
    assert step.prefixes.tokens_BT.shape == (7, given)
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    rest = jax.tree.map(np.array, step.rows)
    rest.weights_BT[:, :given] = 0
    rest_nats, _ = plain_loss(predict(params, rest.tokens_BT[:, :-1], cfg.model), rest)
    logits_BTV = predict(params, step.prefixes.tokens_BT[:, :-1], cfg.model)
    logits_BTV = first_two_terms.without_unseen_digits(logits_BTV, step.prefixes.tokens_BT, DATA_CFG)
    prefix_BT = np.asarray(token_nats(logits_BTV, step.prefixes.tokens_BT[:, 1:]))
    prefix_nats = np.average(prefix_BT, weights=step.prefixes.weights_BT[:, 1:])
    found, metrics = jax.jit(task.make_loss(cfg))(params, step, jax.random.key(1))
    np.testing.assert_allclose(found, (rest_nats + 4 * prefix_nats) / 5, rtol=1e-6)
    plain = task.make_loss(settings(batch_size=12))(params, step._replace(prefixes=None), None)[0]
    np.testing.assert_allclose(metrics["loss"], plain, rtol=1e-6)


def test_a_character_of_a_prefix_row_counts_as_any_other(rows_file):
    for dataset in (None, str(rows_file)):
        cfg = settings(batch_size=12, prefix_rows=7, dataset=dataset)
        cfg = dataclasses.replace(cfg, model=dataclasses.replace(MODEL, dropout=0.0))
        rows, given = task.read_rows(cfg), 2 * (DATA_CFG.digits + 1) - 1
        step = draw(jax.random.key(5), cfg, task.train_rows(rows))
        assert step.prefixes.tokens_BT.shape == (7, given)
        assert (np.asarray(step.prefixes.weights_BT)[:, 1:] == 1).all()
        params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
        batches = (step.rows, step.prefixes)
        nats, counts = zip(
            *(
                (
                    plain_loss(predict(params, batch.tokens_BT[:, :-1], cfg.model), batch)[0],
                    batch.weights_BT[:, 1:].sum(),
                )
                for batch in batches
            ),
            strict=True,
        )
        found, _ = jax.jit(task.make_loss(cfg))(params, step, jax.random.key(1))
        np.testing.assert_allclose(found, np.average(nats, weights=counts), rtol=1e-6)


def test_the_first_two_terms_can_cost_nothing():
    """The loss and its floor are those of the characters after them, in training and validation rows."""
    plain, cfg = (settings(batch_size=12, hard_fraction=0.25, prefix_loss=loss) for loss in ("plain", "none"))
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(MODEL, dropout=0.0))
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    given = 2 * (DATA_CFG.digits + 1) - 1
    in_training, in_validation = partial(draw, jax.random.key(5)), partial(task.validation, rows=None)
    for rows_of, key, drawn in ((in_training, jax.random.key(1), 9), (in_validation, None, None)):
        step, before_BT = rows_of(cfg), rows_of(plain).rows.weights_BT
        assert before_BT[:, :given].any() and not step.rows.weights_BT[:, :given].any()
        np.testing.assert_array_equal(step.rows.weights_BT[:, given:], before_BT[:, given:])
        rows = type(step.rows)(*(np.asarray(leaf[:drawn]) for leaf in step.rows))
        expected, _ = plain_loss(predict(params, rows.tokens_BT[:, :-1], cfg.model), rows)
        _, metrics = jax.jit(task.make_loss(cfg))(params, step, key)
        np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-6)
    assert task.floor(cfg, None) == 0.0
    with pytest.raises(UserError, match="--prefix_rows 4 teaches the first two terms") as caught:
        task.check(settings(prefix_rows=4, prefix_loss="none"))
    assert caught.value.exit_code == USAGE


def test_the_loss_without_held_out_digits_is_not_for_a_file(rows_file):
    with pytest.raises(
        UserError, match="--prefix_loss alone is for rows of the generator: give --prefix_loss plain"
    ) as e:
        task.read_rows(settings(dataset=str(rows_file), prefix_rows=8, prefix_loss="alone"))
    assert e.value.exit_code == USAGE


def test_hard_rows_of_a_file_are_its_own(rows_file):
    files = settings(dataset=str(rows_file), batch_size=8, hard_fraction=0.5)
    read = task.read_rows(files)
    rows, batch = read["train"], draw(jax.random.key(6), files, task.train_rows(read)).rows
    assert len(batch.tokens_BT) == 4 + 4 * 4
    first, second = (np.asarray(batch.tokens_BT[:, s : s + 2]) @ [10, 1] for s in (0, 3))
    lines = {tuple(row) for row in np.stack([rows.difference_B, rows.first_B % rows.difference_B]).T}
    assert {tuple(row) for row in np.stack([second - first, first % (second - first)]).T} <= lines


def test_random_offsets_move_the_positions_of_training_rows_alone():
    other = {"position": "sinusoidal", "position_options": None}
    cfg = settings(position_offset=9)
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(MODEL, dropout=0.0, **other))
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg.model)
    batch, loss_fn = draw(jax.random.key(1), cfg), jax.jit(task.make_loss(cfg))
    without = jax.jit(task.make_loss(dataclasses.replace(cfg, options=Options())))
    losses = {float(loss_fn(params, batch, jax.random.key(seed))[0]) for seed in range(3)}
    assert len(losses) == 3
    assert loss_fn(params, batch, None)[0] == without(params, batch, None)[0]
    assert len({float(without(params, batch, jax.random.key(seed))[0]) for seed in range(3)}) == 1


def test_the_validation_floor_is_what_bayes_pays_for_the_characters_that_the_crop_keeps():
    cfg = settings(crop_terms=4)
    rows = jax.device_get(generator.draw(jax.random.key(hard_rows.VALIDATION_KEY), cfg.data, 1024, "validation"))
    kept = sum(3 * min(int(terms), 4) - 2 for terms in rows.terms_B)
    assert task.floor(cfg, None) == pytest.approx(bayes.bayes_nats(rows, cfg.data).sum() / kept, rel=1e-6)


def test_the_best_has_the_fewest_wrong_terms_and_between_equals_the_least_loss():
    ordered = [
        selection.score({"exact": exact, "loss": loss}) for exact, loss in ((1.0, 0.4), (1.0, 0.9), (0.999, 0.1))
    ]
    assert ordered == sorted(ordered) and len(set(ordered)) == 3
    assert selection.score({"loss": 0.4}) < selection.score({"loss": 0.9})


def test_validation_and_test_rows_are_the_same_for_every_seed_and_of_their_split():
    one, other = settings(seed=1), settings(seed=2)
    jax.tree.map(np.testing.assert_array_equal, task.test_rows(one, None), task.test_rows(other, None))
    test = task.test_rows(one, None)
    assert len(test.first_B) == 40 and (generator.split_of(test.difference_B, test.first_B) == 2).all()


def test_evaluation_on_a_file_has_no_floor(rows_file, tmp_path, without_figures):
    path = make_run(tmp_path / "run", settings(dataset=str(rows_file)), {2: 1.0})
    result = evaluate.evaluate_run(path, restore.load_settings(path), restore.load_rows(path)).result
    assert not {"bayes_floor", "excess", "bayes_nats_per_char"} & set(result)
    assert result["step"] == 2 and 0 < result["sequences"] <= 40 and result["nats_per_char"] > 1
    assert json.loads((path / "evaluation.json").read_text()) == result


def test_the_best_checkpoint_is_measured_and_the_newest_where_none_has_a_score(tmp_path):
    path = make_run(tmp_path / "run", settings(), {2: 3.0, 4: 1.0, 6: 2.0})
    assert restore.load_params(path, settings())[1:] == (4, 0)
    assert restore.load_params(path, settings(), step=6)[1:] == (6, 0)
    path = make_run(tmp_path / "stopped", settings(), {2: None, 4: None})
    assert restore.load_params(path, settings())[1:] == (4, 0)


def test_the_member_is_the_one_asked_for_or_the_best_on_validation(tmp_path):
    pair = settings(members=2)
    path = make_run(tmp_path / "run", pair, {2: [0.5, 0.25]})
    (path / "metrics.jsonl").write_text('{"torn')  # which member is the best is told by its checkpoint
    states = fit.initial_state(pair).params
    for asked, member in ((None, 1), (0, 0), (1, 1)):
        params, step, found = restore.load_params(path, pair, asked)
        assert (step, found) == (2, member)
        jax.tree.map(lambda ours, all, k=member: np.testing.assert_array_equal(ours, all[k]), params, states)
    with pytest.raises(UserError, match="--member 3 is out of range: .* has members 0 to 1") as caught:
        restore.load_params(path, pair, 3)
    assert caught.value.exit_code == USAGE
    path = make_run(tmp_path / "unscored", pair, {2: None})
    with pytest.raises(UserError, match="not say which member is the best at step 2: .*--member 0 to 1") as caught:
        restore.load_params(path, pair)
    assert caught.value.exit_code == CHECKPOINT and restore.load_params(path, pair, 1)[2] == 1


def test_the_average_is_of_one_member_and_of_checkpoints_on_schedule(tmp_path):
    pair = settings(members=2, average=2)
    scores = {2: [0.0, 9.0], 4: [3.0, 4.0], 6: [6.0, 5.0]}  # the best member is not the same at each step
    with checkpoint.Checkpoints(tmp_path / "checkpoints") as checkpoints:
        for step, found in scores.items():
            checkpoints.save(step, state_of(pair, step), found)
        checkpoints.save(7, state_of(pair, 7), [0.0, 0.0], temporary=True)
    for asked, member in ((None, 1), (0, 0)):
        params, step, found = restore.load_params(tmp_path, pair, asked)
        assert (step, found) == (6, member)
        parts = [jax.tree.map(lambda leaf, k=member: leaf[k], state_of(pair, step).params) for step in (4, 6)]
        jax.tree.map(lambda ours, a, b: np.testing.assert_array_equal(ours, (a + b) / 2), params, *parts)


def state_of(settings, seed):
    return fit.initial_state(dataclasses.replace(settings, training=dataclasses.replace(settings.training, seed=seed)))


def test_predict_needs_the_settings_of_a_run_and_not_its_dataset(rows_file, tmp_path):
    copy = tmp_path / "rows.txt"
    copy.write_bytes(rows_file.read_bytes())
    path = make_run(tmp_path / "run", settings(dataset=str(copy)), {2: 1.0})
    copy.unlink()
    assert restore.load_settings(path).options.dataset == str(copy)
    with pytest.raises(UserError, match="rows.txt does not exist") as caught:
        restore.load_rows(path)
    assert caught.value.exit_code == DATA


def test_members_that_are_not_finite_are_named_once_and_the_last_of_them_ends_the_run(tmp_path, capsys):
    with log.Log(tmp_path / "metrics.jsonl", settings(members=3), 0, [1e-3, 1e-2, 1e-1]) as lines:
        for step, spoilt in ((2, [1]), (4, [1, 2]), (6, [0, 1, 2])):
            loss = np.ones((3, 2))
            loss[spoilt, 1] = np.nan
            lines.hold(step, {"loss": loss, "exact": np.full((3, 2), 0.5)})
            if step < 6:
                lines.flush()
        with pytest.raises(UserError, match="^every member's loss is not finite at step 6: lower --learning_rate"):
            lines.flush()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" is not finite")[0] for line in said] == [
        "step 2: the loss of member 1",
        "step 4: the loss of member 2",
    ]
    first, second = log.read_metrics(tmp_path)
    assert first["loss"] == [1.0, None, 1.0] and second["exact"] == [0.5, None, None]
    assert np.array(first["learning_rate"]) / first["learning_rate"][0] == pytest.approx([1, 10, 100])


def test_the_score_of_a_population_is_that_of_its_finite_members():
    assert log.finite_mean([0.5, np.nan, np.inf, 0.25]) == 0.375 and log.finite_mean([np.nan]) == np.inf
    np.testing.assert_array_equal(selection.score({"loss": [1.0, None], "exact": [1.0, None]}), [1e-4, np.nan])


def test_a_line_of_metrics_holds_means_over_its_steps(tmp_path):
    run = settings(log_every=2, steps=100)
    with log.Log(tmp_path / "metrics.jsonl", run, 0, run.optimizer.learning_rate) as lines:
        lines.flush()  # nothing held
        lines.hold(2, {"loss": np.array([1.0, 3.0], np.float32), "exact": np.array([0.0, 1.0], np.float32)})
        lines.flush()
        lines.flush()
    (record,) = log.read_metrics(tmp_path)
    rate = run.optimizer.learning_rate * 2 / run.optimizer.warmup_steps
    assert record.pop("seconds") >= 0 and record.pop("learning_rate") == pytest.approx(rate)
    assert record == {"step": 2, "loss": 2.0, "exact": 0.5}


def test_a_model_larger_than_any_disk_is_refused_by_its_size(tmp_path):
    vast = recipes.parse(["--d_model", "1000000000", "--run_dir", str(tmp_path / "run")])
    with pytest.raises(UserError, match=r"MB free and this takes about \d{1,3}(,\d{3}){4,} MB") as caught:
        experiment.train(vast)
    assert caught.value.exit_code == DISK
