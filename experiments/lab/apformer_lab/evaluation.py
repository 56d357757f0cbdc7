"""Exact match of held-out rows, by digits of a term, kind of row, rule and base, on far longer terms than in training.

The first two terms are given. A term is right when the space before it and all its digits are: teacher-forced, after
the true text, and free-running, after what the model wrote itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate
from apformer.report import attention, figures, tables
from apformer.settings import Settings, architecture_of
from apformer.tasks import Evaluation
from apformer.tasks.hard_rows import TEST_KEY
from apformer_lab import rows, training
from apformer_lab.rows import Format

MODES = ("teacher_forced", "free_running")
TERMS = 4  # of a row: two given, two asked for
TOKENS = 8192  # of a batch, about
SHOWN = 20  # wrong terms of a number of digits and kind


def evaluate(model: Any, settings: Settings, rows_: Any, progress: Callable) -> Evaluation:
    """Return how many terms of each number of digits and kind of row are right."""
    form = settings.data.form
    result = measure(form, settings.options.test_sequences, model, progress)
    pictures = {"accuracy_by_width": accuracy_by_width(result)}
    if "attention" in architecture_of(settings).CAPTURES:
        batch = training.validation(settings, rows_)
        pictures |= attention.pictures(settings, model.params, batch, [*form.characters])
    return Evaluation(result, table(result), pictures, doubt=tables.doubt(result))


def measure(form: Format, count: int, model: Any, progress: Callable | None = None) -> dict:
    """Return what evaluation.json holds.

    Args:
        form: Format of the rows.
        count: Rows of each number of digits, kind, rule and base.
        model: decoding.bind.Model.
        progress: Called with (done, total) suites.
    """
    suites = [(width, kind) for width in training.widths(form) for kind in training.kinds(form)]
    terms, suited, of_pair, errors = TERMS - form.more, [], [], []
    for number, (width, kind) in enumerate(suites, 1):
        key = jax.random.fold_in(jax.random.key(TEST_KEY), 2 * width + rows.KINDS.index(kind))
        found = rows.held_out(key, form, width, count, terms, kind)
        right, wrong = ask(np.asarray(rows.encode(found, form).tokens_BT), form, width, model)
        suited.append({"digits": width, "rows": kind, "terms": right[MODES[0]].size} | _shares(right))
        of_pair += [
            (pair, {mode: right[mode][found.pair_B == pair] for mode in MODES}) for pair in range(len(form.pairs()))
        ]
        errors += [{"digits": width, "rows": kind} | each for each in wrong]
        if progress is not None:
            progress(number, len(suites))
    suited = [suite for suite in suited if suite["terms"]]  # few digits have few rows, perhaps none of the test split
    trained = [suite for suite in suited if suite["digits"] <= form.digits]
    pairs = [
        {"rule": rule, "base": base}
        | _shares({mode: np.concatenate([right[mode] for of, right in of_pair if of == pair]) for mode in MODES})
        for pair, (rule, base) in enumerate(form.pairs())
    ]
    means = {f"exact_{mode}": float(np.mean([suite[mode] for suite in trained])) for mode in MODES}
    head = {"trained_digits": form.digits, "sequences": count}
    return head | means | {"widths": suited, "pairs": pairs, "errors": errors}


def _shares(right: dict[str, np.ndarray]) -> dict[str, float | None]:
    return {mode: float(right[mode].mean()) if right[mode].size else None for mode in MODES}


def ask(tokens_BT: np.ndarray, form: Format, width: int, model: Any) -> tuple[dict[str, np.ndarray], list[dict]]:
    """Return whether each asked term of rows of one width is right, {mode: (B, N)}, and some that are wrong."""
    (B, T), given, errors = tokens_BT.shape, form.given(width), []
    ends = np.append(
        np.arange(given, T - width, width + 1), T
    )  # where asked terms begin, each with the space before it
    right = {mode: np.zeros((B, len(ends) - 1), bool) for mode in MODES}
    text = lambda tokens: "".join(form.characters[token] for token in tokens)  # noqa: E731
    for fresh_B, row_B, _ in buckets.batches(np.full(B, T), TOKENS):
        said = dict(zip(MODES, jax.device_get(_predicted(tokens_BT[row_B], given, model)), strict=True))
        truth_BT = tokens_BT[fresh_B]
        for mode, said_BT in said.items():
            same_BT = said_BT[: len(fresh_B)] == truth_BT[:, given:]
            right[mode][fresh_B] = np.logical_and.reduceat(same_BT, ends[:-1] - given, axis=1)
        for b, n in np.argwhere(~right[MODES[1]][fresh_B])[: SHOWN - len(errors)]:
            start, end = ends[n], ends[n + 1]
            got = text(said[MODES[1]][b, start - given : end - given])
            errors.append(
                {"given": text(truth_BT[b, :start]), "expected": text(truth_BT[b, start:end]), "predicted": got}
            )
    return right, errors


@partial(jax.jit, static_argnames="given")
def _predicted(tokens_BT: jax.Array, given: int, model: Any) -> tuple[jax.Array, jax.Array]:
    """Return the tokens from `given` on as predicted teacher-forced and free-running."""
    B, T = tokens_BT.shape
    logits_BTV, _ = model.extend(tokens_BT[:, :-1], model.init_cache(B, T))
    lengths_B = jnp.full(B, given, jnp.int32)
    free_BT = generate(model.extend, model.init_cache(B, T), tokens_BT[:, :given], lengths_B, T - given)
    return logits_BTV.argmax(-1).astype(jnp.int32)[:, given - 1 :], free_BT


def accuracy_by_width(evaluation: dict) -> Any:
    """Draw the share of terms exactly right, free-running, by their number of digits.

    Args:
        evaluation: Has trained_digits and widths, a list of {"rows", "digits", "free_running"}.
    """
    figure, (axes,) = figures.panels("Accuracy by width")
    kinds = dict.fromkeys(suite["rows"] for suite in evaluation["widths"])
    # Where lines are equal, a thin one shows on a wide one.
    for kind, colour, width in zip(kinds, (figures.SKY, figures.BLUE, figures.ORANGE), (6, 3, 1), strict=False):
        suites = [suite for suite in evaluation["widths"] if suite["rows"] == kind]
        figures.draw_shares(axes, suites, "digits", "free_running", kind, colour, width)
    axes.axvline(evaluation["trained_digits"], color=figures.GREY, linestyle="--", label="trained up to here")
    axes.set(xlabel="digits of a term", xlim=(0, None))
    figures.legend(axes)
    return figure


def table(result: dict) -> str:
    """Return the result for a terminal: exact match by width, then the rules and bases that are not all right."""
    found = [["digits", "rows", "teacher-forced", "free-running"]]
    for suite in result["widths"]:
        found.append([str(suite["digits"]), suite["rows"], *(tables.percent(suite[mode]) for mode in MODES)])
    wrong = [["wrong", *MODES]]
    for pair in result["pairs"]:
        if pair["free_running"] is not None and pair["free_running"] < 1:
            wrong.append([f"{pair['rule']}, base {pair['base']}", *(tables.percent(pair[mode]) for mode in MODES)])
    head = f"terms after the second of {result['sequences']:,} rows of each rule and base, trained on up to "
    lines = [f"{head}{result['trained_digits']} digits", "", *tables.columns(found)]
    return "\n".join(lines + (["", *tables.columns(wrong)] if len(wrong) > 1 else []))
