"""Bounds of margins, above which no float32 computation changes their sign; up to the last layer by bounds.py.

What is asked is one number: the right logit minus another. It is a direction of the last state, and two things keep its
bound small. Its sign is the same before the last norm divides. And the hidden units of the last layer, each a direction
of the state after attention, move by little, most of them where they are off; where their sum is too much, they are
taken together, since some of their errors cancel.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from apformer.proof import bounds, network
from apformer.proof.bounds import SLACK, Attended, Normed, float32, length, local, scale_of, spectral, taken
from apformer.proof.directions import Along, Directions, along, along_each, directions, errors_of

CLOSE = 2.0  # a ratio up to which a bound is looked at more closely


class Last(NamedTuple):
    """The last layer of some strings."""

    attended: Attended
    errors: Along  # of the states after attention
    y: np.ndarray  # (N, D) states after attention
    normed: Normed  # of them
    h: np.ndarray  # (N, F) hidden units
    local: np.ndarray  # (N, F) the rounding of their sums
    dh: np.ndarray  # (N, F) how far they err
    moved: np.ndarray  # (N, F) how far relu(h) may move
    z: np.ndarray  # (N, D) states after the layer
    summed: np.ndarray  # (N,) length of the rounding of their sums
    final: Normed  # of them


class Logits(NamedTuple):
    """The right character's logit minus those of all others, J of them."""

    known: Directions  # of the state before the last norm
    offset: np.ndarray  # (J,) what is added, as a multiple of the divisor of that norm
    scaled: np.ndarray  # (J,) length of what r of that norm is multiplied by
    size: np.ndarray  # (D + 2, J) of the weights of both, of their biases, and what an error of r is multiplied by
    through: np.ndarray  # (F, J) what the hidden units are multiplied by


def differences(right: int, weights: dict, w: dict) -> Logits:
    """Return the Logits of a right character."""
    head, bias, scale = weights["head.output.weight"], weights["head.output.bias"], scale_of(weights, "final_norm")
    others, size = np.delete(np.arange(len(bias)), right), np.abs(np.vstack([head, bias]))
    by = head[:, [right]] - head[:, others]
    offset = np.broadcast_to(bounds.bias_of(weights, "final_norm"), len(head)) @ by + bias[right] - bias[others]
    columns = scale[:, None] * by
    known = directions(columns, "final_norm.scale" in weights, w)
    size = size[:, [right]] + size[:, others]
    size = np.vstack([size, length(scale[:, None] * size[:-1], 0)]).astype(float32)
    scaled = length(columns, 0).astype(float32)
    return Logits(known, offset, scaled, size, w["feedforward.contract.weight"] @ known.columns)


@np.errstate(over="ignore", invalid="ignore")  # as in network.each_batch
def judge(
    codes: np.ndarray, right: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits after each string, and how many times as large as its bound its margin is.

    Where this ratio is above 1, no float32 computation is wrong. It is the least over all other characters than the
    right one, which has to follow; 0 where there is no bound. Strings with one right character should follow each
    other.
    """
    tokens, above = network.layers(codes, weights, cfg, contexts)
    x, e = weights["embedding.table"][tokens], np.zeros(len(tokens), float32)
    for seen, w in above[:-1]:
        x, e = bounds.states(x, e, seen, w, cfg)
    seen, w = above[-1]
    heads = network.project(x, w, cfg)
    below, of = bounds.lower(x, e, heads, w, cfg), bounds.units(w)
    known = directions(of.columns, "feedforward_norm.scale" in w, w)
    logits = [differences(character, weights, w) for character in range(cfg["vocab_size"])]
    grows, size_x, epsilon = spectral(w["feedforward.contract.weight"]), length(x).astype(float32), cfg["norm_epsilon"]

    def batch(at: slice) -> tuple[np.ndarray, np.ndarray]:
        row, own = seen[at], seen[at, 0]
        found = network.attend(heads, row, x[own], w)
        attended = bounds.attended(found, heads, below, row, w, size_x[own], e[own])
        errors = errors_of(attended)
        h = network.hidden(found.y, w, cfg)
        z, h = network.contract(h, w) + found.y, h.astype(float32)
        normed = bounds.standard(found.y, attended.e, w, "feedforward_norm", epsilon)
        made = local(normed, of.absolute)
        dh = np.abs(h - of.constant) * normed.change[:, None]  # by another divisor of the norm
        dh += along(errors, known)
        dh /= normed.least[:, None]
        dh += of.length * normed.local[:, None] + made
        dh *= float32(SLACK)
        moved = bounds.turned(h, dh)
        summed = bounds.summed(length(found.y).astype(float32) + attended.e, h, moved, of, w)
        e_z = float32(SLACK) * (attended.e + grows * length(moved) + summed)
        final = bounds.standard(z, e_z, weights, "final_norm", epsilon)
        last = Last(attended, errors, found.y, normed, h, made, dh, moved, z, summed, final)
        ratio = np.zeros(len(row))
        for character in network.distinct(right[at]):
            rows = right[at] == character
            ratio[rows] = ratios(last if rows.all() else taken(last, rows), logits[character], w)
        return final.n @ weights["head.output.weight"] + weights["head.output.bias"], ratio

    logits_NV, ratio_N = network.each_batch(batch, len(codes))
    return logits_NV, np.where(np.isnan(ratio_N), 0.0, ratio_N)


def ratios(last: Last, of: Logits, w: dict) -> np.ndarray:
    """Return how many times as large as its bound the margin of each row is, if all have one right character."""
    final, columns = last.final, of.known.columns
    made = local(final, of.size) + of.scaled * final.local[:, None]
    fixed = made * (final.s + final.change)[:, None] + np.abs(of.offset) * final.change[:, None]
    fixed += last.summed[:, None] * of.known.length
    bound = along(last.errors, of.known) + last.moved @ np.abs(of.through).astype(float32) + fixed
    margin = last.z @ columns + of.offset * final.s[:, None]
    ratio = margin / (SLACK * bound)
    row, other = np.nonzero((margin > 0) & (ratio <= CLOSE))
    if len(row):
        bound = closely(taken(last, row), columns[:, other].T, of.through[:, other].T, w) + fixed[row, other]
        ratio[row, other] = np.maximum(ratio[row, other], margin[row, other] / (SLACK * bound))
    return ratio.min(1)


def closely(last: Last, columns: np.ndarray, through: np.ndarray, w: dict) -> np.ndarray:
    """Return how far states after the layer err, each along a direction of its own, the errors of units taken together.

    norm(y + dy) is r + J dy up to 3 |dy|^2 / (sqrt(D) s^2), with J = (I - 1 1'/D - r r'/D) / s.
    """
    attended, normed, on = last.attended, last.normed, last.h > 0
    a, bent = (on * through) @ w["feedforward.expand.weight"].T, 0.0
    back = a = a * scale_of(w, "feedforward_norm")
    if "feedforward_norm.scale" in w:
        r = (last.y - last.y.mean(1, keepdims=True)) / normed.s[:, None]
        back = (a - a.mean(1, keepdims=True) - r * (a * r).mean(1, keepdims=True)) / normed.s[:, None]
        bent = 3 * np.square(attended.e / normed.least) / columns.shape[1] ** 0.5
    flips = on * last.local + np.maximum(last.dh - np.abs(last.h), 0.0)
    bound = along_each(attended, columns + back, w) + length(a) * (bent + normed.local)
    return bound + (np.abs(through) * flips).sum(1)
