"""The strings that check.py asks are those of every row, each with one answer, and numpy computes their logits."""

from dataclasses import asdict
from itertools import product

import jax
import numpy as np
import pytest
from jax import export

from apformer import tasks
from apformer.decoding.bind import bind
from apformer.layers import leaves
from apformer.proof import check, network, rounding
from apformer.settings import load_architecture, proof_config
from apformer_lab import bases, digits, recurrences, rows, sparse, sums
from apformer_lab.proof import ahead, columns
from apformer_lab.proof import recurrences as of_recurrences
from apformer_lab.proof import sums as of_sums

LSB = digits.digits(order="lsb")
MSB = digits.digits()
BASES = bases.bases()
WITH, WITHOUT = asdict(BASES.model), asdict(LSB.model)


def as_set(found):
    asked = {tuple(column) for column in found.T.tolist()}
    assert len({column[:-1] for column in asked}) == len(asked) == found.shape[1]  # each has one answer
    return asked


def strings_of(tokens, P, cfg):
    """(string, the token after it) of every place after the second term of a row."""
    h, first = cfg["heading"] or 0, cfg["heading"] + 1 if cfg["heading"] else 0
    for at in range(first + 2 * P - 1, len(tokens)):
        back = [at - 1 - o for o in (0, P, P + 1, P - 1, 2 * P - 1, 2 * P)]
        read = [tokens[place] if place >= h else cfg["vocab_size"] for place in back]
        yield (*read[:3], *tokens[:h], *read[3:], tokens[at])


def rows_of(form, pair, most):
    """Every row of four terms of up to `most` digits as far as its terms fit, as (tokens, period)."""
    base = form.bases[pair % len(form.bases)]
    for D in range(1, most + 1):
        for y, x in product(product(range(base), repeat=D), repeat=2):
            row = [list(y), list(x)]
            while len(row) < 4:
                term, fits = rows.next_term(form, pair, *row[-2:])
                if not fits:
                    break
                row.append(term)
            if len(row) > 2:
                yield [form.characters.index(c) for c in rows.row_text(form, pair, row) + " "], D + 1


@pytest.mark.parametrize("pair", [0, 1, 2, 15, 16, 17, 30, 31, 32])
def test_every_string_of_rows_in_a_base_is_asked(pair):
    """Bases 2, 3 and 4, and of base 2 every string that is asked occurs in random rows of many digits."""
    form = BASES.data.form
    rule, base = form.pairs()[pair]
    data = {"rules": [rule], "bases": [base]}
    asked = as_set(np.concatenate([*columns.slices(data, WITH)], axis=1))
    of_rows = {
        string for tokens, P in rows_of(form, pair, 3 if base == 2 else 2) for string in strings_of(tokens, P, WITH)
    }
    assert of_rows <= asked and len(of_rows) > base**2
    if base == 2:
        rng, met = np.random.default_rng(0), set()
        for _ in range(600):
            y, x = (rng.integers(0, 2, int(rng.choice([1, 2, 12, 12, 12]))).tolist() for _ in range(2))
            x, y = x[: len(y)], y[: len(x)]
            row = [y, x, rows.next_term(form, pair, y, x)[0]]
            tokens = [form.characters.index(c) for c in rows.row_text(form, pair, row) + " "]
            met |= {*strings_of(tokens, len(x) + 1, WITH)}
        assert asked <= met


def test_every_string_of_progressions_is_asked_and_only_terms_that_do_not_fit_are_more():
    form = LSB.data.form
    asked = as_set(np.concatenate([*columns.slices({"digits": 6, "order": "lsb"}, WITHOUT)], axis=1))
    assert len(asked) == 214_150
    assert {string for tokens, P in rows_of(form, 0, 2) for string in strings_of(tokens, P, WITHOUT)} <= asked


@pytest.mark.parametrize("D", [1, 2])
def test_every_string_of_every_sum_is_asked_and_no_other(D):
    settings = sums.sums(D)
    asked = as_set(np.concatenate([*of_sums.slices({"digits": D}, asdict(settings.model))], axis=1))
    form, found = settings.data.form, set()
    for y, x in product(product(range(10), repeat=D), repeat=2):
        row = [list(y), list(x)]
        line = rows.row_text(form, 0, [*row, rows.next_term(form, 0, *row)[0]])
        tokens = [form.characters.index(c) for c in line]
        for at in range(2 * D + 2, len(tokens)):
            places = [at - 1 - o for o in of_sums.offsets(D)]
            found.add((*(tokens[p] if p >= 0 else of_sums.START for p in places), tokens[at]))
    assert asked == found


@pytest.mark.parametrize("digits", [3, 10])
def test_wider_sums_have_20300_strings(digits):
    counts = [part.shape[1] for part in of_sums.slices({"digits": digits}, asdict(sums.sums(digits).model))]
    assert counts == [100, 20000, 200]


@pytest.mark.parametrize("rules", [("fibonacci",), ("fibonacci", "3,-7,11")])
def test_every_string_of_recurrences_is_asked(rules):
    settings = recurrences.recurrences(1, rules)
    data = asdict(settings.data)
    cfg = asdict(settings.model)
    form = settings.data.form
    h = of_recurrences.heading_length(cfg)
    back = of_recurrences.reach(cfg)
    asked = set()
    for found in of_recurrences.slices(data, cfg):
        codes, truth = of_recurrences.strings(found, data, cfg)
        asked |= {*zip(codes.ravel().tolist(), truth.ravel().tolist(), strict=True)}
    expected = set()
    for pair, y, x in product(range(len(rules)), range(10), range(10)):
        row = [[y], [x]]
        while len(row) < 9:
            row.append(rows.next_term(form, pair, *row[-2:])[0])
        tokens = [form.characters.index(c) for c in rows.row_text(form, pair, row)]
        for at in range(form.given(1), len(tokens)):
            read = [tokens[at - 1 - o] if at - 1 - o >= h else 11 for o in range(back + 1)]
            string = read + [pair + 1] * h
            expected.add((sum(token * 12**place for place, token in enumerate(string)), tokens[at]))
    assert asked == expected


def contexts_of(settings):
    contexts = tasks.load(settings.task).contexts
    module = contexts(settings) if callable(contexts) else contexts
    return module, asdict(settings.data), proof_config(settings)


SETTINGS = {
    "lsb": LSB,
    "msb": MSB,
    "bases": BASES,
    "sums": sums.sums(2),
    "recurrences": recurrences.recurrences(1),
    "named": recurrences.recurrences(1, ("fibonacci", "doubling")),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_numpy_computes_what_the_model_computes_after_a_text_of_each_string(name, random_params):
    """And the bounds of `apformer certify` hold. What no short text has is at most a bit looked for ahead."""
    settings = SETTINGS[name]
    contexts, data, cfg = contexts_of(settings)
    kind = load_architecture(settings.architecture)
    params = random_params(settings.model, kind=kind)
    if name == "msb":  # so that keys decide, and say both
        params = jax.tree.map(np.array, params)
        params["blocks"]["attention"]["key"][-1, :, -1, 0] *= 3
        params["blocks"]["attention"]["value"][-1, :, -1, 0] *= 3
    assert contexts.fault(data, cfg) is None is network.unsupported(cfg, contexts)
    named = leaves.named(params)
    assert {name: array.shape for name, array in named.items()} == network.shapes(cfg, contexts)
    weights = network.complete(named, cfg, contexts)
    if name == "bases":
        data |= {"bases": [3]}
    found = [part[:, :: max(1, part.shape[1] // 400)] for part in contexts.slices(data, cfg, weights)]
    pairs = [contexts.strings(part, data, cfg) for part in found]
    codes, truth = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*pairs, strict=True))
    strings, right = np.unique(np.stack([codes, truth]), axis=1)
    ours_NV = getattr(contexts, "logits", network.logits)(strings, weights, cfg, contexts)
    margin = check.margins(ours_NV, right)
    groups, bound = [*contexts.rows(strings, cfg, weights)], bind(kind, params, settings.model)
    which = np.concatenate([index for index, _ in groups])
    last = np.concatenate([np.full(len(index), text_BT.shape[1] - 1) for index, text_BT in groups])
    longer = [((0, 0), (0, last.max() + 1 - text_BT.shape[1])) for _, text_BT in groups]  # what follows changes nothing
    tokens_BT = np.concatenate([np.pad(text_BT, pad) for (_, text_BT), pad in zip(groups, longer, strict=True)])
    apply = jax.jit(bound.apply)
    theirs_BV = apply(tokens_BT)[np.arange(len(last)), last]
    export.export(apply)(jax.ShapeDtypeStruct(export.symbolic_shape("B, T"), np.int32))  # as StableHLO, of any shape
    np.testing.assert_allclose(theirs_BV, ours_NV[which], rtol=2e-4, atol=2e-3)
    assert len({*which.tolist()}) == len(which)
    assert len(which) == len(strings) or name == "msb" and len(which) > 0.1 * len(strings)
    bounded_logits = getattr(contexts, "bounded_logits", rounding.bounded_logits)
    logits_NV, ratios = bounded_logits(strings, right, weights, cfg, contexts)
    np.testing.assert_allclose(logits_NV, ours_NV, rtol=1e-12, atol=1e-12)
    assert (ratios[margin <= 0] <= 0).all() and np.isfinite(ratios).all() and (ratios > 0).any()
    given, following = contexts.text(found[0][:, 0], 0, data)
    assert (
        given
        and len(following) == 1
        and contexts.claim(data, cfg).startswith("every ")
        and contexts.parts(found[0], data)
    )


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("lsb", {"pattern": "ahead"}, "they are of pattern columns"),
        ("msb", {"pattern": "columns"}, "they are of pattern ahead"),
        ("sums", {"offsets": [0, 1]}, "its offsets"),
        ("sums", {"n_layers": 2}, "they are of one layer"),
        ("recurrences", {"window": None}, "only relative with a window"),
        ("named", {"heading": None}, "vocab_size or heading"),
        ("recurrences", {"n_layers": 9}, "more than 16 tokens"),
    ],
)
def test_contexts_of_another_model_are_refused(name, change, said):
    contexts, data, cfg = contexts_of(SETTINGS[name])
    assert said in contexts.fault(data, cfg | change)


def test_every_string_and_bit_of_rows_is_asked(random_params):
    """Keys that are unsure are read both ways."""
    cfg, params = asdict(MSB.model), jax.tree.map(np.array, random_params(MSB.model, kind=sparse))
    params["blocks"]["attention"]["key"][-1] = params["blocks"]["attention_norm"]["bias"][-1] = 0
    params["blocks"]["attention_norm"]["scale"][-1] = 1
    weights = network.complete(leaves.named(params), cfg, ahead)
    asked = {tuple(column) for part in ahead.slices(asdict(MSB.data), cfg, weights) for column in part.T.tolist()}
    goes, says = ahead.keys(ahead.grid(range(11), *[range(12)] * 3), weights, cfg)
    assert goes.all() and says.any(1).all()
    # Times a norm of mean 0, these are sums that float32 rounds to multiples of 8.
    weights["blocks.attention.value"][-1, :, -1, 0] = 1e8 + np.arange(MSB.model.d_model) / 100
    assert ahead.keys(ahead.grid(range(11), *[range(12)] * 3), weights, cfg)[1][:, ::2].all()
    says = says.reshape(11, 12, 12, 12, 3)
    for tokens, P in [*rows_of(MSB.data.form, 0, 2)][::7]:
        tokens.append(11)  # index -1, before the row
        places = [[tokens[i] for i in (at, at - P, at - 1, at - P - 1)] for at in range(len(tokens))]
        for at in range(2 * P - 2, len(tokens) - 3):  # without the last space
            # No key is sure to end the search.
            bits = {1, *(bit for key in places[at - P + 3 : at + 1] for bit in np.flatnonzero(says[*key]))}
            assert {(*places[at - P + 2], bit, tokens[at + 1]) for bit in bits} <= asked
