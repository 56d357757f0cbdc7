"""Which margins no float32 computation can change the sign of, with the bounds of bounds.py up to the last layer.

What is asked is one number: the right logit minus another. It is a direction of the last state, and two things keep its
bound small. Its sign is the same before the last norm divides. And the hidden units of the last layer, each a direction
of the state after attention, move by little, most of them where they are off; where their sum is too much, they are
taken together, since some of their errors cancel.
"""

from typing import NamedTuple

import numpy as np

from apformer.proof import network
from apformer.proof.bounds import (
    SLACK,
    Attended,
    Directions,
    Normed,
    along,
    along_each,
    attend,
    contracted,
    directions,
    hidden,
    length,
    rounded,
    scale_of,
    spectral,
    standard,
    states,
    turned,
)

CLOSE = 2.0  # a ratio up to which a bound is looked at more closely


class Last(NamedTuple):
    """What is known of the last layer of some strings."""

    attended: Attended
    normed: Normed
    h: np.ndarray  # (N, F) hidden units
    local: np.ndarray  # (N, F) the rounding of their sums
    dh: np.ndarray  # (N, F) how far they err
    z: np.ndarray  # (N, D) states after the layer
    summed: np.ndarray  # (N,) length of the rounding of their sums
    final: Normed


class Logits(NamedTuple):
    """The right character's logit minus those of all others, J of them."""

    known: Directions  # of the state before the last norm
    offset: np.ndarray  # (J,) what is added, as a multiple of the divisor of that norm
    scaled: np.ndarray  # (J,) length of what r of that norm is multiplied by
    size: np.ndarray  # (D + 2, J) of the weights of both, of their biases, and what an error of r is multiplied by


def differences(right, weights, w):
    """The Logits of a right character."""
    head, bias = weights["head.output.weight"], weights["head.output.bias"]
    others, size = np.delete(np.arange(len(bias)), right), np.abs(np.vstack([head, bias]))
    by = head[:, [right]] - head[:, others]
    offset = weights.get("final_norm.bias", np.zeros(len(head))) @ by + bias[right] - bias[others]
    columns = scale_of(weights, "final_norm")[:, None] * by
    known = directions(columns, "final_norm.scale" in weights, w)
    size = size[:, [right]] + size[:, others]
    size = np.vstack([size, length(scale_of(weights, "final_norm")[:, None] * size[:-1], 0)])
    return Logits(known, offset, length(columns, 0), size)


@np.errstate(over="ignore", invalid="ignore")  # a bound that overflows proves nothing, which is what it should do
def ratios(strings, right, weights, cfg, contexts):
    """How many times as large as its bound the margin of each string is: above 1, no float32 computation is wrong.

    right: the character that has to follow. A ratio is the least over all other characters; 0 where there is no bound.
    """
    distinct, place_of = np.unique(strings, return_inverse=True)
    tokens, above = network.layers(distinct, weights, cfg, contexts)
    x, e = weights["embedding.table"][tokens], np.zeros(len(tokens))
    for seen, w in above[:-1]:
        x, e = states(x, e, seen, w, cfg)
    (seen, w), found = above[-1], np.zeros(len(strings))
    columns = scale_of(w, "feedforward_norm")[:, None] * w["feedforward.expand.weight"]
    units = directions(columns, "feedforward_norm.scale" in w, w)
    logits = [differences(character, weights, w) for character in range(cfg["vocab_size"])]
    for at, attended in attend(x, e, seen[place_of], w, cfg):
        normed, h, local = hidden(attended, w, cfg)
        divided = np.abs(normed.r @ units.columns) * normed.change[:, None]  # by another divisor
        dh = (along(attended, units) + divided) / normed.least[:, None]
        dh = SLACK * (dh + length(columns, 0) * normed.local[:, None] + local)
        z, summed = contracted(attended, h, dh, w)
        e_z = SLACK * (attended.e + spectral(w["feedforward.contract.weight"]) * length(turned(h, dh)) + summed)
        final = standard(z, e_z, weights, "final_norm", cfg["norm_epsilon"])
        last = Last(attended, normed, h, local, dh, z, summed, final)
        for character in np.unique(right[at]):
            rows = np.flatnonzero(right[at] == character)
            found[at.start + rows] = of_character(at_rows(last, rows), logits[character], w)
    return np.where(np.isnan(found), 0.0, found)


def at_rows(last, rows):
    """Last of these rows."""
    attended, normed, *arrays, final = last
    picked = (type(part)(*(array[rows] for array in part)) for part in (attended, normed, final))
    attended, normed, final = picked
    return Last(attended, normed, *(array[rows] for array in arrays), final)


def of_character(last, logits, w):
    """The ratios of strings that all have one right character."""
    final, columns = last.final, logits.known.columns
    through = w["feedforward.contract.weight"] @ columns
    margin = last.z @ columns + logits.offset * final.s[:, None]
    size = np.column_stack([final.size, np.ones(len(margin)), final.e]) @ logits.size
    made = rounded(len(columns) + 5, size) + logits.scaled * final.local[:, None]
    fixed = made * (final.s + final.change)[:, None] + np.abs(logits.offset) * final.change[:, None]
    fixed += last.summed[:, None] * logits.known.length
    ratio = margin / (SLACK * (along(last.attended, logits.known) + turned(last.h, last.dh) @ np.abs(through) + fixed))
    row, other = np.nonzero((margin > 0) & (ratio <= CLOSE))
    if len(row):
        bound = closely(at_rows(last, row), columns[:, other].T, through[:, other].T, w) + fixed[row, other]
        ratio[row, other] = np.maximum(ratio[row, other], margin[row, other] / (SLACK * bound))
    return ratio.min(1)


def closely(last, columns, through, w):
    """How far states after the layer err, each along a direction of its own, the errors of units taken together.

    norm(y + dy) is r + J dy up to 3 |dy|^2 / (sqrt(D) s^2), with J = (I - 1 1'/D - r r'/D) / s.
    """
    attended, normed, on = last.attended, last.normed, last.h > 0
    a, bent = (on * through) @ w["feedforward.expand.weight"].T, 0.0
    back = a = a * scale_of(w, "feedforward_norm")
    if "feedforward_norm.scale" in w:
        r = normed.r
        back = (a - a.mean(1, keepdims=True) - r * (a * r).mean(1, keepdims=True)) / normed.s[:, None]
        bent = 3 * np.square(attended.e / normed.least) / columns.shape[1] ** 0.5
    flips = on * last.local + np.maximum(last.dh - np.abs(last.h), 0.0)
    bound = along_each(attended, columns + back, w) + length(a) * (bent + normed.local)
    return bound + (np.abs(through) * flips).sum(1)
