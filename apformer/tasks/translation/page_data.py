"""What is asked of a translator for its page: a few held-out pairs, and what it made of the test sentences.

tokens      end  y_1 .. y_T-1  end       the model reads all but the last, and is to say all but the first
"""

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss
from apformer.analysis import ablate
from apformer.errors import DATA, UserError
from apformer.tasks.translation import batches, training

ROWS, WORK = (
    48,
    1.5e9,
)  # of held-out pairs: at most, and multiplications that the page is to do for them, in a second or so
EXAMPLES, SHORT, FIRST = 6, 100, 8  # sources that the page offers, characters of the longest, words of the first, about
TRANSLATIONS, NEAR = 80, 30_000  # translations on the page, and training sources among which the nearest is sought


def of_model(settings, rows, params):
    """What a page holds of its model: {"probe": pairs, "ablation": ..., "examples": sources, "references": ...}."""
    cfg, lines = settings.model, zip(*rows["lines"]["validation"][:2], strict=True)
    pairs = _few([pair for part in rows["validation"] for pair in _pairs(part)], params)
    shown = _spread([line for line in lines if 0 < len(line[0]) <= SHORT], EXAMPLES)
    shown.sort(key=lambda line: abs(len(line[0].split()) - FIRST))
    return {
        "probe": {
            "sources": [source for source, _ in pairs],
            "tokens": [[cfg.target_vocab_size - 1, *target] for _, target in pairs],
            "weights": [[0.0, *([1.0] * len(target))] for _, target in pairs],
            "terms": [[-1, *range(len(target))] for _, target in pairs],  # each token counts for itself
        },
        "ablation": ablate.drops(params, _measure(cfg, pairs)),
        "examples": [source for source, _ in shown],
        "references": [target for _, target in shown],
    }


def _pairs(part):
    """The (source, target) of a Padded, without what pads them."""
    sides = ((part.source_NS, part.source_lengths_N), (part.target_NT, part.target_lengths_N))
    sides = [[row[:length].tolist() for row, length in zip(*side, strict=True)] for side in sides]
    return list(zip(*sides, strict=True))


def _few(pairs, params):
    """Some of them, spread over all: as many as the page can soon ask again."""
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    tokens = np.mean([len(source) + len(target) for source, target in pairs])
    return _spread(pairs, int(np.clip(WORK / (parameters * tokens), 8, ROWS)))


def _measure(cfg, pairs):
    """A function from parameters to {"loss", "exact"}: nats of a target token, and the share that is the likeliest."""
    sides = [[np.array(side, np.int32) for side in sides] for sides in zip(*pairs, strict=True)]
    (part,) = batches.pad(sides, (int(batches.longest_of(sides).max()),))
    part = jax.tree.map(jnp.asarray, part)

    def measure(params):
        with jax.default_matmul_precision("highest"):
            logits_BTV, weights_BT = training.predict(params, part, cfg)
        right_BT = (logits_BTV.argmax(-1) == part.target_NT).astype(jnp.float32)
        nats_BT = loss.token_nats(logits_BTV, part.target_NT)
        return {
            name: (x_BT * weights_BT).sum() / weights_BT.sum()
            for name, x_BT in (("loss", nats_BT), ("exact", right_BT))
        }

    return measure


def translations(path, rows):
    """Some lines of translations.tsv, mostly wrong ones, each with the training source nearest to its own.

    [{"source", "reference", "translation", "nearest": {"source", "target", "shared"} or None}], where shared is what
    share of their words both have; nothing is nearest if rows is None. Raises UserError (exit DATA) where the file is
    missing or damaged.
    """
    try:
        head, *lines = (line.split("\t") for line in (path / "translations.tsv").read_text("utf-8").splitlines())
        found = [dict(zip(head, line, strict=True)) for line in lines]
        exact = [line["translation"] == line["reference"] for line in found]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path / 'translations.tsv'} cannot be read ({error}): run `apformer evaluate` again", DATA
        ) from None
    right, wrong = (np.flatnonzero(np.array(exact, bool) == kind) for kind in (True, False))
    wrong = _spread(wrong, max(TRANSLATIONS - len(right), TRANSLATIONS * 3 // 4))
    kept = [found[n] for n in sorted([*_spread(right, TRANSLATIONS - len(wrong)), *wrong])]
    if rows is None:
        return kept
    near = _nearest([line["source"] for line in kept], rows["lines"]["train"])
    return [line | {"nearest": each} for line, each in zip(kept, near, strict=True)]


def _spread(items, count):
    return [items[n] for n in np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)]


def _nearest(sources, train):
    """Of each source the training pair whose source shares most words with it, None where none shares one."""
    numbers = _spread(range(len(train.sources)), NEAR)
    words_N = [frozenset(train.sources[n].lower().split()) for n in numbers]

    def nearest(source):
        asked = frozenset(source.lower().split())
        shared_N = [len(words & asked) / max(len(words | asked), 1) for words in words_N]
        best = int(np.argmax(shared_N))
        pair = {"source": train.sources[numbers[best]], "target": train.targets[numbers[best]]}
        return pair | {"shared": shared_N[best]} if shared_N[best] else None

    return [nearest(source) for source in sources]
