"""Rows of recurrences: literal ones, what is known of them, and that no held-out pair stands in a training row."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.errors import UserError
from apformer.tasks.recurrences import generator, rules
from apformer.tasks.recurrences.generator import Config, Rows
from apformer.tokenizers.digits import decode

THREE = ("fibonacci", "doubling", "progression")
# Compiled whole: operation by operation, each one is a program of its own.
draw = jax.jit(generator.draw, static_argnums=(1, 2, 3, 4))
values = jax.jit(generator.values, static_argnums=(1, 2))
split_of = jax.jit(generator.split_of, static_argnums=2)


def rows_of(*rows):
    """Rows from (rule, first, second, terms)."""
    return Rows(*np.array(rows, np.int32).T)


def texts(rows, cfg, terms):
    batch = generator.encode(rows, cfg, terms)
    counted = ["".join("^" if weight else "." for weight in weights_T) for weights_T in np.asarray(batch.weights_BT)]
    return [decode(tokens_T) for tokens_T in np.asarray(batch.tokens_BT)], counted


def test_literal_rows_of_one_rule():
    found, counted = texts(rows_of((0, 3, 5, 5), (0, 89, 44, 5)), Config(), 5)
    assert found == ["03 05 08 13 21", "89 44 33 77 10"]
    assert counted == [".....^^^^^^^^^"] * 2


def test_literal_rows_of_several_rules():
    cfg = Config(digits=3, rules=(*THREE, "0,1,7"))
    found, counted = texts(rows_of(*((rule, 998, 999, 4) for rule in range(4))), cfg, 4)
    assert found == ["1 998 999 997 996", "2 998 999 998 996", "3 998 999 000 001", "4 998 999 005 006"]
    assert counted == [".........^^^^^^^^"] * 4
    assert [generator.render(rule, 998, 999, 4, cfg) for rule in range(4)] == found


def test_a_row_that_ends_is_filled_with_zeros_that_do_not_count():
    found, counted = texts(rows_of((0, 3, 5, 3), (0, 3, 5, 0)), Config(), 4)
    assert found == ["03 05 08000", "00000000000"] and counted == [".....^^^...", "..........."]


def test_without_names_a_term_is_known_where_all_rules_agree_that_the_terms_before_follow():
    """1 2 is 1 + 2, 2 * 2 or 2 * 2 - 1 = 3; after 1 2 4 only doubling is left; of 0 0 0 all say 0."""
    cfg = Config(digits=1, rules=THREE, named=False)
    found, counted = texts(rows_of((1, 1, 2, 5), (0, 1, 2, 5), (0, 0, 0, 5)), cfg, 5)
    assert found == ["1 2 4 8 6", "1 2 3 5 8", "0 0 0 0 0"]
    assert counted == [".....^^^^", ".......^^", "...^^^^^^"]


@given(st.sampled_from(sorted(rules.NAMES)), st.integers(0, 99), st.integers(0, 99))
def test_terms_follow_their_rule(name, first, second):
    a, b, c = rules.NAMES[name]
    row = np.asarray(values(rows_of((0, first, second, 8)), Config(rules=(name,)), 8))[0].tolist()
    assert row[:2] == [first, second]
    assert all(z == (a * y + b * x + c) % 100 for x, y, z in zip(row, row[1:], row[2:], strict=False))


@pytest.mark.parametrize("cfg", [Config(), Config(rules=THREE), Config(rules=THREE, named=False), Config(digits=1)])
def test_no_held_out_pair_stands_in_a_training_row(cfg):
    rows = draw(jax.random.key(0), cfg, 3000, "train", cfg.terms)
    texts_B = map(decode, np.asarray(generator.encode(rows, cfg, cfg.terms).tokens_BT))
    pairs = set()
    for text, terms in zip(texts_B, np.asarray(rows.terms_B), strict=True):
        assert terms >= 3
        words = text[generator.head(cfg) : generator.length(cfg, int(terms))].split(" ")
        assert len(words) == terms
        pairs |= set(zip(words, words[1:], strict=False))
    before, last = (np.array(side, np.int32) for side in zip(*((int(x), int(y)) for x, y in pairs), strict=True))
    assert (generator.split_of(before, last, cfg.digits) == 0).all()
    assert len(pairs) > 0.6 * 100**cfg.digits * (cfg.digits == 1 or 0.5)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_held_out_row_begins_with_a_pair_of_its_split(split):
    rows = draw(jax.random.key(0), Config(), 200, split, 4)
    found = split_of(rows.first_B, rows.second_B, 2)
    assert (np.asarray(found) == generator.SPLITS.index(split)).all() and (np.asarray(rows.terms_B) == 4).all()


def test_the_splits_are_about_80_10_and_10():
    number = np.arange(10_000, dtype=np.int32)
    counts = np.bincount(np.asarray(generator.split_of(number // 100, number % 100, 2)))
    np.testing.assert_allclose(counts / 10_000, [0.8, 0.1, 0.1], atol=0.01)


def test_numbers_go_through_every_row_once():
    cfg = Config(digits=1, rules=("fibonacci", "doubling"))
    rows = generator.numbered(np.arange(generator.count(cfg), dtype=np.int32), cfg, 3)
    assert len(set(zip(*(np.asarray(leaf).tolist() for leaf in rows[:3]), strict=True))) == 200


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"digits": 5}, "--digits 5 is out of range: give 1 to 4"),
        ({"terms": 2}, "--terms 2 is out of range: give 3 to 1000"),
        ({"terms": 3, "rules": THREE, "named": False}, "--terms 3 is out of range: give 4 to 1000"),
        ({"rules": ()}, "--rules has 0 rules"),
        ({"rules": ("squares",)}, "--rules squares is no rule: give fibonacci"),
        ({"rules": ("1,2",)}, "--rules 1,2 is no rule"),
        ({"rules": ("1,1,10000",)}, "--rules 1,1,10000 is out of range"),
        ({"rules": ("fibonacci", "1,1,0")}, "gives a rule twice"),
    ],
)
def test_what_no_generator_can_follow_is_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        generator.check(Config(**changes))
