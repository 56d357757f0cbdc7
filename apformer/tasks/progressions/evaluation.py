"""Evaluation on held-out progressions: exact match of terms, and the loss.

The first two terms fix a progression, so the third and every later one is *predictable*. A predictable term is right
when the space before it and each of its D digits are right:

- teacher-forced  each character is the most likely one after the true text before it
- free-running    greedy generation from the first two terms alone; an error also spoils later terms

    nats per character = mean of -log p(character | text before it);
    excess             = that of the model - that of the Bayes predictor, on the same rows.

Rows of similar length are evaluated together, in few static shapes. Generation is slow, so rows whose teacher-forced
characters are all right by a margin of more than SURE are not generated, unless the model reads later tokens.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.bind import Model
from apformer.errors import typed
from apformer.proof import check
from apformer.report import attention, figures, sections, tables
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress, settings_file
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import token_nats
from apformer.tasks.exact_match import by_group, greedy, share
from apformer.tasks.progressions import bayes, training
from apformer.tasks.progressions.generator import Array, Progressions, encode_rows, render
from apformer.tokenizers.digits import VOCABULARY, decode

SURE = 0.1  # margin of logits; far more than rounding, which is about 1e-5
MODES = {"teacher_forced": "teacher-forced", "free_running": "free-running"}
EXAMPLES = 200  # most wrong terms in evaluation.json
BATCH_TOKENS = 12_288  # of a batch, about; a CPU is slower with smaller ones
AHEAD = "The model reads later tokens, so its loss and its teacher-forced figures are void: make its `apply` causal."
COMPILATION = 524_288  # cost of one more shape in tokens: between loading a compiled program and compiling one


class Outcomes(NamedTuple):
    """Predictions of a model for B progressions with N predictable terms in all."""

    nats_B: np.ndarray  # nats of each row
    row_N: np.ndarray  # row of each predictable term
    term_N: np.ndarray  # its number, from 3
    right: dict[str, np.ndarray]  # {mode: mask of right terms, (N,)}
    errors: list[dict]  # some wrong terms, teacher-forced
    reads_ahead: bool = False  # whether a prediction depends on later tokens


def outcomes(rows: Progressions, digits: int, model: Model, progress: Progress = lambda done, total: None) -> Outcomes:
    """Predict all predictable terms of progressions in both modes.

    Args:
        rows: Progressions, as numpy arrays.
        digits: Digits of a term.
        model: The model.
        progress: Called with (done, total) rows.

    Raises:
        ValueError: If there is no row.
    """
    total = len(rows.terms_B)
    start = 2 * (digits + 1) - 1
    wrong = []
    counts_BN = np.arange(3, max(3, rows.terms_B.max()) + 1) <= rows.terms_B[:, None]
    nats_B, done_B = np.zeros(total), np.zeros(total, bool)
    right = {mode: np.ones_like(counts_BN) for mode in MODES}

    def compare(mode: str, row_B: np.ndarray, batch: Batch, predicted_BT: jax.Array) -> np.ndarray:
        """Note which terms are right, and return the predicted and the true terms, (2, B, N, characters)."""
        terms_2BT = np.stack([predicted_BT, batch.tokens_BT[:, start:]])
        terms_2BNC = terms_2BT.reshape(*terms_2BT.shape[:2], -1, digits + 1)
        right_BN = np.equal(*terms_2BNC).all(-1)
        right[mode][row_B, : right_BN.shape[1]] = right_BN[: len(row_B)]
        return terms_2BNC

    reads_ahead = _reads_ahead(next(_batches(rows, np.arange(total), digits))[1], start, model)
    for row_B, batch in _batches(rows, np.arange(total), digits):
        size, (nats, forced_BT, sure) = len(row_B), jax.device_get(_teacher_forced(batch, start, model))
        nats_B[row_B], done_B[row_B] = nats[:size], sure[:size] & (not reads_ahead)
        forced_BNC, truth_BNC = compare("teacher_forced", row_B, batch, forced_BT)
        wrong_BN = counts_BN[row_B] & ~right["teacher_forced"][row_B]
        for b, n in sections.spread(np.argwhere(wrong_BN).tolist(), EXAMPLES):
            wrong.append((row_B[b], n, truth_BNC[b, n], forced_BNC[b, n]))
        progress(int(done_B.sum()), total)
    for row_B, batch in _batches(rows, np.flatnonzero(~done_B), digits):
        B, T = batch.tokens_BT.shape
        free_BT = greedy(batch.tokens_BT[:, :start], np.full(B, start, np.int32), T - start, model)
        compare("free_running", row_B, batch, free_BT)
        done_B[row_B] = True
        progress(int(done_B.sum()), total)
    errors = [
        {
            "row": render(*(column_B[b] for column_B in rows), digits=digits),
            "term": n + 3,
            "expected": decode(truth),
            "predicted": decode(forced),
        }
        for b, n, truth, forced in sections.spread(wrong, EXAMPLES)
    ]
    row_N, term_N = np.nonzero(counts_BN)
    right = {mode: right_BN[counts_BN] for mode, right_BN in right.items()}
    return Outcomes(nats_B, row_N, term_N + 3, right, errors, reads_ahead)


def _batches(rows: Progressions, row_B: np.ndarray, digits: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """Yield (indices of rows, their Batch of numpy arrays), padded to few widths; its last rows may be repeats."""
    terms_B = np.maximum(rows.terms_B[row_B], 3)
    width_J = np.array(buckets.widths(*np.unique(terms_B, return_counts=True), width_cost=COMPILATION / (digits + 1)))
    padded_B = width_J[np.searchsorted(width_J, terms_B)]
    for fresh_B, index_B, terms in buckets.batches(padded_B, BATCH_TOKENS // (digits + 1)):
        some = Progressions(*(column_B[row_B[index_B]] for column_B in rows))
        yield row_B[fresh_B], jax.device_get(encode_rows(some, digits, terms))


@partial(jax.jit, static_argnums=1)
def _teacher_forced(batch: Batch, start: int, model: Model) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the nats of each row, the most likely tokens from `start` on, and the mask of surely right rows.

    A row is surely right if every predictable character is the most likely one by a margin of SURE. Greedy generation
    would then write the same row, so it need not run.
    """
    logits_BTV = model.apply(batch.tokens_BT[:, :-1])
    predicted_BTV = logits_BTV[:, start - 1 :]
    margin_BT = check.margins(predicted_BTV.astype(np.float32), batch.tokens_BT[:, start:])
    sure_BT = (margin_BT > SURE) | (batch.weights_BT[:, start:] <= 0)
    return token_nats(logits_BTV, batch).sum(1), predicted_BTV.argmax(-1), sure_BT.all(1)


def _reads_ahead(batch: Batch, start: int, model: Model) -> bool:
    """Return whether other digits in the second half of the rows change the predictions before it."""
    T = batch.tokens_BT.shape[1]
    middle = (start + T - 1) // 2
    other = batch._replace(tokens_BT=np.where(np.arange(T) < middle, batch.tokens_BT, (batch.tokens_BT + 1) % 10))
    forced_BT, other_BT = (_teacher_forced(each, start, model)[1][:, : middle - start + 1] for each in (batch, other))
    return bool((forced_BT != other_BT).any())


def evaluate(model: Model, settings: Settings, rows: training.Rows, progress: Progress) -> Evaluation:
    """Return exact match and loss on held-out progressions, beside the Bayes predictor if they are generated."""
    digits, test = settings.data.digits, training.test_rows(settings, rows)
    nats = None if rows is not None else bayes.bayes_nats(test, settings.data)
    result = measure(test, digits, model, progress, nats)
    if rows is None:
        result["bayes_floor"] = bayes.bayes_floor(settings.data)
    else:  # a gap between training and test rows shows memorisation
        trained = training.test_rows(settings, rows, "train")
        result["trained"] = measure(trained, digits, model, progress)
    pictures = {chart["title"].lower().replace(" ", "_"): figures.chart(chart) for chart in charts(result)}
    pictures |= attention.pictures(settings, model.params, training.validation(settings, rows).rows, [*VOCABULARY])
    return Evaluation(result, table(result), pictures, doubt=doubt(result, settings))


def doubt(result: dict, settings: Settings) -> str | None:
    """Return the reason not to try a certificate after an evaluation, and what to do; None if it is worth trying."""
    if "reads_ahead" in result:
        return AHEAD
    if result["exact_teacher_forced"] is None:
        return "No term can be predicted, since no progression has a third."
    if result["exact_teacher_forced"] == 1:
        return None
    wrong, cfg = "Some of these terms are wrong", settings.model
    if settings.architecture == "model" and cfg.n_layers == cfg.n_heads == 1:
        reason = "one head of one block reads one average, and cannot align two terms and find the carry below them too"
        return f"{wrong}: {reason}. `apformer train --recipe sketch` has four blocks."
    longer = settings_file.more_steps(settings, "RUN")
    return f"{wrong}. {typed('certify', 'RUN')} finds all that are, and {longer}"


def charts(result: dict) -> list[dict]:
    """Return charts of exact match by position, carries and difference, see `report.sections`."""
    terms = result["by_position"]
    by_position = sections.lines(
        "Accuracy by position",
        "number of the term (the first two are given)",
        "terms right",
        [group["term"] for group in terms],
        {name: [group[mode] for group in terms] for mode, name in MODES.items()},
        counts=[group["count"] for group in terms],
        share=True,
    )

    def bars(by: str, unit: str, name: str) -> dict:
        groups = [group for group in result[f"by_{by}"] if group["count"]]
        shares = [(name.format(**g), f"{g['count']:,}", [g[mode] for mode in MODES]) for g in groups]
        return sections.bars(f"Accuracy by {by}", unit, tuple(MODES.values()), shares)

    return [
        by_position,
        bars("carries", "carries or borrows since the term before", "{carries}"),
        bars("difference", "difference", "{from}–{to}"),
    ]


def measure(
    rows: Progressions,
    digits: int,
    model: Model,
    progress: Progress = lambda done, total: None,
    bayes_nats: np.ndarray | None = None,
) -> dict:
    """Return all figures of how well a model continues progressions, as JSON can hold them.

    They are counts, losses, and shares from 0 to 1, or None where there is nothing to count.

    bayes_nats: those of the Bayes predictor for each row, (B,). Other arguments: see `outcomes`.
    """
    nats_B, row_N, term_N, right, errors, reads_ahead = outcomes(rows, digits, model, progress)
    characters = int((rows.terms_B.astype(np.int64) * (digits + 1) - 2).sum())
    wrong_B = np.bincount(row_N[~right["free_running"]], minlength=len(nats_B))
    result = {
        "sequences": len(nats_B),
        "terms": len(row_N),
        "exact_teacher_forced": share(right["teacher_forced"]),
        "exact_free_running": share(right["free_running"]),
        "exact_sequences": share(wrong_B[rows.terms_B >= 3] == 0),
        "nats_per_char": float(nats_B.sum() / characters),
    }
    if reads_ahead:
        result["reads_ahead"] = True
    if bayes_nats is not None:
        result["bayes_nats_per_char"] = float(np.sum(bayes_nats) / characters)
        result["excess"] = result["nats_per_char"] - result["bayes_nats_per_char"]

    first_N, difference_N = rows.first_B[row_N], rows.difference_B[row_N]
    carries_N = carries(first_N + (term_N - 2) * difference_N, difference_N, digits)
    low, high = int(rows.difference_B.min()), int(rows.difference_B.max())
    width = -(-(high - low + 1) // 10)
    bounds = [{"from": start, "to": min(high, start + width - 1)} for start in range(low, high + 1, width)]
    bin_N, size = (difference_N - low) // width, len(bounds)
    tenth_N = first_N // 10 ** (digits - 1)
    cells = by_group(tenth_N * size + bin_N, right, 10 * size)
    return result | {
        "by_position": [{"term": n} | group for n, group in enumerate(by_group(term_N, right)) if n >= 3],
        "by_difference": [bound | group for bound, group in zip(bounds, by_group(bin_N, right, size), strict=True)],
        "by_first_and_difference": [cells[i : i + size] for i in range(0, len(cells), size)],
        "by_carries": [{"carries": n} | group for n, group in enumerate(by_group(carries_N, right))],
        "errors": errors,
    }


def carries(before: Array, difference: Array, digits: int) -> Array:
    """Return the number of carries when `difference` is added to `before` in decimal; of borrows if it is negative.

    Both are numbers, or numpy arrays of them. Each carry turns ten units into one of the next place, so it lowers the
    sum of all digits by 9.
    """

    def digit_sum(number: Array) -> Array:
        return np.sum([number // 10**place % 10 for place in range(digits)], axis=0)

    smaller, size = np.minimum(before, before + difference), abs(difference)
    return (digit_sum(smaller) + digit_sum(size) - digit_sum(smaller + size)) // 9


def in_all(result: dict) -> list[list[str]]:
    """Return table rows for all predictable terms and all sequences: name, count, share right in each mode."""
    sequences = next((group["count"] for group in result["by_position"]), 0)
    return [
        ["predictable terms", f"{result['terms']:,}", *(tables.percent(result[f"exact_{mode}"]) for mode in MODES)],
        ["sequences of 3 terms or more", f"{sequences:,}", "-", tables.percent(result["exact_sequences"])],
    ]


def table(result: dict) -> str:
    """Return the result as text: the loss, then exact match in all, by position and by carries."""
    head = [f"{result['sequences']:,} held-out progressions: {result['nats_per_char']:.5f} nats per character"]
    if "excess" in result:
        head[0] += f", Bayes predictor {result['bayes_nats_per_char']:.5f}, excess {result['excess']:.5f}"
    if "reads_ahead" in result:
        head.append(AHEAD)
    if "bayes_floor" in result:
        head.append(
            f"(least possible mean over all that the generator draws, training rows too: {result['bayes_floor']:.5f})"
        )
    if "trained" in result:
        trained = result["trained"]
        exact, nats = tables.percent(trained["exact_teacher_forced"]), trained["nats_per_char"]
        head.append(f"{trained['sequences']:,} progressions of the training file: {nats:.5f}, terms exact {exact}")
    rows = [["", "count", *MODES.values()], *in_all(result)]

    def add(name: str, count: int, *shares: float | None) -> None:
        rows.append([name, f"{count:,}", *map(tables.percent, shares)])

    for low, next_low in pairwise((3, 4, 5, 9, 17, 33, 65, math.inf)):
        if groups := [group for group in result["by_position"] if low <= group["term"] < next_low]:
            last, count = groups[-1]["term"], sum(group["count"] for group in groups)
            shares = (sum(group["count"] * group[mode] for group in groups) / count for mode in MODES)
            add(f"term {low}" if low == last else f"terms {low} to {last}", count, *shares)
    for group in result["by_carries"]:
        add(sections.count(group["carries"], "carry", "carries"), group["count"], *(group[mode] for mode in MODES))
    return "\n".join([*head, "", *tables.columns(rows)])
