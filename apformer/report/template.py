"""The page of a run as one file: a template, filled with the run.

`template.html` is built from page/ (`npm ci && npm run build` there): markup, style and script in one file, and a
content-security policy that lets it load nothing. A run is put into it as JSON, and its weights as base64 of
little-endian float32, in the order of their names.
"""

import base64
import json
from importlib import resources

import numpy as np

from apformer.files import plain

DATA, WEIGHTS = "<!-- the run -->", "<!-- the weights -->"


def fill(data: dict, leaves: dict[str, np.ndarray] | None = None) -> str:
    """Return the page, as text.

    Args:
        data: What JSON can hold.
        leaves: {name: float32 array} of the model; None for a page without it.
    """
    leaves = leaves or {}
    data = data | {"leaves": [{"name": name, "shape": list(leaf.shape)} for name, leaf in leaves.items()]}
    numbers = b"".join(np.asarray(leaf, "<f4").tobytes() for leaf in leaves.values())
    page = resources.files("apformer.report").joinpath("template.html").read_text("utf-8")
    # No text can end the block that it stands in, and null takes the place of numbers that are not finite.
    text = json.dumps(plain(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = page.replace(DATA, _block("run", "application/json", text))
    return page.replace(WEIGHTS, _block("weights", "text/plain", base64.b64encode(numbers).decode("ascii")))


def _block(name: str, kind: str, text: str) -> str:
    """Return a block of data, which a browser does not run."""
    return f'<script id="{name}" type="{kind}">{text}</script>'
