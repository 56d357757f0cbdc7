"""Positions by fixed offsets: which tokens are read, how much of each, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import model
from apformer.layers.position import fixed_offsets
from tests.helpers.small_models import V, close, draw_tokens, small

SEEN = (0, 3, 7)
CFG = small(n_layers=1, position="fixed_offsets", position_options=fixed_offsets.Scheme(SEEN), similarity="none")
apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))


def test_the_table_alone_decides_how_much_of_each_token_is_read(random_params):
    """Softmax over the offsets at which a token stands, the same in every row."""
    params, tokens_BT = random_params(CFG), draw_tokens(2, 11)
    table_HO = np.asarray(params["blocks"]["attention"]["fixed_offsets"]["table"][0], np.float64)
    _, captured = apply(params, tokens_BT, CFG, capture=("attention",))
    expected_HTS = np.zeros((CFG.n_heads, 11, 11))
    for t in range(11):
        there = [o for o in SEEN if o <= t]
        share_HO = np.exp(table_HO[:, : len(there)])
        expected_HTS[:, t, [t - o for o in there]] = share_HO / share_HO.sum(1, keepdims=True)
    for row_HTS in captured["attention"][0]:
        close(row_HTS, expected_HTS, 1e-6)


def test_logits_depend_on_the_tokens_at_these_offsets_and_no_others(random_params):
    params, tokens_BT = random_params(CFG), draw_tokens(1, 12)
    for back in range(12):
        changed_BT = tokens_BT.copy()
        changed_BT[0, 11 - back] = (tokens_BT[0, 11 - back] + 1) % V
        same = (apply(params, changed_BT, CFG)[0, 11] == apply(params, tokens_BT, CFG)[0, 11]).all()
        assert same == (back not in SEEN)
    assert model.reach(CFG) == 7 and model.reach(replace(CFG, n_layers=3)) == 21


@pytest.mark.parametrize("seen", [(), (1, 2), (0, 2, 2), (0, -1), (0, 2**31)])
def test_offsets_without_the_token_itself_or_twice_are_refused(seen):
    with pytest.raises(ValueError, match="^seen_offsets .* are not 0 and other whole numbers above it, each given"):
        fixed_offsets.Scheme(seen)
    with pytest.raises(ValueError, match="^window 5 hides tokens"):
        replace(CFG, window=5)
