"""The automaton has every outcome that occurs, a model that knows all answers is right, and a wrong one is named."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model as transformer
from apformer.analysis import certificate
from apformer.decoding.bind import bind
from apformer.proof import network
from apformer.tasks.digits import generator, natural_order
from apformer.tasks.digits.natural_order import SPACE, Answers
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import AHEAD

INSIDE, LOWEST, *SPACES = natural_order.texts()
PAIRS = natural_order.texts()[INSIDE]


def test_a_key_is_as_unsure_as_in_check_py():
    assert natural_order.UNSURE == network.UNSURE


def verdict(above, u):
    """What a place of u says after an open place: -1 for LOW, 1 for HIGH, 0 if it goes on. After others, anything."""
    if above in (0, 10):
        return 0 if u in (0, -1) else -1 if u < 0 else 1
    if above in (-1, 9):
        return 0 if u in (9, 10) else -1 if u < 9 else 1
    return (above + u) % 3 - 1


def carry(u, bit):
    """What a place carries, of which the places below say LOW or HIGH."""
    of_open = {0: (-1, 0), -1: (-1, 0), 9: (0, 1), 10: (0, 1)}
    return of_open[u][bit > 0] if u in of_open else -1 if u < 0 else 1 if u > 10 else 0


def knowing():
    """Answers of a model that follows the table in words, with a margin of 9."""
    u_j, u_i = (2 * PAIRS[:, x] - PAIRS[:, y] for x, y in ((3, 0), (4, 1)))
    says = np.array([verdict(*pair) for pair in zip(u_j.tolist(), u_i.tolist(), strict=True)])
    digits = [(u_j + [carry(u, bit) for u in u_i.tolist()]) % 10 for bit in (-1, 0, 1)]
    found = {INSIDE: Answers(np.where(says == 0, -2.0, 3.0), 4.0 * says, 9.0 * np.eye(11)[np.stack(digits, 1)])}
    lowest = natural_order.texts()[LOWEST]
    u_0 = 2 * lowest[:, 4] - lowest[:, 1]
    says = np.where(np.isin(u_0, (-1, 9)), -4.0, 4.0)
    found[LOWEST] = Answers(np.full(100, 3.0), says, 9.0 * np.eye(11)[(u_0 % 10)[:, None] * np.ones((1, 3), int)])
    spaces = Answers(np.ones(100), np.ones(100), 9.0 * np.eye(11)[np.full((100, 3), SPACE)])
    return found | dict.fromkeys(SPACES, spaces)


def row_of(text):
    return int(np.flatnonzero((PAIRS == encode(text)).all(1))[0])


def test_what_follows_the_table_is_right_and_one_wrong_answer_or_key_is_named():
    found = knowing()
    parts, worst = natural_order.judge(found)
    tally = certificate.together(parts.values())
    assert tally["errors"] == 0 and tally["smallest_margin"] == 9.0 and set(parts) == {INSIDE, LOWEST, *SPACES}
    assert parts[LOWEST]["contexts"] == 200  # the first key, at the highest digit of z, says 1; or there is none
    assert parts[SPACES[0]]["contexts"] == parts[SPACES[1]]["contexts"] == 300
    # Twenty open places have either bit. Of the others, each bit that can come has each answer once.
    assert 100 * (20 * 2 + 80) <= parts[INSIDE]["contexts"] <= 100 * (20 * 2 + 80 * 3)

    found = knowing()  # 2 * 3 - 5 = 1, and 0 below it, which is open: 1 - 1 after LOW
    found[INSIDE].logits_BRV[row_of("54 32"), 0] = 9.0 * np.eye(11)[1]
    parts, worst = natural_order.judge(found)
    assert sum(part["errors"] for part in parts.values()) == 1
    expected = {"given": "542 320 ", "bit": -1, "where": INSIDE, "expected": "0", "predicted": "1", "margin": -9.0}
    assert worst[0] == expected and worst[1]["margin"] == 9.0

    found = knowing()
    found[INSIDE].says_B[row_of("49 21")] = 4.0  # after 0 and with -7 below it, LOW: 2 2 - 4 and 2 1 - 9
    parts, worst = natural_order.judge(found)
    assert parts[INSIDE]["errors"] >= 100 and worst[0]["margin"] == -9.0  # whatever the place above has
    given = [context["given"] for context in worst if context["margin"] < 0]
    assert {2 * int(x[1]) - int(y[1]) for y, x in map(str.split, given)} <= {-1, 0, 9, 10}


def test_keys_that_are_near_0_are_read_both_ways():
    for name in ("decides_B", "says_B"):
        for where in (INSIDE, LOWEST):
            found = knowing()
            b = row_of("49 21") if where == INSIDE else 0  # 2 0 - 0 is open
            getattr(found[where], name)[b] = -0.2 if name == "decides_B" else 0.2 * np.sign(found[where].says_B[b])
            parts, _ = natural_order.judge(found)
            assert sum(part["errors"] for part in parts.values()) > 0, (name, where)


def look(found, x, y, j):
    """The bit that a model with these Answers finds for place j, which reads x and y from place j - 2 down."""
    for i in range(j - 2, -2, -1):
        if i >= 0:
            answers, b = found[INSIDE], ((y[i + 1] * 10 + y[i]) * 10 + x[i + 1]) * 10 + x[i]
        else:
            answers, b = found[LOWEST], 10 * y[0] + x[0]
        if answers.decides_B[b] > 0:
            return 1 if answers.says_B[b] > 0 else -1
    return 0


@pytest.mark.parametrize("kind", ["knowing", "random"])
def test_every_outcome_of_a_progression_is_enumerated(kind):
    """Of random digits and of chains, of 2 to 30 digits, in plain whole numbers: of models that are right and wrong."""
    random, found = np.random.default_rng(0), knowing()
    if kind == "random":
        for where, answers in found.items():
            decides_B, says_B = random.normal(size=(2, len(answers.says_B)))
            found[where] = answers._replace(decides_B=decides_B - 0.5, says_B=says_B)
    met_PRC, _ = natural_order.outcomes(found)
    seen = np.zeros_like(met_PRC)
    rows = [generator.chains(jax.random.key(w), np.full(40, w, np.int32), w, 2).digits_BNC for w in (4, 30)]
    pairs = [np.asarray(row) for chunk in rows for row in chunk]
    pairs += [random.integers(0, 10, (2, int(random.integers(2, 8)))) for _ in range(1000)]
    for y, x in pairs:
        value = 0
        for j in range(1, len(x)):
            value += (2 * int(x[j - 1]) - int(y[j - 1])) * 10 ** (j - 1)
            c, bit = value // 10**j, look(found, x, y, j)
            seen[10 * y[j - 1] + x[j - 1], bit + 1, c + 1] = True
    assert not (seen & ~met_PRC).any()
    assert seen.sum() > 0.5 * met_PRC.sum() if kind == "knowing" else seen.sum() > 100


def test_a_chain_is_open_from_its_first_place_to_its_last_and_is_drawn():
    numbers = generator.chains(jax.random.key(0), jnp.full(400, 6, jnp.int32), 6, 4)
    y_BC, x_BC, z_BC, w_BC = (np.asarray(numbers.digits_BNC)[:, n] for n in range(4))
    assert (np.isin(2 * x_BC - y_BC, (-1, 0, 9, 10)).sum(1) == 6).mean() > 0.1  # a sixth has the length 6
    values = [[generator.value(digits_C) for digits_C in digits_BC] for digits_BC in (y_BC, x_BC, z_BC, w_BC)]
    for y, x, z, w, fits_N in zip(*values, np.asarray(numbers.fits_BN), strict=True):
        assert fits_N.tolist() == [True, True, f := 0 <= 2 * x - y < 10**6, f and 0 <= 3 * x - 2 * y < 10**6]
        assert not fits_N[2] or z == 2 * x - y
        assert not fits_N[3] or w == 3 * x - 2 * y
    assert 0.2 < np.asarray(numbers.fits_BN)[:, 2].mean() < 0.9


@pytest.fixture(scope="module")
def untrained(random_params):
    return bind(transformer, random_params(AHEAD), AHEAD)


def test_a_model_says_of_a_state_and_a_bit_what_it_says_in_any_text(untrained, monkeypatch):
    """The last layer as its equations say it, against the whole network, in texts of terms of two widths."""
    monkeypatch.setattr(natural_order, "WIDTHS", (2, 9))
    found = {where: natural_order.ask(untrained, tokens_BT) for where, tokens_BT in natural_order.texts().items()}
    outside, rounding = natural_order.differences(untrained, found)
    assert outside == 0 and rounding < 1e-4
    logits_BRV = found[INSIDE].logits_BRV
    assert min(abs(logits_BRV[:, 0] - logits_BRV[:, 2]).max(), abs(logits_BRV[:, 1] - logits_BRV[:, 2]).max()) > 1e-2
    result = natural_order.conclude(untrained)
    assert not result["certified"] and result["errors"] > 0 and len(result["worst"]) == certificate.WORST


def test_models_that_see_more_are_refused():
    assert natural_order.unbounded(AHEAD) is None
    for change in ({"residual": True}, {"attention_sink": True}, {"weighting": "geometric"}, {"norm_position": "post"}):
        assert next(iter(change)) in natural_order.unbounded(replace(AHEAD, **change))
