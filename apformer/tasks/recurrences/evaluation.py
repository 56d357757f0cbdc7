"""Exact match on held-out rows: teacher-forced and free-running, by rule and by the number of the term.

A term is right when the space before it and all its digits are. The step to the first term asked was never trained:
its two terms are a pair of the test split. Where nothing names the rule three terms are given, and rows whose three
terms leave open what follows are left out.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import tables
from apformer.tasks.recurrences import generator
from apformer.tasks.recurrences.generator import Rows
from apformer.tokenizers.digits import decode

MODES = ("teacher_forced", "free_running")
_EXAMPLES = 100  # wrong terms kept


def evaluate(rows, cfg, model, *, batch_tokens=4096, progress=None):
    """Every number that says how well a model continues these rows: a dict that JSON can hold.

    model: decoding.bind.Model. progress(done, total) is told of rows. Raises ValueError if no row can be asked.
    """
    given, value_BN = generator.given_terms(cfg), generator.values(rows, cfg, cfg.terms)
    open_B = ~np.asarray(generator.known(value_BN, cfg))[:, given:].all(1) | (rows.terms_B == 0)
    rows = Rows(*(np.asarray(leaf)[~open_B] for leaf in rows))
    if not len(rows.terms_B):
        raise ValueError("there is no row to evaluate")
    measure, errors = partial(_measure, cfg=cfg, model=model), []
    right = {mode: np.zeros((len(rows.terms_B), cfg.terms - given), bool) for mode in MODES}
    length_B, done = np.full(len(rows.terms_B), generator.length(cfg, cfg.terms)), 0
    for fresh_B, row_B, _ in buckets.batches(length_B, batch_tokens):
        found = jax.device_get(measure(Rows(*(leaf[row_B] for leaf in rows))))
        truth_BNC, *predicted = (leaf[: len(fresh_B)] for leaf in found)
        for mode, predicted_BNC in zip(MODES, predicted, strict=True):
            right[mode][fresh_B] = (predicted_BNC == truth_BNC).all(-1)
        for b, n in np.argwhere(~right["teacher_forced"][fresh_B])[: _EXAMPLES - len(errors)]:
            row = generator.render(*(int(leaf[fresh_B[b]]) for leaf in rows[:3]), cfg.terms, cfg)
            expected, got = decode(truth_BNC[b, n]), decode(predicted[0][b, n])
            errors.append({"row": row, "term": int(n) + given + 1, "expected": expected, "predicted": got})
        done += len(fresh_B)
        if progress is not None:
            progress(done, len(rows.terms_B))
    by_position = [{"term": given + n + 1} | _shares(right, np.s_[:, n]) for n in range(cfg.terms - given)]
    by_rule = [{"rule": rule} | _shares(right, rows.rule_B == i) for i, rule in enumerate(cfg.rules)]
    return {
        "sequences": len(rows.terms_B),
        "left_out": int(open_B.sum()),
        "given": given,
        "terms": right["free_running"].size,
        **{f"exact_{mode}": float(right[mode].mean()) for mode in MODES},
        "exact_sequences": float(right["free_running"].all(1).mean()),
        "by_position": by_position,
        "by_rule": by_rule,
        "errors": errors,
    }


@partial(jax.jit, static_argnames="cfg")
def _measure(rows, cfg, model):
    """The terms asked as they are, as predicted teacher-forced, and free-running: three arrays (B, N, C)."""
    tokens_BT, _ = generator.encode(rows, cfg, cfg.terms)
    (B, T), given = tokens_BT.shape, generator.length(cfg, generator.given_terms(cfg))
    forced_BT = jnp.argmax(model.apply(tokens_BT[:, :-1]), axis=-1)[:, given - 1 :]
    lengths_B = jnp.full(B, given, jnp.int32)
    free_BT = generate(model.extend, model.init_cache(B, T), tokens_BT[:, :given], lengths_B, T - given)
    return tuple(leaf.reshape(B, -1, cfg.digits + 1) for leaf in (tokens_BT[:, given:], forced_BT, free_BT))


def _shares(right, chosen):
    """Count and shares of some terms; None where there are none."""
    count = right["free_running"][chosen].size
    return {"count": count} | {mode: float(right[mode][chosen].mean()) if count else None for mode in MODES}


def table(result):
    """The result for a terminal: exact match in all, by rule and by the number of the term."""
    rows = [["", "count", "teacher-forced", "free-running"]]

    def add(name, count, *shares):
        rows.append([name, f"{count:,}", *map(tables.percent, shares)])

    add("terms", result["terms"], *(result[f"exact_{mode}"] for mode in MODES))
    add("whole rows", result["sequences"], None, result["exact_sequences"])
    for group in result["by_rule"]:
        add(group["rule"], group["count"], *(group[mode] for mode in MODES))
    for group in result["by_position"]:
        add(f"term {group['term']}", group["count"], *(group[mode] for mode in MODES))
    head = f"{result['sequences']:,} held-out rows, {result['given']} terms given"
    if result["left_out"]:
        head += f"; {result['left_out']:,} left out, whose {result['given']} terms leave open what follows"
    return "\n".join([head, "", *tables.columns(rows)])
