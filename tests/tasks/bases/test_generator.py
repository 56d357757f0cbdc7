"""Rows in many bases, against plain whole numbers, and their text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.errors import DATA, USAGE, UserError
from apformer.tasks.bases import alphabet, continuation, generator
from apformer.tasks.bases.alphabet import decode, encode
from apformer.tasks.bases.generator import Config

FOLLOWS = {"=": lambda y, x: 2 * x - y, "+": lambda y, x: x + y, "*": lambda y, x: 2 * x}
draw = jax.jit(generator.draw, static_argnames=("cfg", "places", "terms", "hard"))


@pytest.mark.parametrize("hard", [False, True])
def test_rows_follow_their_rule_in_their_base(hard):
    """Python reads the text of each row; every rule, base and width is drawn."""
    cfg, met = Config(), set()
    width_B = jnp.tile(jnp.arange(1, 6, dtype=jnp.int32), 120)
    rows = draw(jax.random.key(3), cfg, width_B, 5, 5, hard=hard)
    batch = generator.encode(rows, cfg)
    for tokens_T, weights_T, width in zip(*map(np.asarray, batch[:2]), np.asarray(width_B), strict=True):
        length = generator.length(5, width)
        heading, *terms = decode(tokens_T[:length]).split(" ")
        base = int(heading[1], 16) + 1
        y, x, *rest = (int(term[::-1], base) for term in terms)
        assert {len(term) for term in terms} == {width} and len(terms) == 5
        for z in rest:
            assert z == FOLLOWS[heading[0]](y, x) % base**width
            y, x = x, z
        asked = np.zeros(len(tokens_T))
        asked[generator.length(2, width) : length] = 1  # from the space after the second term
        np.testing.assert_array_equal(weights_T, asked)
        met.add((heading, int(width)))
    assert len({heading for heading, _ in met}) == 45 and len(met) > 150


def test_hard_places_pass_on_what_is_carried_into_them():
    """Where it can be: of a progression at every place that is chosen, twice as often as by chance in all."""
    cfg, shares = Config(bases=(9, 10)), {}
    a_b_carries = {"progression": (2, -1, (-1, 0, 1)), "fibonacci": (1, 1, (0, 1)), "doubling": (2, 0, (0, 1))}
    for hard in (False, True):
        rows = draw(jax.random.key(1), cfg, jnp.full(300, 6, jnp.int32), 6, 2, hard=hard)
        y_BC, x_BC = np.asarray(rows.digits_BNC).swapaxes(0, 1)
        for number, rule in enumerate(cfg.rules):
            (a, b, carries), base_B1 = a_b_carries[rule], np.asarray(rows.base_B)[:, None]
            passed_on = np.stack([(a * x_BC + b * y_BC + c) // base_B1 for c in carries])
            chosen_B = (np.asarray(rows.rule_B) == number) & (np.asarray(rows.base_B) == 9)
            shares[rule, hard] = (passed_on.min(0) < passed_on.max(0))[chosen_B].mean()
    for rule in cfg.rules:
        assert shares[rule, True] > 2 * shares[rule, False] > 0 and shares[rule, True] > 0.4


def test_rows_as_text():
    assert generator.render("progression", 10, (7, 10, 13), 3) == "=9 700 010 310"
    assert generator.render("doubling", 16, (0xA3, 0x64), 2) == "*f 3a 46"
    assert decode(encode("+1 1010 1100")) == "+1 1010 1100"
    assert [*encode("0f =")] == [0, 15, 16, 17] and alphabet.HEADING == 2
    with pytest.raises(UserError, match="character 2 is 'g', which the vocabulary lacks") as error:
        encode("0g")
    assert error.value.exit_code == DATA


def test_pairs_may_be_chosen():
    cfg = Config(bases=(3, 16), rules=("doubling", "progression"))
    rows = draw(jax.random.key(0), cfg, jnp.full(4, 2, jnp.int32), 2, 3, jnp.arange(4, dtype=jnp.int32))
    assert rows.base_B.tolist() == [3, 16, 3, 16] and rows.rule_B.tolist() == [0, 0, 1, 1]
    assert generator.pairs(cfg)[1] == ("doubling", 16)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"digits": 0}, "--digits 0 does not fit"),
        ({"bases": (2, 17)}, "--bases 17 has no digits"),
        ({"bases": ()}, "--bases  does not fit: give each once"),
        ({"bases": (3, 3)}, "--bases 3 3 does not fit"),
        ({"rules": ("tripling",)}, "--rules tripling is unknown: give some of progression, fibonacci, doubling"),
    ],
)
def test_configs_that_no_generator_can_follow(changes, named):
    with pytest.raises(UserError, match=named) as error:
        generator.check(Config(**changes))
    assert error.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "begins with ''; begin with a rule"),
        ("9= 1 2", "begins with '9='"),
        ("=4 123 300", "begins with '=4'"),  # of base 5, which is not asked
        ("=9", "has a first term of 0 digits"),
        ("=9 12", "has one term"),
        ("=9 12 3", "term 2 is not 2 of the digits 0123456789"),
        ("=9  12 30", "has a first term of 0 digits"),
        ("=9 12 30 ", "term 3 is not 2 of"),
        ("=2 12 34", "term 2 is not 2 of the digits 012;"),
        ("+9 12 30 43", "term 3 does not follow by fibonacci in base 10"),
        ("=9 700 010 310", None),
        (generator.render("doubling", 3, (5, 4, 8, 7), 2), None),  # 16 modulo 9
    ],
)
def test_lines_that_cannot_be_continued_are_named(line, named):
    cfg = Config(bases=(3, 10))
    found = continuation.fault(line, cfg)
    assert found is None if named is None else named in found
