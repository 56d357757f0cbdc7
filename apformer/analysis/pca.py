"""Project vectors onto their first two principal components, by a singular value decomposition.

X - mean(X) = U S V^T        the coordinates of a row are the first two columns of U S
"""

from typing import Any

import numpy as np


def project(table_VD: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of the rows, (V, 2), and the shares of the variance, (2,), computed in float64."""
    table_VD = np.asarray(table_VD, np.float64)
    left_VK, scale_K, _ = np.linalg.svd(table_VD - table_VD.mean(0), full_matrices=False)
    return (left_VK * scale_K)[:, :2], (scale_K**2 / np.sum(scale_K**2))[:2]
