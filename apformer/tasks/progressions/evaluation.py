"""Evaluation on held-out progressions: which terms are exactly right, and what the model's surprise costs.

The first two terms fix a progression, so the third and every later one is *predictable*. A predictable term is right
when the space before it and each of its D digits are right:

- teacher-forced  each character is the most likely one after the true text before it
- free-running    greedy generation from the first two terms alone; a slip spoils what comes after it

    nats per character = mean of -log p(character | text before it);
    excess             = that of the model - that of the Bayes predictor, on the same rows.

The model comes in as functions, the progressions as numpy arrays. Rows of like length are measured together, in few
static shapes. Generation is slow, so a row that is right in the first mode, each character clearly, is not generated.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.analysis import certificate
from apformer.decoding import buckets
from apformer.decoding.bind import Model
from apformer.decoding.generate import generate
from apformer.loss import token_nats
from apformer.report import sections, tables
from apformer.tasks.progressions.generator import Progressions, encode_rows, render
from apformer.tokenizers.digits import decode

SURE = 0.1  # by far more than ways of computing one logit differ, which is by 1e-5
MODES = ("teacher_forced", "free_running")
_EXAMPLES = 200  # wrong terms kept, spread over all that there are
_FIRSTS = 10  # groups of first terms
COMPILATION = 524_288  # tokens that cost as much as one more shape, between one on the disk and one compiled


class Outcomes(NamedTuple):
    """Predictions of a model for B progressions with N predictable terms at most."""

    nats_B: np.ndarray  # what each row costs
    counts_BN: np.ndarray  # which of the terms 3, 4 ... a row has
    right: dict[str, np.ndarray]  # {mode: which terms are right, (B, N)}
    errors: list[dict]  # some terms that are wrong, teacher-forced


def evaluate(
    progressions: Progressions,
    digits: int,
    model: Model,
    *,
    bayes_nats: np.ndarray | None = None,
    batch_tokens: int = 4096,
    progress: Callable[[int, int], Any] | None = None,
) -> dict:
    """Return every number that says how well a model continues progressions, as JSON can hold it.

    Args:
        progressions: Rows, as arrays; at least one.
        digits: Digits of a term.
        model: The model.
        bayes_nats: What the Bayes predictor pays for each row, (B,).
        batch_tokens: About the tokens measured at once; 4096 suits the caches of a CPU, an accelerator wants more.
        progress: Called with (done, total) rows.

    Returns:
        Counts and losses, and shares from 0 to 1, or None where there is nothing to count.
    """
    rows = Progressions(*(np.asarray(a, np.int32) for a in progressions))
    found = outcomes(rows, digits, model, batch_tokens, progress or (lambda done, total: None))
    row_N, term_N = np.nonzero(found.counts_BN)
    right = {mode: right_BN[found.counts_BN] for mode, right_BN in found.right.items()}
    summary = _summary(rows, digits, row_N, term_N + 3, right, found.nats_B, bayes_nats)
    return summary | {"errors": _spread(found.errors)}


def outcomes(
    rows: Progressions, digits: int, model: Model, batch_tokens: int, progress: Callable[[int, int], Any]
) -> Outcomes:
    """Return which terms of numpy rows a model predicts rightly, in both modes.

    Raises:
        ValueError: If there is no row.
    """
    if not len(rows.terms_B):
        raise ValueError("there is no progression to evaluate")
    total, errors = len(rows.terms_B), []
    counts_BN = np.arange(3, max(3, rows.terms_B.max()) + 1) <= rows.terms_B[:, None]
    nats_B, done_B = np.zeros(total), np.zeros(total, bool)
    right = {mode: np.ones_like(counts_BN) for mode in MODES}
    for row_B, batch, terms in _batches(rows, np.arange(total), digits, batch_tokens):
        measured = jax.device_get(teacher_forced(batch, digits, terms, model))
        nats_B[row_B], done_B[row_B], forced_BNC, truth_BNC = (a[: len(row_B)] for a in measured)
        right["teacher_forced"][row_B, : terms - 2] = right_BN = (forced_BNC == truth_BNC).all(-1)
        for b, n in _spread(np.argwhere(~right_BN & counts_BN[row_B, : terms - 2])):
            text = render(*(int(a[row_B[b]]) for a in rows), digits)
            expected, predicted = decode(truth_BNC[b, n]), decode(forced_BNC[b, n])
            errors.append({"row": text, "term": int(n) + 3, "expected": expected, "predicted": predicted})
        progress(int(done_B.sum()), total)
    for row_B, batch, terms in _batches(rows, np.flatnonzero(~done_B), digits, batch_tokens):
        right_BN = jax.device_get(free_running(batch, digits, terms, model))
        right["free_running"][row_B, : terms - 2] = right_BN[: len(row_B)]
        done_B[row_B] = True
        progress(int(done_B.sum()), total)
    return Outcomes(nats_B, counts_BN, right, errors)


def _batches(rows, row_B, digits, batch_tokens):
    """(which rows, the rows of a batch, the terms that they are padded to) of the rows numbered row_B."""
    if len(row_B):
        term_B = padded_terms(rows.terms_B[row_B], digits)
        for index_B, padded_B, terms in buckets.batches(term_B, batch_tokens // (digits + 1)):
            yield row_B[index_B], Progressions(*(a[row_B[padded_B]] for a in rows)), terms


def _spread(items):
    """At most as many as are kept, at even distances."""
    return items[:: max(1, -(-len(items) // _EXAMPLES))]


def padded_terms(terms_B, digits):
    """The terms that each row is padded to, at least 3: few different numbers, whose shapes cost little in all."""
    terms_B = np.maximum(terms_B, 3)
    width_J = np.array(buckets.widths(*np.unique(terms_B, return_counts=True), each=COMPILATION / (digits + 1)))
    return width_J[np.searchsorted(width_J, terms_B)]


@partial(jax.jit, static_argnums=(1, 2))
def teacher_forced(progressions, digits, terms, model):
    """(nats_B, sure_B, forced_BNC, truth_BNC): what each row costs, and its predictable terms, predicted and true.

    sure: every predictable character is the most likely one by a margin of SURE. Greedy generation then feeds the model
    the row itself, character by character, and is right: it need not be run.
    """
    tokens_BT, weights_BT = encode_rows(progressions, digits, terms)
    given = 2 * (digits + 1) - 1
    logits_BTV = model.apply(tokens_BT[:, :-1])
    nats_B = (token_nats(logits_BTV, tokens_BT[:, 1:]) * weights_BT[:, 1:]).sum(axis=1)
    asked_BTV, truth_BT = logits_BTV[:, given - 1 :], tokens_BT[:, given:]
    margin_BT = jnp.where(weights_BT[:, given:] > 0, certificate.margins(asked_BTV, truth_BT), jnp.inf)
    forced_BNC, truth_BNC = (
        a.reshape(len(a), terms - 2, digits + 1) for a in (jnp.argmax(asked_BTV, axis=-1), truth_BT)
    )
    return nats_B, (margin_BT > SURE).all(1), forced_BNC, truth_BNC


@partial(jax.jit, static_argnums=(1, 2))
def free_running(progressions, digits, terms, model):
    """Which predictable terms of each row greedy generation from its first two terms gives: (B, terms - 2)."""
    tokens_BT, _ = encode_rows(progressions, digits, terms)
    (B, T), given = tokens_BT.shape, 2 * (digits + 1) - 1
    prompt_BT, cache = tokens_BT[:, :given], model.init_cache(B, T)
    free_BT = generate(model.extend, cache, prompt_BT, jnp.full(B, given, jnp.int32), T - given)
    return (free_BT == tokens_BT[:, given:]).reshape(B, terms - 2, digits + 1).all(-1)


def term_matches(predicted_BT, batch, digits):
    """{"exact": share of the batch's predictable terms whose every character is right}; 0 if it has none.

    predicted_BT[:, t] stands for batch.tokens_BT[:, t + 1]; a term counts when its characters carry weight.
    """
    start = 2 * digits  # of the space after the second term, among predictions
    masks = (predicted_BT == batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:] > 0)
    right_BN, counted_BN = (mask_BT[:, start:].reshape(len(mask_BT), -1, digits + 1).all(-1) for mask_BT in masks)
    right, count = (right_BN & counted_BN).sum(dtype=jnp.float32), counted_BN.sum(dtype=jnp.float32)
    return {"exact": right / jnp.maximum(count, 1.0)}


def carries(before, difference, digits):
    """Carries when `difference` is added to `before` in decimal digits; borrows when it is negative. Integer arrays.

    Each carry turns ten units into one of the next place, so that 9 are lost from the sum of all digits.
    """
    smaller = np.minimum(before, before + difference)
    lost = _digit_sum(smaller, digits) + _digit_sum(abs(difference), digits)
    return (lost - _digit_sum(smaller + abs(difference), digits)) // 9


def _digit_sum(number, digits):
    return sum(number // 10**place % 10 for place in range(digits))


def _summary(rows, digits, row_N, term_N, right, nats_B, bayes_nats):
    characters = int((rows.terms_B.astype(np.int64) * (digits + 1) - 2).sum())
    wrong_B = np.bincount(row_N[~right["free_running"]], minlength=len(nats_B))
    result = {
        "sequences": len(nats_B),
        "terms": len(row_N),
        "exact_teacher_forced": _share(right["teacher_forced"]),
        "exact_free_running": _share(right["free_running"]),
        "exact_sequences": _share(wrong_B[rows.terms_B >= 3] == 0),
        "nats_per_char": float(nats_B.sum() / characters),
    }
    if bayes_nats is not None:
        result["bayes_nats_per_char"] = float(np.sum(bayes_nats) / characters)
        result["excess"] = result["nats_per_char"] - result["bayes_nats_per_char"]

    difference_N = rows.difference_B[row_N]
    carries_N = carries(rows.first_B[row_N] + (term_N - 2) * difference_N, difference_N, digits)
    low, high = int(rows.difference_B.min()), int(rows.difference_B.max())
    width = -(-(high - low + 1) // 10)
    bins = _grouped((difference_N - low) // width, right, -(-(high - low + 1) // width))
    bounds = ({"from": low + i * width, "to": min(high, low + (i + 1) * width - 1)} for i in range(len(bins)))
    by_term = _grouped(term_N, right)[3:]
    tens = -(-(10**digits) // _FIRSTS)
    cell_N = rows.first_B[row_N] // tens * len(bins) + (difference_N - low) // width
    cells = _grouped(cell_N, right, _FIRSTS * len(bins))
    return result | {
        "by_position": [{"term": n} | group for n, group in enumerate(by_term, 3)],
        "by_difference": [bound | group for bound, group in zip(bounds, bins, strict=True)],
        "by_first_and_difference": [cells[i : i + len(bins)] for i in range(0, len(cells), len(bins))],
        "by_carries": [{"carries": n} | group for n, group in enumerate(_grouped(carries_N, right))],
    }


def _grouped(label_N, right, groups=0):
    """Count and shares of each label 0, 1, 2 ..."""
    count = np.bincount(label_N, minlength=groups)
    hits = {mode: np.bincount(label_N[right_N], minlength=len(count)) for mode, right_N in right.items()}
    return [
        {"count": int(n)} | {mode: int(hit[i]) / int(n) if n else None for mode, hit in hits.items()}
        for i, n in enumerate(count)
    ]


def _share(right):
    return int(right.sum()) / len(right) if len(right) else None


def table(result):
    """The result for a terminal: the loss, then exact matches overall, by position and by carries."""
    head = [f"{result['sequences']:,} held-out progressions: {result['nats_per_char']:.5f} nats per character"]
    if "excess" in result:
        head[0] += f", Bayes predictor {result['bayes_nats_per_char']:.5f}, excess {result['excess']:.5f}"
    if "bayes_floor" in result:
        head.append(f"(Bayes floor of all rows of the generator, with those to train on: {result['bayes_floor']:.5f})")
    if "trained" in result:
        trained = result["trained"]
        exact, nats = tables.percent(trained["exact_teacher_forced"]), trained["nats_per_char"]
        head.append(f"{trained['sequences']:,} progressions of the training file: {nats:.5f}, terms exact {exact}")
    rows = [["", "count", "teacher-forced", "free-running"]]

    def add(name: str, count: int, *shares: float | None) -> None:
        rows.append([name, f"{count:,}", *map(tables.percent, shares)])

    add("predictable terms", result["terms"], *(result[f"exact_{mode}"] for mode in MODES))
    by_term = [group for group in result["by_position"] if group["count"]]
    add("whole sequences", by_term[0]["count"] if by_term else 0, None, result["exact_sequences"])
    for low, next_low in pairwise((3, 4, 5, 9, 17, 33, 65, math.inf)):
        if groups := [group for group in by_term if low <= group["term"] < next_low]:
            last, count = groups[-1]["term"], sum(group["count"] for group in groups)
            shares = (sum(group["count"] * group[mode] for group in groups) / count for mode in MODES)
            add(f"term {low}" if low == last else f"terms {low} to {last}", count, *shares)
    for group in result["by_carries"]:
        add(sections.count(group["carries"], "carry", "carries"), group["count"], *(group[mode] for mode in MODES))
    return "\n".join([*head, "", *tables.columns(rows)])
