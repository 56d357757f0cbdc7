"""The strings that check.py asks are those of every row, each with one answer, and numpy computes their logits."""

from itertools import product

import jax
import numpy as np
import pytest

from apformer import model as transformer
from apformer.proof import check, network, rounding, witness
from apformer.tasks.bases import alphabet, generator
from apformer.tasks.bases.proof import contexts
from apformer.tasks.bases.recipes import bases
from apformer.tasks.recurrences.rules import NAMES

PAIRS = [(rule, base) for rule in contexts.RULES for base in (2, 3, 4)]


def test_its_numbers_are_those_of_the_task():
    assert contexts.CHARACTERS == alphabet.CHARACTERS and contexts.SPACE == alphabet.SPACE
    assert contexts.CARRIES == generator.CARRIES
    for rule, (a, b) in contexts.RULES.items():
        assert (a, b, 0) == NAMES[rule] and contexts.TOKENS[rule] == alphabet.rule_token(rule)


def strings_of(tokens, P):
    """(string, the token after it) of every place after the second term of a row."""
    for at in range(2 + 2 * P, len(tokens)):
        back = [at - 1 - o for o in (0, P, P + 1, P - 1, 2 * P - 1, 2 * P)]
        read = [tokens[place] if place >= 2 else contexts.START for place in back]
        yield (*read[:3], *tokens[:2], *read[3:], tokens[at])


def rows_of(rule, base):
    """Every row of four terms of one to three digits in base 2, of one and two in others, in plain whole numbers."""
    a, b, _ = NAMES[rule]
    for D in range(1, 4 if base == 2 else 3):
        for y, x in product(range(base**D), repeat=2):
            row = [y, x]
            while len(row) < 4:
                row.append((a * row[-1] + b * row[-2]) % base**D)
            yield [int(token) for token in alphabet.encode(generator.render(rule, base, row, D) + " ")], D + 1


def asked(rule, base):
    columns = np.concatenate([contexts.within(rule, base, range(base)), contexts.others(rule, base)], axis=1)
    return {tuple(column) for column in columns.T.tolist()}, columns.shape[1]


@pytest.mark.parametrize(("rule", "base"), PAIRS)
def test_every_string_of_a_row_is_asked_and_has_one_answer(rule, base):
    ours, number = asked(rule, base)
    of_rows = {string for tokens, P in rows_of(rule, base) for string in strings_of(tokens, P)}
    assert of_rows <= ours and len(of_rows) > base**2
    assert len({string[:-1] for string in ours}) == len(ours) == number == contexts.count(rule, base)


@pytest.mark.parametrize(("rule", "base"), PAIRS)
def test_every_string_that_is_asked_occurs(rule, base):
    """In random rows of up to twelve digits, which have all carries; those of base 4 are too many to be met."""
    if base == 4:
        pytest.skip("too many")
    random, (a, b, _), met = np.random.default_rng(base), NAMES[rule], set()
    for _ in range(400 if base == 2 else 4000):
        D = int(random.choice([1, 2, 12, 12, 12, 12]))
        row = [int(number) for number in random.integers(0, base**D, 2)]
        row.append((a * row[1] + b * row[0]) % base**D)
        tokens = [int(token) for token in alphabet.encode(generator.render(rule, base, row, D) + " ")]
        met |= {*strings_of(tokens, D + 1)}
    assert asked(rule, base)[0] <= met


def test_slices_hold_every_context_once(monkeypatch):
    monkeypatch.setattr(contexts, "MOST", 200)
    data = {"rules": ["progression", "doubling"], "bases": [2, 5]}
    found = np.concatenate([*contexts.slices(data, {"position": "columns"})], axis=1)
    number = sum(contexts.count(rule, base) for rule in data["rules"] for base in data["bases"])
    assert found.shape == (9, number) and len(np.unique(contexts.strings(found, data, None)[0])) == number


def test_a_text_of_a_string_leads_to_its_logits(random_params):
    """What numpy computes of a string, `model.apply` computes of the text that has it; float32 rounds."""
    cfg = bases().model
    params = random_params(cfg)
    weights = witness.stored(params)
    config = vars(cfg) | {"position_options": vars(cfg.position_options)}
    assert network.beyond(config) is None
    assert {name: array.shape for name, array in weights.items()} == network.shapes(config)
    columns = np.concatenate([f(rule, 3) for rule in contexts.RULES for f in (every, contexts.others)], axis=1)
    columns = columns[:, np.random.default_rng(0).permutation(columns.shape[1])[:600]]
    strings, right, ours_NV, margin = check.ask(*contexts.strings(columns, None, None), weights, config)
    rows = contexts.rows(strings, config)
    assert [len(which) > 0 for which, _ in rows] == 7 * [True] and sum(len(which) for which, _ in rows) == len(strings)
    for which, tokens_BT in rows:
        theirs_BTV = jax.jit(lambda params, tokens_BT: transformer.apply(params, tokens_BT, cfg))(params, tokens_BT)
        np.testing.assert_allclose(ours_NV[which], theirs_BTV[:, -1], rtol=2e-4, atol=2e-3)
    ratio = rounding.ratios(strings, right, weights, config)
    assert (ratio[margin <= 0] <= 0).all() and np.isfinite(ratio).all()


def every(rule, base):
    return contexts.within(rule, base, range(base))
