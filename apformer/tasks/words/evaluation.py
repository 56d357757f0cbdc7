"""Evaluation of word vectors: nearest words, and the loss on the validation part.

The page shows the nearest words, and their vectors in the plane in which they vary most. It cannot run the model.
"""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apformer import word2vec
from apformer.analysis import pca
from apformer.decoding.bind import Model
from apformer.report import figures, sections
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress
from apformer.tasks.words import training
from apformer.tasks.words.corpus import Rows
from apformer.tasks.words.nearest import cells, listed_words, nearest, table


def evaluate(model: Model, settings: Settings, rows: Rows, progress: Progress) -> Evaluation:
    """Return the neighbours of the listed words, a plane of all of these words, and the validation loss."""
    batch = training.validation(settings, rows)
    loss, _ = jax.jit(training.make_loss(settings))(model.params, batch, None)
    near = nearest(model.params, rows.vocabulary, listed_words(settings, rows.vocabulary), settings.options.neighbours)
    words = list(dict.fromkeys([*near, *(word for row in near.values() for word, _ in row)]))
    unit_VD = np.asarray(word2vec.unit(model.params["input"]))
    place_V2, shares = pca.project(unit_VD[[rows.vocabulary.index(word) for word in words]])
    result = {
        "nats": float(loss),
        "neighbours": near,
        "plane": {"words": words, "points": place_V2.round(6).tolist(), "shares": shares.tolist()},
    }
    picture = figures.words(words, place_V2, shares, len(near) if len(near) < len(words) else 0)
    cost = f"validation part: {result['nats']:.4f} nats for each word that is predicted"
    return Evaluation(result, f"{table(near)}\n\n{cost}", {"words": picture})


def page(settings: Settings, rows: Rows, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return the content of the page, see `report.sections`, with the words of the evaluation alone."""
    cfg = settings.data
    source = "progressions" if cfg.text is None else os.path.basename(os.path.abspath(cfg.text))
    shown = {
        "vocabulary": [],
        "task": sections.task(f"gives each word of {source} a vector", sections.text("Type a word.")),
        "facts": [],
        "right": {
            "title": "Nearest words",
            "lead": "For each word, those whose vectors have the highest cosine similarity with its own.",
            "blocks": None,
        },
        "wrong": None,
    }
    if not evaluation:
        return shown
    plane, head = evaluation["plane"], ["word", "nearest, with their cosines"]
    shown["right"]["blocks"] = [sections.table("Nearest words", head, cells(evaluation["neighbours"]))]
    facts = [["validation", f"{evaluation['nats']:.4f}", "nats for each word"]]
    return shown | {"vocabulary": plane["words"], "facts": facts, "embedding": plane}
