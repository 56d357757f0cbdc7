"""Vectors in the plane in which they vary most: principal components, by a singular value decomposition.

X - mean(X) = U S V^T        a row's place in the plane is the first two columns of U S
"""

from typing import Any

import numpy as np


def plane(table_VD: Any, most: int | None = None) -> dict[str, list] | None:
    """Return {"points": a place for each row, "shares": of the variance on either axis}, as lists.

    None of no table, and of one with more than `most` rows.
    """
    if table_VD is None or (most is not None and len(table_VD) > most):
        return None
    place_V2, shares_2 = project(table_VD)
    return {"points": place_V2.round(6).tolist(), "shares": shares_2.tolist()}


def project(table_VD: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the rows, (V, 2), and the shares of the variance, (2,), computed in float64."""
    table_VD = np.asarray(table_VD, np.float64)
    left_VK, scale_K, _ = np.linalg.svd(table_VD - table_VD.mean(0), full_matrices=False)
    return (left_VK * scale_K)[:, :2], (scale_K**2 / np.sum(scale_K**2))[:2]
