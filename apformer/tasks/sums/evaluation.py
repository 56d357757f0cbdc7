"""Exact sums of held-out pairs: teacher-forced and free-running, by kind of pair and by place.

random       digits as they come
chains       a carry starts at a random place and travels over a random number of places
adversarial  a list: a carry from every place to the last, none or one at every place, sums of nines alone

A sum is right when all its digits are. The first two kinds are pairs of the test split; the list is in no split.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import tables
from apformer.tasks.hard_rows import TEST_KEY
from apformer.tasks.sums import generator
from apformer.tokenizers.digits import decode

MODES = ("teacher_forced", "free_running")
_EXAMPLES = 100  # wrong sums kept


def adversarial(cfg):
    """Pairs that are hard on purpose: (B, 2, C) int32."""
    top = 10**cfg.digits
    nines, fives, fours = top - 1, 5 * (top - 1) // 9, 4 * (top - 1) // 9
    pairs = [(0, 0), (nines, nines), (fives, fours), (fives, fours + 1), (fives, fives), (nines, 0), (1, nines)]
    pairs += [(top - 10**place, 10**place) for place in range(cfg.digits)]  # such as 9990 + 10
    return np.array([[generator.digits_of(number, cfg.digits) for number in pair] for pair in pairs], np.int32)


def evaluate(cfg, count, model, *, batch_tokens=8192, progress=None):
    """Every kind of pair, `count` of each that is drawn: a dict that JSON can hold.

    model: decoding.bind.Model. progress(done, total) is told of rows.
    """
    kinds = {name: generator.held_out(TEST_KEY, cfg, count, "test", name == "chains") for name in ("random", "chains")}
    kinds["adversarial"] = adversarial(cfg)
    pair_B2C, errors, done = np.concatenate([*kinds.values()]), [], 0
    kind_B = np.repeat([*kinds], [len(pairs) for pairs in kinds.values()])
    right = {mode: np.zeros((len(pair_B2C), cfg.digits + 1), bool) for mode in MODES}
    tokens_BT, first = np.asarray(generator.encode(pair_B2C).tokens_BT), generator.given(cfg)
    for fresh_B, row_B, _ in buckets.batches(np.full(len(pair_B2C), tokens_BT.shape[1]), batch_tokens):
        found = jax.device_get(_measure(tokens_BT[row_B], first, model))
        for mode, said_BC in zip(MODES, found, strict=True):
            right[mode][fresh_B] = said_BC[: len(fresh_B)] == tokens_BT[fresh_B, first:]
        wrong_B = np.flatnonzero(~right["free_running"][fresh_B].all(1))
        for b in wrong_B[: _EXAMPLES - len(errors)]:
            text, got = decode(tokens_BT[fresh_B[b]]), decode(found[1][b])
            errors.append({"given": text[: first - 1], "expected": text[first:], "predicted": got})
        done += len(fresh_B)
        if progress is not None:
            progress(done, len(pair_B2C))
    held_B = kind_B != "adversarial"
    return {
        "digits": cfg.digits,
        "sequences": int(held_B.sum()),
        **{f"exact_{mode}": float(right[mode][held_B].all(1).mean()) for mode in MODES},
        "by_kind": [
            {"rows": name, "count": len(kinds[name])}
            | {mode: float(right[mode][kind_B == name].all(1).mean()) if len(kinds[name]) else None for mode in MODES}
            for name in kinds
        ],
        "by_place": [
            {"place": j} | {mode: float(right[mode][held_B, j].mean()) for mode in MODES} for j in range(cfg.digits + 1)
        ],
        "errors": errors,
    }


@partial(jax.jit, static_argnames="first")
def _measure(tokens_BT, first, model):
    """The digits of the sums as predicted teacher-forced, and free-running: two arrays (B, C + 1)."""
    B, T = tokens_BT.shape
    forced_BT = jnp.argmax(model.apply(tokens_BT[:, :-1]), axis=-1)[:, first - 1 :]
    lengths_B = jnp.full(B, first, jnp.int32)
    return forced_BT, generate(model.extend, model.init_cache(B, T), tokens_BT[:, :first], lengths_B, T - first)


def table(result):
    """The result for a terminal: exact sums by kind, then the places that are not all right."""
    rows = [["sums exactly right", "count", "teacher-forced", "free-running"]]
    for kind in result["by_kind"]:
        rows.append([kind["rows"], f"{kind['count']:,}", *(tables.percent(kind[mode]) for mode in MODES)])
    wrong = [["wrong", *MODES]]
    for place in result["by_place"]:
        if place["free_running"] < 1:
            wrong.append([f"digit {place['place'] + 1}", *(tables.percent(place[mode]) for mode in MODES)])
    head = f"sums of two terms of {result['digits']} digits; {result['sequences']:,} held-out pairs, and a list"
    return "\n".join([head, "", *tables.columns(rows)] + (["", *tables.columns(wrong)] if len(wrong) > 1 else []))
