"""Bounds of the errors of states after attention, along directions that are known in advance."""

from typing import NamedTuple

import numpy as np

from apformer.proof.bounds import SLACK, Attended, float32, length, padded, scale_of


class Directions(NamedTuple):
    """Directions c, the columns of a matrix, in which states after attention err; known in advance."""

    columns: np.ndarray  # (D, J)
    length: np.ndarray  # (J,)
    parts: np.ndarray  # (H + 1, J) |W_o c| of each head, and |c|
    forms: np.ndarray  # (H H, J) |sum_h weight_h W_v W_o c|^2 as a quadratic form


def directions(columns: np.ndarray, normed: bool, w: dict) -> Directions:
    """Return the Directions of columns (D, J), without their mean if a norm subtracts the mean of what it is given."""
    columns = columns - columns.mean(0) * normed
    through_o = np.einsum("hkd,dj->hkj", w["attention.output"], columns)
    through_v = np.einsum("dhk,hkj->hdj", scaled_value(w), through_o)
    forms = padded(np.einsum("hdj,gdj->hgj", through_v, through_v)).reshape(-1, columns.shape[1])
    parts = np.vstack([length(through_o, 1), length(columns, 0)])
    return Directions(columns, length(columns, 0), parts.astype(float32), forms.astype(float32))


def scaled_value(w: dict) -> np.ndarray:
    """Return W_v, (D, H, K), by which r of the norm before it is multiplied."""
    return w["attention.value"] * scale_of(w, "attention_norm")[:, None, None]


class Along(NamedTuple):
    """The errors of states after attention, as `along` combines them for any directions.

    By Cauchy and Schwarz, sum_o e_o f_o(c) <= sqrt(sum_o e_o g_o) sqrt(sum_o e_o f_o(c)^2 / g_o), for any g_o > 0.
    """

    sum: np.ndarray  # (N, 1) of e_o g_o
    forms: np.ndarray  # (N, H H) sum_o e_o weight_o weight_o' / g_o
    parts: np.ndarray  # (N, H + 1) lengths of the errors of the heads' weighted sums, and of the rest


def errors_of(found: Attended) -> Along:
    """Return the Along of a batch."""
    g, (N, W, H) = found.by_read + float32(1e-12), found.weight.shape
    share, forms = found.read / g, np.zeros((N, H, H), float32)
    for o in range(W):
        weight = found.weight[:, o]
        forms += (weight * share[:, o, None])[:, :, None] * weight[:, None]
    total = (found.read * g).sum(1, keepdims=True)
    return Along(total, forms.reshape(N, -1), np.column_stack([found.mean, found.rest]))


def along(found: Along, known: Directions) -> np.ndarray:
    """Return how far states err along directions, (N, J)."""
    squares = found.forms @ known.forms
    squares *= found.sum
    return float32(SLACK) * (np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares) + found.parts @ known.parts)


def along_each(found: Attended, columns: np.ndarray, w: dict) -> np.ndarray:
    """Return how far states err, each along a direction of its own: columns (N, D)."""
    through_o = np.einsum("hkd,nd->nhk", w["attention.output"], columns)
    through_v = np.einsum("dhk,nhk->nhd", scaled_value(w), through_o)
    far = (length(np.einsum("noh,nhd->nod", found.weight, through_v)) * found.read).sum(1)
    return SLACK * (far + (found.mean * length(through_o)).sum(1) + found.rest * length(columns))
