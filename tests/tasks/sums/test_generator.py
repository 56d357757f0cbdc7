"""Sums against plain whole numbers, their split, and their text."""

import jax
import numpy as np
import pytest

from apformer.errors import USAGE, UserError
from apformer.runs import recipes
from apformer.tasks.sums import continuation, evaluation, generator, training
from apformer.tasks.sums.generator import Config
from apformer.tokenizers.digits import decode

draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("digits", [1, 2, 10])
def test_rows_are_sums_by_python(digits, chains):
    batch = generator.encode(draw(jax.random.key(digits), Config(digits), 200, chains))
    for tokens_T, weights_T in zip(*map(np.asarray, batch), strict=True):
        words = decode(tokens_T).split(" ")
        a, b, s = (int(word[::-1]) for word in words)
        assert s == a + b and [*map(len, words)] == [digits, digits, digits + 1]
        assert weights_T.tolist() == [0] * 2 * (digits + 1) + [1] * (digits + 1)


def test_a_literal_row():
    row = generator.encode(np.array([[[9, 9, 9], [1, 0, 0]]], np.int32))
    assert decode(row.tokens_BT[0]) == "999 100 0001" and generator.length(Config(3)) == 12
    assert generator.render(5, 70, Config(3)) == "500 070"


def test_chains_carry_further_than_random_digits():
    random, chains = (np.asarray(draw(jax.random.key(0), Config(10), 500, chains)) for chains in (False, True))
    carried = {name: np.asarray(generator.carries(pairs)) for name, pairs in (("random", random), ("chains", chains))}
    passed = {
        name: (carried[name] > 0) & (pairs.sum(1) == 9) for name, pairs in (("random", random), ("chains", chains))
    }
    assert passed["chains"].sum(1).max() == 9 and passed["chains"].mean() > 3 * passed["random"].mean()


def test_no_pair_is_in_two_splits_and_training_counts_its_own_alone():
    settings = recipes.parse(["--recipe", "sums", "--digits", "2", "--batch_size", "400"])
    batch = training.sample(jax.random.key(0), settings)
    asked_B = np.asarray(batch.weights_BT).any(1)
    texts = np.array([decode(tokens_T)[:5] for tokens_T in np.asarray(batch.tokens_BT)])
    held = {}
    for split in generator.SPLITS:
        pairs = generator.held_out(1, Config(2), 300, split)
        held[split] = {decode(tokens_T)[:5] for tokens_T in np.asarray(generator.encode(pairs).tokens_BT)}
        assert len(pairs) == 300
    unseen = held["test"] | held["validation"]
    assert not held["train"] & unseen and not held["test"] & held["validation"]
    assert not {*texts[asked_B]} & unseen and {*texts[~asked_B]} & unseen and 0.7 < asked_B.mean() < 0.9


def test_adversarial_pairs_carry_over_any_number_of_places():
    carried = {tuple(row) for row in np.asarray(generator.carries(evaluation.adversarial(Config(4)))).tolist()}
    assert {(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 1), (0, 0, 1, 1), (0, 0, 0, 1)} <= carried


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "is not two terms of 2 digits"),
        ("50 7", "is not two terms of 2 digits; give two with a space between, least significant digit first, such as"),
        ("50 70 ", "is not two terms"),
        ("50  70", "is not two terms"),
        ("\u06630 70", "is not two terms"),  # a digit, but not of ours
        ("50 70", None),
    ],
)
def test_lines_that_cannot_be_continued_are_named(line, named):
    found = continuation.fault(line, Config(2))
    assert found is None if named is None else named in found


@pytest.mark.parametrize("digits", [0, 1001])
def test_configs_that_no_generator_can_follow(digits):
    with pytest.raises(UserError, match=f"--digits {digits} is out of range: give 1 to 1000") as error:
        generator.check(Config(digits))
    assert error.value.exit_code == USAGE
