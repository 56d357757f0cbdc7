"""The contexts are all that occur in any progression, each with the right answer, and a wrong one is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from apformer import model
from apformer.decoding import bind
from apformer.tasks.digits import certificate, generator
from apformer.tasks.digits.generator import SPACE
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import close, small

NOTHING = -1


def seen(tokens_T):
    """What two layers of near = 1 see at the last token: offsets 0, P - 1, P, 2 P - 2, 2 P - 1 and 2 P."""
    P, t = int(np.argmax(np.asarray(tokens_T) == SPACE)) + 1, len(tokens_T) - 1
    offsets = (0, P - 1, P, 2 * P - 2, 2 * P - 1, 2 * P)
    return tuple(int(tokens_T[t - offset]) if offset <= t else NOTHING for offset in offsets)


@pytest.fixture(scope="module")
def asked():
    """{what is seen: what must follow}; no context has two answers."""
    answers = {}
    for tokens_BT, target_B in certificate.contexts().values():
        P, t = int(np.argmax(tokens_BT[0] == SPACE)) + 1, tokens_BT.shape[1] - 1
        offsets = (0, P - 1, P, 2 * P - 2, 2 * P - 1, 2 * P)
        columns = [tokens_BT[:, t - o] if o <= t else np.full(len(tokens_BT), NOTHING) for o in offsets]
        for context, target in zip(np.stack(columns, 1).tolist(), target_B.tolist(), strict=True):
            assert answers.setdefault(tuple(context), target) == target
    return answers


def test_every_context_of_every_progression_is_asked(asked):
    """Of random and of adversarial ones, of one digit up to thirty, to their last space, in plain whole numbers."""
    random = np.random.default_rng(0)
    met = set()
    for i in range(3000):
        width = int(random.integers(1, 5) if i % 2 else random.integers(1, 31))
        top = 10**width - 1
        ends = [int("".join(map(str, random.integers(0, 10, width)))) for _ in range(2)]
        terms = int(random.integers(3, 6))
        difference = (ends[1] - ends[0]) // (terms - 1) // 10 ** int(random.integers(0, width))
        values = [ends[0] + k * difference for k in range(terms)]
        values = [value for value in values if 0 <= value <= top]
        if len(values) < 3:
            continue
        tokens_T = encode(generator.render(values, width, "lsb"))
        for t in range(2 * (width + 1) - 1, len(tokens_T)):
            context = seen(tokens_T[:t])
            assert asked[context] == tokens_T[t], (values, t)
            met.add(context)
    assert len(met) > 20_000


def test_every_progression_of_one_and_two_digits(asked):
    for width in (1, 2):
        for first in range(10**width):
            for second in range(10**width):
                values = [v for v in (first + k * (second - first) for k in range(4)) if 0 <= v < 10**width]
                tokens_T = encode(generator.render(values, width, "lsb"))
                for t in range(2 * (width + 1) - 1, len(tokens_T)):
                    assert asked[seen(tokens_T[:t])] == tokens_T[t]


def test_how_many_contexts_there_are():
    counts = {where: len(target_B) for where, (_, target_B) in certificate.contexts().items()}
    assert counts["within a term"] == 300_000 and counts["its highest digit"] == 30_000
    assert sum(counts.values()) == 334_700


@pytest.mark.parametrize(("changes", "more"), [({"attention_sink": True}, False), ({"n_layers": 3}, True)])
def test_a_model_sees_what_is_put_into_another_text_and_nothing_else(changes, more, random_params):
    cfg = small(**{"position": "periodic"} | changes)
    params, random = random_params(cfg), np.random.default_rng(1)
    apply = jax.jit(lambda tokens_BT: model.apply(params, tokens_BT, cfg)[:, -1])
    for where, step in (("within a term", 9973), ("the space after the second term", 31)):
        tokens_BT = certificate.contexts()[where][0][::step][:30]
        one, other = (apply(certificate.put_into(tokens_BT, 9, random)) for _ in range(2))
        if more:
            assert float(abs(one - other).max()) > 1e-3
            return
        np.testing.assert_array_equal(one, other)
        close(one, apply(tokens_BT), 1e-5)


def knows(table, tokens_BT):
    """The answer of the table to what two layers see at each token."""
    T = tokens_BT.shape[1]
    at_T = jnp.arange(T, dtype=jnp.int32)
    ends_BT = jnp.where(tokens_BT == SPACE, at_T[None] + 1, T + 1)
    P_BT = jax.lax.cummin(ends_BT, axis=1)
    index = []
    for terms, place in ((0, 0), (1, 1), (1, 0), (2, 2), (2, 1), (2, 0)):
        from_BT = at_T[None] - terms * P_BT + place
        token_BT = jnp.take_along_axis(tokens_BT, jnp.clip(from_BT, 0, T - 1), axis=1)
        index.append(jnp.where(from_BT >= 0, token_BT, NOTHING) + 1)
    return 9.0 * jax.nn.one_hot(table[tuple(index)], 11)


def extend(table, tokens_BT, cache, lengths_B=None):
    old, count = cache
    text = jax.lax.dynamic_update_slice(old, tokens_BT, (0, count))
    logits = jax.lax.dynamic_slice(knows(table, text), (0, count, 0), (*tokens_BT.shape, 11))
    return logits, (text, count + tokens_BT.shape[1])


def init_cache(batch_size, length):
    return jnp.zeros((batch_size, length), jnp.int32), jnp.int32(0)


def oracle(asked, spoilt=None):
    """A model that sees what two layers see, and knows the answer but for one context.

    Its table is a parameter: so every oracle runs the same programs, and none of them holds it.
    """
    table = np.zeros((12,) * 6, np.int8)
    for context, target in asked.items():
        table[tuple(token + 1 for token in context)] = target if context != spoilt else (target + 1) % 10
    table = jnp.asarray(table)
    return bind.Model(Partial(knows, table), Partial(extend, table), Partial(init_cache))


def test_who_knows_all_answers_is_certified_and_one_wrong_answer_is_named(asked):
    told = []
    result = certificate.conclude(oracle(asked), lambda done, total, note: told.append((done, total)))
    assert result["certified"] and result["errors"] == 0 and result["smallest_margin"] == 9.0
    assert told[-1] == (334_700, 334_700) and result["outside_difference"] == 0
    assert "any number of digits" in result["claim"]

    spoilt = seen(encode("0719 0805 00"))  # y_j 1, x_j 0, the place below carries
    parts, worst = certificate.enumerate_contexts(oracle(asked, spoilt).apply)
    assert sum(part["errors"] for part in parts.values()) == sum(context["margin"] <= 0 for context in worst) >= 1
    assert all(seen(encode(context["given"])) == spoilt for context in worst if context["margin"] <= 0)


def test_what_changes_with_unseen_characters_is_found(random_params, monkeypatch):
    monkeypatch.setattr(certificate, "WIDTHS", (5,))
    cfg = small(position="periodic", n_layers=3)
    outside, rounding = certificate.differences(bind.bind(model, random_params(cfg), cfg))
    assert outside > 1e-3 and rounding > 1e-3
