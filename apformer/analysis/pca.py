"""Project vectors onto their first two principal components, by a singular value decomposition.

X - mean(X) = U S V^T        the coordinates of a row are the first two columns of U S
"""

from typing import Any

import numpy as np


def project(table_VD: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of the rows, (V, 2), and the shares of the variance, (2,), computed in float64.

    A component that the rows lack is 0.
    """
    table_VD = np.asarray(table_VD, np.float64)
    padded = np.pad(table_VD - table_VD.mean(0), (0, 1))  # at least two components
    left, scale_K, _ = np.linalg.svd(padded, full_matrices=False)
    return (left * scale_K)[:-1, :2], scale_K[:2] ** 2 / (np.sum(scale_K**2) or 1.0)
