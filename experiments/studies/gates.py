"""What do the gates of an LSTM do? `python experiments/studies/gates.py FILE` trains one, and draws its gates.

    c_t = f c_{t-1} + i n,  h_t = o tanh(c_t)      f near 1 keeps what the cell holds, i near 1 lets n in,
                                                   o near 1 shows the cell

FILE is a text, or a run of `apformer train --recipe text --architecture recurrent --cell lstm`. A run captures states
but no gates, so the gates are computed from the states.

    figures/gates.png   gates and cell of the units whose forget gate varies most, in one layer of the last member
    table.json          the mean of each gate in each layer over letters, blanks and line ends: median of the members
"""

import os
import sys
from dataclasses import dataclass

import _study
import jax
import numpy as np
import one_text
from tyro.conf import Positional

from apformer import flags, recurrent
from apformer.errors import USAGE, UserError
from apformer.files import FilePath
from apformer.report.figures import blank, legible
from apformer.runs import directory, restore
from apformer.tasks.text import corpus

GATES = {"forget": "Blues", "input": "Oranges", "output": "Greens"}
KINDS = {"letters": str.isalnum, "blanks": " ".__eq__, "line ends": "\n".__eq__, "other signs": lambda c: True}
UNITS = 24  # in the picture


@dataclass(frozen=True)
class Gates:
    """Draw the gates of an LSTM over a text, and measure them."""

    source: Positional[FilePath]
    """Text file to train on, or a run that learned a text by characters with an LSTM."""
    text: str | None = None
    """Text to read. The default is the beginning of the validation part."""
    characters: int = 4096
    """Characters that are read, at most."""
    shown: int = 80
    """Characters of the picture, from the first."""
    layer: int = 1
    """Layer of the picture, from 1."""
    steps: int = 800
    """Optimizer steps of each model; a multiple of 50."""
    members: int = 4
    """Seeds of the model."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-gates."""


def gates(params, tokens_T, cfg):
    """Return [{"forget", "input", "output", "cell", "hidden": (T, D)}], an entry for each layer."""
    _, captured = recurrent.apply(params, tokens_T[None], cfg, capture=("residual",))
    streams = np.asarray(captured["residual"], np.float64)[:, 0]
    found = []
    for layer, (x_TD, h_TD) in enumerate(zip(streams[:-1], streams[1:], strict=True)):
        before_TD = np.concatenate([np.zeros_like(h_TD[:1]), h_TD[:-1]])

        def affine(name, layer=layer, x_TD=x_TD, before_TD=before_TD):
            part = jax.tree.map(lambda stacked: np.asarray(stacked[layer], np.float64), params["cells"][name])
            return x_TD @ part["input"]["weight"] + part["input"]["bias"] + before_TD @ part["hidden"]["weight"]

        activations = {gate: 1 / (1 + np.exp(-affine(f"{gate}_gate"))) for gate in GATES}
        new_TD, c_TD = activations["input"] * np.tanh(affine("candidate")), np.zeros_like(h_TD)
        for t in range(len(c_TD)):
            c_TD[t] = new_TD[t] + activations["forget"][t] * (c_TD[t - 1] if t else 0)
        found.append(activations | {"cell": c_TD, "hidden": activations["output"] * np.tanh(c_TD)})
    return found


def means(found, text):
    """Return {layer: {gate: {kind of character: mean}}} of one member."""
    kind_T = np.array([next(name for name, is_one in KINDS.items() if is_one(c)) for c in text])
    return {
        str(layer): {gate: {kind: activations[gate][kind_T == kind].mean() for kind in {*kind_T}} for gate in GATES}
        for layer, activations in enumerate(found, 1)
    }


def table(members):
    """Return a row for each layer and gate: means by kind of character, as median (least to greatest) of members."""
    rows = [["layer", "gate", *KINDS]]
    for layer, gate_means in members[0].items():
        for gate in gate_means:
            by_kind = [[member[layer][gate][kind] for member in members if kind in gate_means[gate]] for kind in KINDS]
            rows.append([layer, gate, *map(_study.middle, by_kind)])
    return rows


def numbers(members):
    """Return {name: number} for a record: medians of the members."""
    return {
        f"{gate}_{layer}_{kind.replace(' ', '_')}": float(np.median([member[layer][gate][kind] for member in members]))
        for layer, gate_means in members[0].items()
        for gate in gate_means
        for kind in gate_means[gate]
    }


def draw_figure(activations, text):
    """Draw the gates and the cell of some units over the characters of a text, a row for each unit."""
    unit_U = np.sort(np.argsort(-activations["forget"].std(0))[:UNITS])
    figure = blank(2 + 0.11 * len(text), 9)
    for panel, (name, colours) in zip(figure.subplots(4, 1), (GATES | {"cell": "RdBu_r"}).items(), strict=True):
        bound = None if name in GATES else np.quantile(abs(activations[name][:, unit_U]), 0.98)
        low, high = (0, 1) if bound is None else (-bound, bound)
        values_UT = activations[name][: len(text), unit_U].T
        picture = panel.imshow(values_UT, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="none")
        figure.colorbar(picture, ax=panel, pad=0.01)
        panel.set_title(f"{name} gate" if name in GATES else "cell", loc="left", fontsize=10)
        panel.set_xticks(range(len(text)), [legible(c) for c in text], fontsize=7, family="monospace")
        panel.set(yticks=[], ylabel="units")
        panel.tick_params(length=0)
    return figure


def run(args):
    """Train or load the models, compute their gates on the text, print the table and draw the figure."""
    _study.check_sizes(args, "characters", "shown", "layer", "steps", "members")
    study = _study.Study("gates", args)
    if os.path.isdir(args.source):
        path = directory.find(args.source)
    else:
        flags.require("steps", args.steps % 50 == 0, args, "a multiple of 50")
        flags.require("layer", args.layer == 1, args, "1, or a run with more layers")
        common_flags = {"text": args.source, "steps": args.steps, "members": args.members}
        sweep_path, records = _study.train(study, "lstm", recipe="text", **one_text.MODELS["LSTM"], **common_flags)
        path = sweep_path / records[0]["folder"]
    settings = restore.load_settings(path)
    if settings.task != "text" or getattr(settings.model, "cell", None) != "lstm":
        raise UserError(f"{path} is not an LSTM of a text: train one with --architecture recurrent --cell lstm", USAGE)
    flags.require("layer", args.layer <= settings.model.n_layers, args, f"at most {settings.model.n_layers}")
    tokenizer = restore.load_rows(path).tokenizer
    text = args.text or corpus.split(corpus.read(settings.data.text), settings.data)[1]
    text, members = text[: args.characters], []
    if len(tokenizer.encode(text)) != len(text):
        raise UserError(f"{path} reads other tokens than characters: train one with --tokenizer characters", USAGE)
    for member in range(settings.training.members):
        params, _, _ = restore.load_params(path, settings, member)
        found = gates(params, tokenizer.encode(text), settings.model)
        members.append(means(found, text))
    study.finish(numbers(members), table(members), draw_figure(found[args.layer - 1], text[: args.shown]))


if __name__ == "__main__":
    sys.exit(flags.script("gates.py", Gates, run))
