"""What vectors of words are worth: which words are near which, and what a word of the validation part costs."""

import jax
import numpy as np

from apformer import word2vec
from apformer.analysis import pca
from apformer.report import figures
from apformer.tasks import Evaluation
from apformer.tasks.words import training
from apformer.tasks.words.nearest import asked, nearest, table


def evaluate(model, settings, rows, progress):
    """The neighbours of the words that are asked for, all of these in a plane, and the validation loss."""
    batch = training.validation(settings, rows)
    loss, _ = jax.jit(training.make_loss(settings))(model.params, batch, None)
    given = asked(settings, rows.vocabulary)
    near = nearest(model.params, rows.vocabulary, given, settings.options.neighbours)
    drawn = list(dict.fromkeys([*near, *(word for row in near.values() for word, _ in row)]))
    unit_VD = np.asarray(word2vec.unit(model.params["input"]))
    place_V2, shares = pca.project(unit_VD[[rows.vocabulary.index(word) for word in drawn]])
    result = {
        "nats": float(loss),
        "neighbours": near,
        "plane": {"words": drawn, "points": place_V2.round(6).tolist(), "shares": shares.tolist()},
    }
    picture = figures.words(drawn, place_V2, shares, len(near) if len(near) < len(drawn) else 0)
    text = table(near) + "\n"
    cost = f"validation part: {result['nats']:.4f} nats for each word that is predicted"
    return Evaluation(result, f"{text}\n{cost}", {"words": picture}, {"neighbours.txt": text})
