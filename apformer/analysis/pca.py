"""Project vectors onto their first two principal components, by a singular value decomposition.

X - mean(X) = U S V^T        the coordinates of a row are the first two columns of U S
"""

from typing import Any

import numpy as np


def plane(table_VD: Any, most: int | None = None) -> dict[str, list] | None:
    """Return {"points": coordinates of each row, "shares": share of the variance on either axis}, as lists.

    None if there is no table, or one with more than `most` rows.
    """
    if table_VD is None or (most is not None and len(table_VD) > most):
        return None
    points_V2, shares_2 = project(table_VD)
    return {"points": points_V2.round(6).tolist(), "shares": shares_2.tolist()}


def project(table_VD: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of the rows, (V, 2), and the shares of the variance, (2,), computed in float64."""
    table_VD = np.asarray(table_VD, np.float64)
    left_VK, scale_K, _ = np.linalg.svd(table_VD - table_VD.mean(0), full_matrices=False)
    return (left_VK * scale_K)[:, :2], (scale_K**2 / np.sum(scale_K**2))[:2]
