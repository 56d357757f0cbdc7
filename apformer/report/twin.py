"""Models that the page of a run can run itself.

The script of the page has the forward pass a second time, in page/src/model.ts, recurrent.ts and seq2seq.ts. A model of
another architecture, or with a part that is not listed here, has its page too, which says why it does not run it.
"""

from typing import Any

import numpy as np

RUNS = ["model", "recurrent", "seq2seq"]  # architectures

KNOWN = {  # the choices of a Config that the script knows
    "position": ("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
    "similarity": ("scaled_dot", "dot", "cosine", "additive"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "feedforward": (True,),
    "norm": ("layer", "none"),
    "norm_position": ("pre", "post"),
    "cell": ("rnn", "gru", "lstm"),
}


def refusal(architecture: str, cfg: Any) -> str | None:
    """Return the sentence that says why the page cannot run a model; None if it can."""
    if architecture not in RUNS:
        return f"This page cannot run a model of the architecture {architecture}."
    for name, known in KNOWN.items():
        if hasattr(cfg, name) and getattr(cfg, name) not in known:
            return f"This page cannot run a model with {name} {getattr(cfg, name)}."
    return None


def embedding(architecture: str, params: dict) -> np.ndarray | None:
    """Return the embedding table (V, D) of a model; None of an architecture that the page does not know."""
    return params.get("encoder", params)["embedding"]["table"] if architecture in RUNS else None
