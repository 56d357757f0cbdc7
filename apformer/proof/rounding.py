"""Bound the rounding of margins in float32: a margin above its bound keeps its sign in any float32 computation.

The margin of a string is the right logit minus the largest other one. bounds.py bounds the errors of the states below
the last layer by their lengths alone. Here the last layer and the head are bounded along the directions that matter:

- The difference of two logits is one direction of the last state. Its sign does not depend on the division in the
  final norm, so the bound is computed before it.
- Each hidden unit of the last layer is a direction of the state after attention, and most units stay inactive.
- Where the sum of the bounds of all units is too large, `tight_bound` adds up their errors before it bounds them,
  since some cancel.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from apformer.proof import bounds, network
from apformer.proof.bounds import (
    SLACK,
    AttentionBounds,
    Normed,
    float32,
    length,
    product_rounding,
    scale_of,
    select,
    spectral_norm,
)
from apformer.proof.directions import (
    Directions,
    ErrorFactors,
    bound_along,
    bound_along_rows,
    factor_errors,
    prepare_directions,
)

CLOSE = 2.0  # ratio of margin to bound up to which the bound is computed again, more tightly


class LastLayer(NamedTuple):
    """The last layer for N strings, with the bounds of its errors."""

    attended: AttentionBounds
    errors: ErrorFactors  # of the states after attention
    normed: Normed  # norm of these states
    h: np.ndarray  # (N, F) hidden units before the activation
    local: np.ndarray  # (N, F) rounding of h itself
    dh: np.ndarray  # (N, F) bound of the error of h
    change: np.ndarray  # (N, F) bound of the error of relu(h)
    z: np.ndarray  # (N, D) states after the layer
    rounding: np.ndarray  # (N,) length of the rounding of z itself
    final: Normed  # norm of z


class LogitDifferences(NamedTuple):
    """The logit of the right token minus those of the J others, as a function of the state z before the final norm."""

    directions: Directions  # columns c: the difference times s is c . z + offset s
    offset: np.ndarray  # (J,)
    scaled: np.ndarray  # (J,) length of the factor of r, of the Normed of z
    size: np.ndarray  # (D + 2, J) |weights| of both logits, |biases| of both, and the factor of an error of r
    through: np.ndarray  # (F, J) factor of the hidden units


def logit_differences(right: int, weights: dict, w: dict) -> LogitDifferences:
    """Return the LogitDifferences for a right token; w: weights of the last layer."""
    head, bias, scale = weights["head.output.weight"], weights["head.output.bias"], scale_of(weights, "final_norm")
    others, size = np.delete(np.arange(len(bias)), right), np.abs(np.vstack([head, bias]))
    difference = head[:, [right]] - head[:, others]
    offset = weights.get("final_norm.bias", np.zeros(len(head))) @ difference + bias[right] - bias[others]
    columns = scale[:, None] * difference
    prepared = prepare_directions(columns, "final_norm.scale" in weights, w)
    size = size[:, [right]] + size[:, others]
    size = np.vstack([size, length(scale[:, None] * size[:-1], 0)]).astype(float32)
    scaled = length(columns, 0).astype(float32)
    return LogitDifferences(prepared, offset, scaled, size, w["feedforward.contract.weight"] @ prepared.columns)


@np.errstate(all="ignore")  # as in network.map_batches
def bounded_logits(
    codes: np.ndarray, right: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits after each string, (N, V), and the ratio of its margin to the bound of its rounding, (N,).

    A ratio above 1 proves that the right token has the largest logit in any float32 computation. The ratio is the
    smallest over the other tokens; 0 where there is no bound.

    Args:
        codes: (N,) strings, see network.py.
        right: (N,) the token that has to follow. Faster if equal ones are neighbours.
        weights: Result of network.complete.
        cfg: Config of the model.
        contexts: Module of contexts.
    """
    tokens, steps = network.layers(codes, weights, cfg, contexts)
    x, e = weights["embedding.table"][tokens], np.zeros(len(tokens), float32)
    for seen, w in steps[:-1]:
        x, e = bounds.bound_block(x, e, seen, w, cfg)
    seen, w = steps[-1]
    below, units = bounds.bound_heads(x, e, w, cfg), bounds.hidden_units(w)
    unit_directions = prepare_directions(units.columns, "feedforward_norm.scale" in w, w)
    logits = [logit_differences(token, weights, w) for token in range(cfg["vocab_size"])]
    spectral_2, epsilon = spectral_norm(w["feedforward.contract.weight"]), cfg["norm_epsilon"]

    def batch(at: slice) -> tuple[np.ndarray, np.ndarray]:
        newest = seen[at, 0]
        attended = bounds.bound_attention(below, seen[at], x[newest], e[newest], w)
        errors, y = factor_errors(attended), attended.y
        h = network.hidden(y, w, cfg)
        z, dh = network.contract(h, w) + y, np.abs(h - units.constant).astype(float32)
        h = h.astype(float32)
        normed = bounds.bound_norm(y, attended.e, w, "feedforward_norm", epsilon)
        local = product_rounding(normed, units.absolute)
        dh *= normed.change[:, None]  # by the change of the divisor of the norm
        dh += bound_along(errors, unit_directions)
        dh /= normed.least[:, None]
        dh += units.length * normed.local[:, None] + local
        dh *= SLACK
        change = bounds.relu_change(h, dh)
        rounding = bounds.output_rounding(length(y).astype(float32) + attended.e, h, change, units, w)
        e_z = SLACK * (attended.e + spectral_2 * length(change) + rounding)
        final = bounds.bound_norm(z, e_z, weights, "final_norm", epsilon)
        last = LastLayer(attended, errors, normed, h, local, dh, change, z, rounding, final)
        ratio = np.zeros(len(y))
        for token in network.distinct(right[at]):
            rows = right[at] == token
            ratio[rows] = margin_ratios(last if rows.all() else select(last, rows), logits[token], w)
        return final.n @ weights["head.output.weight"] + weights["head.output.bias"], ratio

    logits_NV, ratio_N = network.map_batches(batch, len(codes))
    return logits_NV, np.nan_to_num(ratio_N)


def margin_ratios(last: LastLayer, logits: LogitDifferences, w: dict) -> np.ndarray:
    """Return the ratio of margin to bound for strings with one right token, the smallest over the others, (N,)."""
    final, columns = last.final, logits.directions.columns
    local = product_rounding(final, logits.size) + logits.scaled * final.local[:, None]
    fixed = local * (final.s + final.change)[:, None] + np.abs(logits.offset) * final.change[:, None]
    fixed += last.rounding[:, None] * logits.directions.length
    bound = bound_along(last.errors, logits.directions) + last.change @ np.abs(logits.through).astype(float32) + fixed
    margin = last.z @ columns + logits.offset * final.s[:, None]
    ratio = margin / (SLACK * bound)
    row, other = np.nonzero((margin > 0) & (ratio <= CLOSE))
    if len(row):
        bound = tight_bound(select(last, row), columns[:, other].T, logits.through[:, other].T, w) + fixed[row, other]
        ratio[row, other] = np.maximum(ratio[row, other], margin[row, other] / (SLACK * bound))
    return ratio.min(1)


def tight_bound(last: LastLayer, columns: np.ndarray, through: np.ndarray, w: dict) -> np.ndarray:
    """Bound the error of each state along the direction in its row, (N,), after adding up the errors of the units.

    For a norm these are r(y + dy) - r(y) = J dy + `remainder`, with J = (I - 1 1'/D - r r'/D) / s.

    Args:
        last: The last layer for N strings.
        columns: (N, D) directions.
        through: (N, F) factor of the hidden units for each of them.
        w: Weights of the layer.
    """
    attended, normed, active = last.attended, last.normed, last.h > 0
    a, second_order = (active * through) @ w["feedforward.expand.weight"].T, 0.0
    back = a = a * scale_of(w, "feedforward_norm")
    if "feedforward_norm.scale" in w:
        r = (attended.y - attended.y.mean(1, keepdims=True)) / normed.s[:, None]
        back = (a - a.mean(1, keepdims=True) - r * (a * r).mean(1, keepdims=True)) / normed.s[:, None]
        second_order = remainder(attended.e, normed.least, columns.shape[1])
    nonlinear = active * last.local + np.maximum(last.dh - np.abs(last.h), 0.0)
    bound = bound_along_rows(attended, columns + back, w) + length(a) * (second_order + normed.local)
    return bound + (np.abs(through) * nonlinear).sum(1)


def remainder(e: np.ndarray, least: np.ndarray, D: int) -> np.ndarray:
    """Bound the second-order error of a norm, |r(y + dy) - r(y) - J dy|.

    |dy| is at most e, and the divisor of the norm at least `least` on the way. r = sqrt(D) u for the first D
    coordinates of the unit vector u along x = (y - mean, sqrt(D epsilon)). The second derivative of u along a u + b v,
    for a unit vector v orthogonal to u, is -(2 a b v + b^2 u) / |x|^2. If a^2 + b^2 = 1, it is at most
    2 / (sqrt(3) |x|^2) long, where b^2 = 2/3.
    """
    return np.square(e / least) / (3 * D) ** 0.5
