"""Bound the errors of states after attention along directions that are known in advance."""

from typing import NamedTuple

import numpy as np

from apformer.proof.bounds import SLACK, AttentionBounds, float32, length, padded, scale_of


class Directions(NamedTuple):
    """Directions c, the J columns of a matrix, along which the errors of states after attention are bounded."""

    columns: np.ndarray  # (D, J)
    length: np.ndarray  # (J,) |c|
    parts: np.ndarray  # (H + 1, J) |W_o c| for each head, and |c|
    forms: np.ndarray  # (H H, J) quadratic form of the attention weights, |sum_h weight_h W_v W_o c|^2


def prepare_directions(columns: np.ndarray, normed: bool, w: dict) -> Directions:
    """Compute the Directions of columns (D, J); normed: whether a norm, which subtracts the mean, follows."""
    columns = columns - columns.mean(0) * normed
    through_o = np.einsum("hkd,dj->hkj", w["attention.output"], columns)
    through_v = np.einsum("dhk,hkj->hdj", scaled_value(w), through_o)
    forms = padded(np.einsum("hdj,gdj->hgj", through_v, through_v)).reshape(-1, columns.shape[1])
    parts = np.vstack([length(through_o, 1), length(columns, 0)])
    return Directions(columns, length(columns, 0), parts.astype(float32), forms.astype(float32))


def scaled_value(w: dict) -> np.ndarray:
    """Return W_v times the scale of the norm before it, (D, H, K)."""
    return w["attention.value"] * scale_of(w, "attention_norm")[:, None, None]


class ErrorFactors(NamedTuple):
    """The errors e_o of the states that attention reads, and the rest of AttentionBounds, for `bound_along`.

    The error along c is at most sum_o e_o f_o(c), where f_o(c)^2 is a quadratic form of the attention weights. For any
    g_o > 0, by Cauchy and Schwarz, sum_o e_o f_o(c) <= sqrt(sum_o e_o g_o) sqrt(sum_o e_o f_o(c)^2 / g_o).
    """

    sum: np.ndarray  # (N, 1) sum_o e_o g_o
    forms: np.ndarray  # (N, H H) sum_o e_o weight_o weight_o' / g_o
    parts: np.ndarray  # (N, H + 1) lengths of the errors of the heads' weighted sums, and of the rest


def factor_errors(bounds: AttentionBounds) -> ErrorFactors:
    """Return the factors of the error bound that do not depend on the direction."""
    g, weight = bounds.by_read + 1e-12, np.ascontiguousarray(bounds.weight)
    forms = (weight * (bounds.read / g)[:, :, None]).swapaxes(1, 2) @ weight
    total = (bounds.read * g).sum(1, keepdims=True)
    return ErrorFactors(total, forms.reshape(len(forms), -1), np.column_stack([bounds.mean, bounds.rest]))


def bound_along(errors: ErrorFactors, directions: Directions) -> np.ndarray:
    """Bound the errors of N states along J directions, (N, J)."""
    squares = errors.forms @ directions.forms
    squares *= errors.sum
    by_read = np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
    return SLACK * (by_read + errors.parts @ directions.parts)


def bound_along_rows(bounds: AttentionBounds, columns: np.ndarray, w: dict) -> np.ndarray:
    """Bound the error of each state along the direction in its row, (N,); columns: (N, D)."""
    through_o = np.einsum("hkd,nd->nhk", w["attention.output"], columns)
    through_v = np.einsum("dhk,nhk->nhd", scaled_value(w), through_o)
    by_read = (length(np.einsum("noh,nhd->nod", bounds.weight, through_v)) * bounds.read).sum(1)
    return SLACK * (by_read + (bounds.mean * length(through_o)).sum(1) + bounds.rest * length(columns))
