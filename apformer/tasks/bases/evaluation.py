"""Exact match by rule and base, of terms of one width after the other, up to many more digits than in training.

Each rule and base is asked random rows, and hard ones, many of whose digits pass on what is carried into them. As in
`evaluate`, the first two terms are given, and a term is right when the space before it and all its digits are:
teacher-forced, and free-running from the first two terms.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import tables
from apformer.tasks.bases import generator
from apformer.tasks.bases.alphabet import decode

TERMS = 4  # of a row: two given, two asked for
KINDS = ("random", "hard")
MODES = ("teacher_forced", "free_running")
_KEY = 1  # the same rows for every seed
_EXAMPLES = 20  # wrong terms shown


def widths(cfg):
    """Widths to ask for: that of training, 4 times as many digits, and 100."""
    return sorted({cfg.digits, 4 * cfg.digits, 100})


def evaluate(cfg, count, model, *, batch_tokens=8192, progress=None):
    """Every width, kind, rule and base, `count` rows each: a dict that JSON can hold.

    model: decoding.bind.Model. batch_tokens: about the tokens measured at once. progress(done, total) is told of
    suites of a width and kind.
    """
    pairs, suites = generator.pairs(cfg), [(width, kind) for width in widths(cfg) for kind in KINDS]
    pair_B = np.repeat(np.arange(len(pairs)), count)
    right = {mode: np.zeros((len(suites), len(pair_B), TERMS - 2), bool) for mode in MODES}
    errors = []
    for number, (width, kind) in enumerate(suites):
        rows = rows_of(cfg, width, kind, pair_B)
        tokens_BT = np.asarray(generator.encode(rows, cfg).tokens_BT)
        for fresh_B, row_B, _ in buckets.batches(np.full(len(pair_B), tokens_BT.shape[1]), batch_tokens):
            found = jax.device_get(_measure(tokens_BT[row_B], width, model))
            *said, truth_BNC = (leaf[: len(fresh_B)] for leaf in found)
            for mode, said_BNC in zip(MODES, said, strict=True):
                right[mode][number, fresh_B] = (said_BNC == truth_BNC).all(-1)
            wrong_BN = ~right["free_running"][number, fresh_B]
            for b, n in np.argwhere(wrong_BN)[: _EXAMPLES - len(errors)]:
                text, expected, got = (decode(a) for a in (tokens_BT[fresh_B[b]], truth_BNC[b, n], said[1][b, n]))
                given = text[: generator.length(n + 2, width)]
                errors.append({"given": given, "expected": expected, "predicted": got})
        if progress is not None:
            progress(number + 1, len(suites))
    trained = [number for number, (width, _) in enumerate(suites) if width <= cfg.digits]
    return {
        "trained_digits": cfg.digits,
        "sequences": count,
        **{f"exact_{mode}": float(right[mode][trained].mean()) for mode in MODES},
        "widths": [
            {"digits": width, "rows": kind, "terms": right[MODES[0]][number].size}
            | {mode: float(right[mode][number].mean()) for mode in MODES}
            for number, (width, kind) in enumerate(suites)
        ],
        "pairs": [
            {"rule": rule, "base": base} | {mode: float(right[mode][:, pair_B == n].mean()) for mode in MODES}
            for n, (rule, base) in enumerate(pairs)
        ],
        "errors": errors,
    }


def rows_of(cfg, width, kind, pair_B):
    """The Rows of a suite, one for each rule and base in pair_B."""
    key = jax.random.fold_in(jax.random.key(_KEY), len(KINDS) * width + KINDS.index(kind))
    width_B = jnp.full(len(pair_B), width, jnp.int32)
    draw = jax.jit(generator.draw, static_argnames=("cfg", "places", "terms", "hard"))
    return draw(key, cfg, width_B, width, TERMS, jnp.asarray(pair_B, jnp.int32), hard=kind == "hard")


@partial(jax.jit, static_argnames="width")
def _measure(tokens_BT, width, model):
    """The predictable terms as predicted teacher-forced, free-running, and as they are: three arrays (B, 2, C)."""
    B, T = tokens_BT.shape
    given = generator.length(2, width)
    forced_BT = jnp.argmax(model.apply(tokens_BT[:, :-1]), axis=-1)[:, given - 1 :]
    lengths_B = jnp.full(B, given, jnp.int32)
    free_BT = generate(model.extend, model.init_cache(B, T), tokens_BT[:, :given], lengths_B, T - given)
    return tuple(a.reshape(B, TERMS - 2, width + 1) for a in (forced_BT, free_BT, tokens_BT[:, given:]))


def table(result):
    """The result for a terminal: exact match by width, then the rules and bases that are not all right."""
    rows = [["digits", "rows", "teacher-forced", "free-running"]]
    for suite in result["widths"]:
        rows.append([str(suite["digits"]), suite["rows"], *(tables.percent(suite[mode]) for mode in MODES)])
    wrong = [["wrong", *MODES]]
    for pair in result["pairs"]:
        if pair["free_running"] < 1:
            name = f"{pair['rule']}, base {pair['base']}"
            wrong.append([name, *(tables.percent(pair[mode]) for mode in MODES)])
    head = f"terms 3 and 4 of {result['sequences']:,} rows for each rule and base, trained on up to "
    lines = [f"{head}{result['trained_digits']} digits", "", *tables.columns(rows)]
    return "\n".join(lines + (["", *tables.columns(wrong)] if len(wrong) > 1 else []))
