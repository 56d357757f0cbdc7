"""The strings that check.py asks are those of every sum, each with one answer, and numpy computes their logits."""

from itertools import product

import jax
import numpy as np
import pytest

from apformer import model as transformer
from apformer.proof import check, network, rounding, witness
from apformer.tasks.sums import generator
from apformer.tasks.sums.proof import contexts
from apformer.tasks.sums.recipes import sums
from apformer.tokenizers.digits import encode


def cfg_of(digits):
    cfg = sums(digits).model
    return vars(cfg) | {"position_options": vars(cfg.position_options)}


def strings_of_all_sums(digits):
    """Every string of every sum of two terms, with the digit that follows, from Python's whole numbers."""
    found, offsets = set(), (0, digits, digits + 1, 2 * digits + 1, 2 * digits + 2)
    for a, b in product(range(10**digits), repeat=2):
        words = f"{a:0{digits}d}", f"{b:0{digits}d}", f"{a + b:0{digits + 1}d}"
        tokens = encode(" ".join(word[::-1] for word in words)).tolist()
        for at in range(2 * digits + 2, len(tokens)):
            places = [at - 1 - o for o in offsets]
            found.add((*(tokens[place] if place >= 0 else contexts.START for place in places), tokens[at]))
    return found


@pytest.mark.parametrize("digits", [1, 2])
def test_every_string_of_every_sum_is_asked_and_no_other(digits):
    (columns,) = contexts.slices({"digits": digits}, cfg_of(digits))
    asked = {tuple(column) for column in columns.T.tolist()}
    assert asked == strings_of_all_sums(digits) and columns.shape[1] == len(asked)
    assert len({string[:-1] for string in asked}) == len(asked)  # each has one answer


@pytest.mark.parametrize("digits", [3, 10])
def test_wider_terms_have_20300_strings_at_the_end_of_right_rows(digits):
    """Each text is the begin of a right row of the task, and what its last token reads is the string."""
    kinds = contexts.kinds(digits)
    assert [columns.shape[1] for columns in kinds.values()] == [100, 20000, 200]
    for columns in kinds.values():
        ((which, text_NT),) = contexts.texts(columns[:-1].T, digits)
        assert (which == np.arange(columns.shape[1])).all()
        pair_N2C = np.stack([text_NT[:, :digits], text_NT[:, digits + 1 : 2 * digits + 1]], axis=1)
        row_NT, length = np.asarray(generator.encode(pair_N2C).tokens_BT), text_NT.shape[1]
        np.testing.assert_array_equal(text_NT, row_NT[:, :length])
        np.testing.assert_array_equal(columns[-1], row_NT[:, length])
        for back, token_N in zip(contexts.offsets(digits), columns[:-1], strict=True):
            there_N = text_NT[:, length - 1 - back] if back < length else np.full(len(text_NT), contexts.START)
            np.testing.assert_array_equal(token_N, there_N)


def test_numpy_computes_what_apply_computes_and_bounds_it(random_params):
    settings, data, cfg = sums(2), {"digits": 2}, cfg_of(2)
    params = random_params(settings.model)
    stored = witness.stored(params)
    assert network.beyond(cfg) is None and {name: leaf.shape for name, leaf in stored.items()} == network.shapes(cfg)
    weights = network.whole(stored, cfg)
    (columns,) = contexts.slices(data, cfg)
    codes, right, found, margin = check.ask(*contexts.strings(columns[:, ::7], data, cfg), weights, cfg)
    apply = jax.jit(lambda tokens_BT: transformer.apply(params, tokens_BT, settings.model)[:, -1])
    for which, tokens_BT in contexts.rows(codes, cfg):
        np.testing.assert_allclose(apply(tokens_BT), found[which], rtol=1e-5, atol=1e-5)
    ratio = rounding.ratios(codes, right, weights, cfg)
    assert ((ratio > 0) == (margin > 0)).all() and np.median(ratio[margin > 0]) > 1000


def test_contexts_of_another_model_are_refused():
    data, cfg = {"digits": 2}, cfg_of(2)
    assert contexts.fault(data, cfg) is None
    for other, named in (
        ({"position": "relative"}, "its positions are not fixed_offsets"),
        ({"n_layers": 2}, "its 2 layers read more"),
        ({"position_options": {"seen_offsets": [0, 1]}}, "its seen_offsets"),
    ):
        with pytest.raises(ValueError, match=named):
            next(contexts.slices(data, cfg | other))


def test_a_context_and_the_claim_as_text():
    columns = contexts.kinds(3)["last digit"]
    assert contexts.text(columns[:, -1], 0, {"digits": 3}) == ("059 059 009", "1")
    assert contexts.claim({"digits": 10}).startswith("every pair of terms of 10 digits, all 10^20, with their sum")
