"""Evaluation of word vectors: which words are near which, and what a word of the validation part costs."""

import jax
import numpy as np

from apformer import word2vec
from apformer.analysis import pca
from apformer.decoding.bind import Model
from apformer.report import figures
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress
from apformer.tasks.words import training
from apformer.tasks.words.corpus import Rows
from apformer.tasks.words.nearest import nearest, shown, table


def evaluate(model: Model, settings: Settings, rows: Rows, progress: Progress) -> Evaluation:
    """Return the neighbours of the words that are shown, all of these in a plane, and the validation loss."""
    batch = training.validation(settings, rows)
    loss, _ = jax.jit(training.make_loss(settings))(model.params, batch, None)
    near = nearest(model.params, rows.vocabulary, shown(settings, rows.vocabulary), settings.options.neighbours)
    words = list(dict.fromkeys([*near, *(word for row in near.values() for word, _ in row)]))
    unit_VD = np.asarray(word2vec.unit(model.params["input"]))
    place_V2, shares = pca.project(unit_VD[[rows.vocabulary.index(word) for word in words]])
    result = {
        "nats": float(loss),
        "neighbours": near,
        "plane": {"words": words, "points": place_V2.round(6).tolist(), "shares": shares.tolist()},
    }
    picture = figures.words(words, place_V2, shares, len(near) if len(near) < len(words) else 0)
    text = table(near) + "\n"
    cost = f"validation part: {result['nats']:.4f} nats for each word that is predicted"
    return Evaluation(result, f"{text}\n{cost}", {"words": picture}, {"neighbours.txt": text})
