"""Write the page of a run as one HTML file, by filling a template.

`template.html` is built from page/ (`npm ci && npm run build` there): markup, style and script in one file, with a
content-security policy that lets it load nothing. The run is inserted as JSON, and its weights as base64 of
little-endian float32, in the order of their names.

The script of the page has its own forward passes, in page/src/model.ts, recurrent.ts and seq2seq.ts. The page of a
model of another architecture, or with a part that is not listed here, says why it cannot run the model.
"""

import base64
import json
from importlib import resources
from typing import Any

import numpy as np

from apformer.files import plain

RUNS = ["model", "recurrent", "seq2seq"]  # architectures that the script computes

COMPUTED = {  # values of a Config that the script computes
    "position": ("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
    "similarity": ("scaled_dot", "dot", "cosine", "additive"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "feedforward": (True,),
    "norm": ("layer", "none"),
    "norm_position": ("pre", "post"),
    "cell": ("rnn", "gru", "lstm"),
}
DATA, WEIGHTS = "<!-- the run -->", "<!-- the weights -->"


def refusal(architecture: str, cfg: Any) -> str | None:
    """Return the sentence that says why the page cannot run a model; None if it can."""
    if architecture not in RUNS:
        return f"This page cannot run a model of the architecture {architecture}."
    for name, values in COMPUTED.items():
        if hasattr(cfg, name) and getattr(cfg, name) not in values:
            return f"This page cannot run a model with {name} {getattr(cfg, name)}."
    return None


def fill(data: dict, leaves: dict[str, np.ndarray] | None = None) -> str:
    """Return the HTML of the page.

    Args:
        data: The run, as JSON can hold it.
        leaves: {name: float32 array} of the parameters; None for a page without the model.
    """
    leaves = leaves or {}
    data = data | {"leaves": [{"name": name, "shape": list(leaf.shape)} for name, leaf in leaves.items()]}
    numbers = b"".join(np.asarray(leaf, "<f4").tobytes() for leaf in leaves.values())
    page = resources.files("apformer.report").joinpath("template.html").read_text("utf-8")
    # Without "<" no text can end its block. Numbers that are not finite become null.
    text = json.dumps(plain(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = page.replace(DATA, _block("run", "application/json", text))
    return page.replace(WEIGHTS, _block("weights", "text/plain", base64.b64encode(numbers).decode("ascii")))


def _block(name: str, kind: str, text: str) -> str:
    """Return an HTML block of data, which a browser does not execute."""
    return f'<script id="{name}" type="{kind}">{text}</script>'
