"""Which models the page of a run can run itself.

The script of the page has the forward pass a second time, in page/src/model.ts, recurrent.ts and seq2seq.ts. A model
with a part that is not listed here has its page too: the page then says why its model does not run, and shows the rest.
"""

from dataclasses import asdict

TABLES = {"model": (), "recurrent": (), "seq2seq": ("encoder",)}  # the side that has the embedding, by architecture

KNOWN = {  # the choices of a Config that the script knows
    "position": (
        "sinusoidal",
        "learned",
        "rotary",
        "alibi",
        "relative",
        "periodic",
        "ahead",
        "columns",
        "fixed_offsets",
        "none",
    ),
    "similarity": ("scaled_dot", "dot", "cosine", "additive", "none"),
    "weighting": ("softmax", "geometric"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "feedforward": (True,),
    "norm": ("layer", "none"),
    "norm_position": ("pre", "post"),
    "cell": ("rnn", "gru", "lstm"),
}


def config(cfg):
    """A model's Config as the script reads it."""
    return asdict(cfg)


def refusal(architecture, cfg):
    """Why the page cannot run a model, in a sentence; None if it can."""
    if architecture not in TABLES:
        return f"This page cannot run a model of the architecture {architecture}."
    for name, value in config(cfg).items():
        if value not in KNOWN.get(name, (value,)):
            return f"This page cannot run a model with {name} {value}."
    return None


def embedding(architecture, params):
    """The table (V, D) of a model's embeddings; None of an architecture that the page does not know."""
    if architecture not in TABLES:
        return None
    for side in TABLES[architecture]:
        params = params[side]
    return params["embedding"]["table"]
