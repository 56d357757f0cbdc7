"""What vectors of words are worth: which words are near which, and what a word of the validation part costs."""

import difflib

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files, word2vec
from apformer.analysis import pca
from apformer.errors import USAGE, UserError
from apformer.report import figures
from apformer.tasks import Evaluation
from apformer.tasks.words import corpus, training


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


def neighbours(params, path, given, count):
    """A table of the words nearest to others, for the run at `path`; without `given`, to words of doubling rank.

    Raises UserError (exit USAGE) that names a word which the vocabulary lacks.
    """
    lines = files.read_text(path / corpus.FILE).splitlines()
    vocabulary = [line.split("\t")[0] for line in lines]
    given = [word.lower() for word in given]
    for word in given:
        if word not in vocabulary:
            known = f"{word} is none of the {len(vocabulary):,} words of {path}"
            raise UserError(f"{known}: ask for a word such as {similar(word, vocabulary)}", USAGE)
    return table(nearest(params, vocabulary, given or _of_doubling_rank(vocabulary), count))


def asked(settings, vocabulary):
    """The words of --words, or else those of doubling rank; of progressions, all.

    Raises UserError (exit USAGE) that names a word which the vocabulary lacks.
    """
    cfg, options = settings.data, settings.options
    if options.words is None:
        return vocabulary if cfg.text is None else _of_doubling_rank(vocabulary)
    given = [word.strip().lower() for word in options.words.split(",")]
    for word in given:
        if word not in vocabulary:
            known = f"none of the {len(vocabulary):,} words that occur {cfg.min_count} times or more"
            remedy = f"lower --min_count, or ask for a word such as {similar(word, vocabulary)}"
            raise UserError(f"--words {word} is {known}: {remedy}", USAGE)
    return given


def similar(word, vocabulary):
    """A word of similar spelling, or else one in the middle: the most frequent words say little."""
    return [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]


def nearest(params, vocabulary, given, count):
    """{word: [(neighbour, cosine), ...]}, the nearest first."""
    rows = jnp.asarray([vocabulary.index(word) for word in given], jnp.int32)
    nearest_BK, cosine_BK = map(np.asarray, word2vec.nearest(params, rows, min(count, len(vocabulary) - 1)))
    pairs = (zip(*row, strict=True) for row in zip(nearest_BK.tolist(), cosine_BK.tolist(), strict=True))
    return {word: [(vocabulary[v], cosine) for v, cosine in row] for word, row in zip(given, pairs, strict=True)}


def table(near):
    """A line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    lines = (f"{word:{width}}  {', '.join(f'{v} {c:.2f}' for v, c in row)}" for word, row in near.items())
    return "\n".join(lines)


def _of_doubling_rank(vocabulary):
    return [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
