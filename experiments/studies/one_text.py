"""RNN, GRU, LSTM or attention? `python experiments/studies/one_text.py FILE` trains all four on one text.

All have about the same number of weights, and see the same number of characters. We measure the bits per character of
the validation part, the time of training, the memory of a training step, and the memory of the cache while a model
writes. A recurrent network keeps one state, however long the text is; attention keeps keys and values of every
character.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial

import _study
import jax
import numpy as np
from tyro.conf import Positional

from apformer import flags, tasks
from apformer import train as training
from apformer.files import FilePath
from apformer.runs.fit import abstract_state
from apformer.runs.restore import load_rows, load_settings
from apformer.settings import architecture_of

MODELS = {  # width and depth that give nearly the same number of weights
    "RNN": {"architecture": "recurrent", "cell": "rnn", "d_model": 420, "n_layers": 1},
    "GRU": {"architecture": "recurrent", "cell": "gru", "d_model": 250, "n_layers": 1},
    "LSTM": {"architecture": "recurrent", "cell": "lstm", "d_model": 218, "n_layers": 1},
    "attention": {"architecture": "model", "d_model": 128, "n_layers": 2},
}
COLOURS = dict(zip(MODELS, _study.COLOURS[1:], strict=True))
LONG = 1024  # characters in the cache that is measured


@dataclass(frozen=True)
class OneText:
    """Train RNN, GRU, LSTM and attention on one text, and compare bits per character, time and memory."""

    text: Positional[FilePath]
    """Text file in UTF-8."""
    context: int = 64
    """Characters of a row."""
    steps: int = 800
    """Optimizer steps of each model; a multiple of 50."""
    batch_size: int = 12
    """Rows of a step."""
    members: int = 4
    """Seeds of each model."""
    seed: int = 0
    """Random seed of the first member."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-one_text."""


def memory(settings, rows):
    """Return the bytes of a training step beside its state ("step"), and of the cache of LONG characters ("kept")."""
    task, one = tasks.load(settings.task), replace(settings, training=replace(settings.training, members=1))
    step = training.make_train_step(task.make_loss(one), task.make_optimizer(one))
    batch = jax.eval_shape(lambda key: task.sample(key, one, task.train_rows(rows)), jax.random.key(0))
    compiled = jax.jit(step).lower(abstract_state(one), batch).compile()
    cache = jax.eval_shape(partial(architecture_of(one).init_cache, one.model, 1, LONG))
    return {
        "step": compiled.memory_analysis().temp_size_in_bytes,
        "kept": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache["layers"])),
    }


def learn(study, name, args):
    """Train a model; return bits per character of each seed, seconds of training of one, weights, and bytes."""
    common_flags = {flag: getattr(args, flag) for flag in ("text", "context", "steps", "batch_size", "members", "seed")}
    path, members = _study.train(study, name, recipe="text", tokenizer="characters", **MODELS[name], **common_flags)
    run = path / members[0]["folder"]
    losses = [record["validation"]["loss"] for record in members if not record["failed"]]
    facts = {"weights": members[0]["parameters"], "seconds": members[0]["seconds"]}
    return facts | {"bits": [loss / np.log(2) for loss in losses]} | memory(load_settings(run), load_rows(run))


def table(found):
    """Return a row for each model."""
    head = ["model", "weights", "bits per character", "seconds of training", "MB of a training step"]
    rows = [[*head, f"kB kept of {LONG:,} characters"]]
    for name, result in found.items():
        costs = f"{result['seconds']:.0f}", f"{result['step'] / 1e6:.1f}", f"{result['kept'] / 1e3:.1f}"
        rows.append([name, f"{result['weights']:,}", _study.middle(result["bits"]), *costs])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    figures = {}
    for name, result in found.items():
        figures |= {f"{name.lower()}_{key}": result[key] for key in ("weights", "seconds", "step", "kept")}
        if result["bits"]:
            ends = {
                "least": min(result["bits"]),
                "bits": float(np.median(result["bits"])),
                "greatest": max(result["bits"]),
            }
            figures |= {f"{name.lower()}_{key}": value for key, value in ends.items()}
    return figures


def draw_figure(found):
    """Draw bits per character, time and memory."""
    figure, panels = _study.canvas(2, rows=2, height=2.6)
    titles = {
        "bits": "bits per character of unseen text (line: least to greatest seed)",
        "seconds": "seconds of training",
        "step": "MB of a training step",
        "kept": f"kB kept of {LONG:,} characters",
    }
    scales = {"step": 1e6, "kept": 1e3}
    for panel, (key, title) in zip(panels, titles.items(), strict=True):
        values = [np.atleast_1d(result[key]) / scales.get(key, 1) for result in found.values()]
        _study.bars(panel, list(found), [list(value) for value in values], [COLOURS[name] for name in found])
        panel.set_title(title, loc="left", fontsize=10)
        if key == "kept":
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "context", "steps", "batch_size", "members")
    flags.require("steps", args.steps % 50 == 0, args, "a multiple of 50")
    study = _study.Study("one_text", args)
    for name in MODELS:
        if name not in study.found:
            study.save(name, learn(study, name, args))
    study.finish(numbers(study.found), table(study.found), draw_figure(study.found))


if __name__ == "__main__":
    sys.exit(flags.script("one_text.py", OneText, run))
