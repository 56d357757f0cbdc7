"""Positions in columns: what each layer reads, by the definition in words, wherever a row begins."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import model
from apformer.layers.position import columns
from apformer.tasks.bases.alphabet import CHARACTERS, encode
from tests.helpers.small_models import small

CFG = small(vocab_size=len(CHARACTERS), position="columns", attention_sink=True)
apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))


@pytest.mark.parametrize("width", [1, 2, 5])
def test_each_layer_reads_its_tokens(width, random_params):
    text, P = "=f " + "".join(f"{n % 16**width:0{width}x} " for n in (12345, 30817, 49289)), width + 1
    _, captured = apply(random_params(CFG), encode(text)[None], CFG, capture=("attention",))
    weights_LHTS = np.asarray(captured["attention"])[:, 0]
    for layer, offsets in enumerate([(P, P + 1), (P - 1,)]):
        for t in range(len(text)):
            expected = {t} | ({0, 1} if layer == 0 and t >= 2 else {*range(t)} & {0, 1} if layer == 0 else set())
            if t >= 2 + P:  # the first term has ended
                expected |= {t - o for o in offsets if t - o >= 2}  # the heading's own separator is read as one
            read = {*np.flatnonzero(weights_LHTS[layer, :, t].max(0) > 0).tolist()}
            assert read == expected, (layer, t)


def test_rows_may_begin_anywhere(random_params):
    params, tokens_BT = random_params(CFG), encode("+9 123 456 570 ")[None]
    moved = apply(params, tokens_BT, CFG, positions_BT=np.arange(7, 7 + tokens_BT.shape[1])[None])
    np.testing.assert_array_equal(apply(params, tokens_BT, CFG), moved)


def test_what_does_not_go_with_it_is_refused():
    for change, named in (({"n_layers": 3}, "^n_layers 3 is not 2"), ({"window": 9}, "^window 9 hides tokens")):
        with pytest.raises(ValueError, match=named):
            replace(CFG, **change)
    with pytest.raises(ValueError, match="^heading -1 is less than 0"):
        columns.Scheme(heading=-1)
