"""Exact match of terms of one width after the other, up to many more digits than the model was trained on.

Each width is asked random rows, and adversarial ones whose third term has a run of zeros or nines, of any length at any
place: there carries run. Most significant digit first, chains are a third kind: runs of any places whose carry is open
(generator.py). As in `evaluate`, the first two terms are given, and a term is right when the space before it
and all its digits are: teacher-forced, and free-running from the first two terms.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import tables
from apformer.tasks.digits import generator
from apformer.tokenizers.digits import decode

TERMS = 4  # of a row: two given, two asked for
KINDS = {"random": generator.draw, "adversarial": partial(generator.draw, hard=True), "chains": generator.chains}
_KEY = 1  # the same rows for every seed
_EXAMPLES = 5  # wrong terms shown of each width and kind


def widths(cfg):
    """Widths to ask for: two of training, then 2 and 4 times as many digits, and 64, or 100 for the easier order."""
    return sorted({-(-cfg.digits // 2), cfg.digits, 2 * cfg.digits, 4 * cfg.digits, 64 if cfg.order == "msb" else 100})


def evaluate(cfg, count, model, *, batch_tokens=8192, progress=None):
    """Every width and kind of rows, `count` rows each: a dict that JSON can hold.

    model: decoding.bind.Model. batch_tokens: about the tokens measured at once. progress(done, total) is told of
    suites.
    """
    measure = partial(_measure, model=model)
    kinds = [kind for kind in KINDS if kind != "chains" or cfg.order == "msb"]
    suites, found = [(width, kind) for width in widths(cfg) for kind in kinds], []
    for number, (width, kind) in enumerate(suites, 1):
        key = jax.random.fold_in(jax.random.key(_KEY), width)
        tokens_BT = np.asarray(
            generator.encode(generator.test_rows(key, width, count, TERMS, KINDS[kind]), cfg.order).tokens_BT
        )
        found.append({"digits": width, "rows": kind} | _suite(tokens_BT, width, measure, batch_tokens))
        if progress is not None:
            progress(number, len(suites))
    result = {"trained_digits": cfg.digits, "order": cfg.order, "sequences": count}
    trained = [suite for suite in found if suite["digits"] <= cfg.digits]
    for mode in ("teacher_forced", "free_running"):
        result[f"exact_{mode}"] = sum(suite[mode] for suite in trained) / len(trained)
    return result | {"widths": found}


def _suite(tokens_BT, width, measure, batch_tokens):
    B, T = tokens_BT.shape
    forced, free, errors = [], [], []
    for fresh_B, row_B, _ in buckets.batches(np.full(B, T), batch_tokens):
        predicted = jax.device_get(measure(tokens_BT[row_B], width))
        forced_BNC, free_BNC, truth_BNC = (a[: len(fresh_B)] for a in predicted)
        forced.append((forced_BNC == truth_BNC).all(-1))
        free.append((free_BNC == truth_BNC).all(-1))
        for b, n in np.argwhere(~free[-1])[: _EXAMPLES - len(errors)]:
            text, expected, got = (decode(a) for a in (tokens_BT[fresh_B[b]], truth_BNC[b, n], free_BNC[b, n]))
            given = text[: (n + 2) * (width + 1) - 1]
            errors.append({"given": given, "expected": expected, "predicted": got})
    shares = {"teacher_forced": forced, "free_running": free}
    shares = {mode: float(np.concatenate(right).mean()) for mode, right in shares.items()}
    return {"terms": B * (TERMS - 2)} | shares | {"errors": errors}


@partial(jax.jit, static_argnames="width")
def _measure(tokens_BT, width, model):
    """The predictable terms as predicted teacher-forced, free-running, and as they are: three arrays (B, 2, C)."""
    B, T = tokens_BT.shape
    given = 2 * (width + 1) - 1
    logits_BTV, _ = model.extend(tokens_BT[:, :-1], model.init_cache(B, T))  # which need not compare all with all
    forced_BT = jnp.argmax(logits_BTV, axis=-1)[:, given - 1 :]
    lengths_B = jnp.full(B, given, jnp.int32)
    free_BT = generate(model.extend, model.init_cache(B, T), tokens_BT[:, :given], lengths_B, T - given)
    return tuple(a.reshape(B, TERMS - 2, width + 1) for a in (forced_BT, free_BT, tokens_BT[:, given:]))


def table(result):
    """The result for a terminal: exact match by width."""
    first = {"msb": "most", "lsb": "least"}[result["order"]]
    head = f"{first} significant digit first, trained on up to {result['trained_digits']} digits"
    rows = [["digits", "rows", "teacher-forced", "free-running"]]
    for suite in result["widths"]:
        shares = (tables.percent(suite[mode]) for mode in ("teacher_forced", "free_running"))
        rows.append([str(suite["digits"]), suite["rows"], *shares])
    return "\n".join([f"terms 3 and 4 of {result['sequences']:,} progressions each: {head}", "", *tables.columns(rows)])
