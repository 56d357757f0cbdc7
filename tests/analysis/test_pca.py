"""The plane of most variance, of points that lie in one."""

import numpy as np

from apformer.analysis import pca


def test_the_plane_holds_what_lies_in_one():
    """A rectangle of 6 by 2, turned into five dimensions: its sides, and 9 : 1 of the variance."""
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    flat = np.array([[3, 1], [3, -1], [-3, 1], [-3, -1]])
    place_V2, shares = pca.project((flat @ turned[:2] + rng.standard_normal(5)).astype(np.float32))
    np.testing.assert_allclose(abs(place_V2), abs(flat), atol=1e-5)
    np.testing.assert_allclose(shares, [0.9, 0.1], atol=1e-6)
