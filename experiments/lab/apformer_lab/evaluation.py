"""Measure exact match on held-out rows, by digits of a term, kind of row, rule and base, also on far longer terms.

The first two terms are given. A term is right if the space before it and all its digits are, in two modes:
teacher-forced, after the true text, and free-running, after the model's own output.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import attention, tables
from apformer.settings import Settings
from apformer.tasks import Evaluation
from apformer.tasks.hard_rows import TEST_KEY
from apformer_lab import rows, training
from apformer_lab.rows import Format

MODES = ("teacher_forced", "free_running")
TERMS = 4  # terms of a row: two given, two predicted
TOKENS = 8192  # tokens per batch, about
MOST_ERRORS = 20  # wrong terms to list for a number of digits and a kind


def evaluate(model: Any, settings: Settings, rows_: Any, progress: Callable) -> Evaluation:
    """Return the share of right terms for each number of digits and kind of row."""
    form = settings.data.form
    result = measure(form, settings.options.test_sequences, model, progress)
    batch = training.validation(settings, rows_)
    pictures = attention.pictures(settings, model.params, batch, [*form.characters])
    wrong = "Some of these terms are wrong. `apformer certify RUN` finds all that are."
    return Evaluation(result, table(result), pictures, doubt=None if result["exact_teacher_forced"] == 1 else wrong)


def measure(form: Format, count: int, model: Any, progress: Callable) -> dict:
    """Return the content of evaluation.json.

    Args:
        form: Format of the rows.
        count: Rows of each number of digits, kind, rule and base.
        model: decoding.bind.Model.
        progress: Called with (done, total) suites.
    """
    suites = [(width, kind) for width in training.widths(form) for kind in training.kinds(form)]
    by_suite, of_pairs, errors = [], [[] for _ in form.pairs()], []
    for number, (width, kind) in enumerate(suites, 1):
        key = jax.random.fold_in(jax.random.key(TEST_KEY), 2 * width + rows.KINDS.index(kind))
        found = rows.held_out(key, form, width, count, TERMS - form.more, kind)
        right_MBN, wrong = score_terms(np.asarray(rows.encode(found, form).tokens_BT), form, width, model)
        if right_MBN.size:  # few digits have few rows, perhaps none of the test split
            by_suite.append({"digits": width, "rows": kind, "terms": right_MBN[0].size} | _shares(right_MBN))
        for pair, of_pair in enumerate(of_pairs):
            of_pair.append(right_MBN[:, found.pair_B == pair].reshape(len(MODES), -1))
        errors += [{"digits": width, "rows": kind} | each for each in wrong]
        progress(number, len(suites))
    trained = [suite for suite in by_suite if suite["digits"] <= form.digits]
    means = {f"exact_{mode}": float(np.mean([suite[mode] for suite in trained])) for mode in MODES}
    pair_results = zip(form.pairs(), of_pairs, strict=True)
    pairs = [{"rule": rule, "base": base} | _shares(np.concatenate(right, 1)) for (rule, base), right in pair_results]
    head = {"trained_digits": form.digits, "sequences": count}
    return head | means | {"widths": by_suite, "pairs": pairs, "errors": errors}


def _shares(right_MBN: np.ndarray) -> dict[str, float | None]:
    return {mode: float(right.mean()) if right.size else None for mode, right in zip(MODES, right_MBN, strict=True)}


def score_terms(tokens_BT: np.ndarray, form: Format, width: int, model: Any) -> tuple[np.ndarray, list[dict]]:
    """Return which predicted terms of rows of one width are right in each mode, (M, B, N), and some wrong terms."""
    (B, T), given, errors = tokens_BT.shape, form.given(width), []
    # where predicted terms begin, each with the space before it
    ends = np.append(np.arange(given, T - width, width + 1), T)
    right_MBN = np.zeros((len(MODES), B, len(ends) - 1), bool)
    for fresh_B, row_B, _ in buckets.batches(np.full(B, T), TOKENS):
        predicted_MBT = np.stack(jax.device_get(_predicted(tokens_BT[row_B], given, model)))[:, : len(fresh_B)]
        truth_BT = tokens_BT[fresh_B]
        same_MBT = predicted_MBT == truth_BT[None, :, given:]
        right_MBN[:, fresh_B] = np.logical_and.reduceat(same_MBT, ends[:-1] - given, axis=2)
        for b, n in np.argwhere(~right_MBN[1, fresh_B])[: MOST_ERRORS - len(errors)]:
            start, end = ends[n], ends[n + 1]
            texts = truth_BT[b, :start], truth_BT[b, start:end], predicted_MBT[1, b, start - given : end - given]
            errors.append(dict(zip(("given", "expected", "predicted"), map(form.text, texts), strict=True)))
    return right_MBN, errors


@partial(jax.jit, static_argnames="given")
def _predicted(tokens_BT: jax.Array, given: int, model: Any) -> tuple[jax.Array, jax.Array]:
    """Return the predicted tokens from position `given` on, teacher-forced and free-running."""
    B, T = tokens_BT.shape
    logits_BTV, _ = model.extend(tokens_BT[:, :-1], model.init_cache(B, T))
    lengths_B = jnp.full(B, given, jnp.int32)
    free_BT = generate(model.extend, model.init_cache(B, T), tokens_BT[:, :given], lengths_B, T - given)
    return logits_BTV.argmax(-1).astype(jnp.int32)[:, given - 1 :], free_BT


def table(result: dict) -> str:
    """Return the result for a terminal: exact match by width, then the rules and bases that are not all right."""
    cells = [["", "", *MODES]]
    for names, groups in ((("digits", "rows"), result["widths"]), (("rule", "base"), result["pairs"])):
        for group in groups:  # skip rules and bases that are all right
            if "digits" in group or group["free_running"] not in (None, 1):
                cells.append([*(f"{name} {group[name]}" for name in names), *(tables.percent(group[m]) for m in MODES)])
    head = f"terms after the second of {result['sequences']:,} rows of each rule and base, trained on up to "
    return "\n".join([f"{head}{result['trained_digits']} digits", "", *tables.columns(cells)])
