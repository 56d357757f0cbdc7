"""Vectors of words: `python experiments/word2vec.py FILE --architecture skip_gram --loss negative --words king,love`.

Without a file, of the eleven characters of generated progressions: where do the ten digits lie?

    runs/<UTC time>-word2vec/
        word2vec.json    the flags, the versions and what the text holds
        loss.jsonl       the loss, in nats for each word that is predicted
        vectors.npz      words, counts, and their vectors: input, output
        neighbours.txt   what is printed at the end
        vectors.png      the words of that table, in the plane of their first two principal components
"""

import difflib
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Positional

from apformer import files, flags, optimizer, train, word2vec
from apformer.errors import DATA, NON_FINITE, USAGE, UserError
from apformer.report import figures, progress
from apformer.runs import directory, provenance, recipes
from apformer.tasks.progressions import generator
from apformer.tasks.text import corpus as text
from apformer.tokenizers import words

LOG_EVERY = 100


@dataclass(frozen=True)
class Word2vec:
    """Learn vectors of the words of a text, and say which are near which."""

    file: Positional[str | None] = None
    """A UTF-8 text file. Blank lines separate its passages. Without a file: progressions, character by character."""
    architecture: Literal["cbow", "skip_gram"] = "skip_gram"
    """The centre of a window from its context, or the context from the centre."""
    loss: Literal["softmax", "negative"] = "negative"
    """Over all words, or against a few that are drawn."""
    negatives: int = 5
    """Words drawn against each word that is predicted (negative)."""
    d_model: int = 100
    """Width of a vector."""
    window: int = 10
    """Most words to either side of the centre; for each window as many as are drawn from 1 up to this."""
    min_count: int = 10
    """Words that occur less often are dropped."""
    subsample: float | None = None
    """Words more frequent than this share of the text are thinned out; 3e-4 for a file, 1 (none) for progressions."""
    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 512
    """Windows a step."""
    learning_rate: float = 5e-3
    """The peak, of AdamW."""
    seed: int = 0
    """Of the vectors, the windows and the negatives."""
    words: str | None = None
    """Words whose neighbours are printed, separated by commas; if not given, those of ranks 1, 2, 4, 8 ..."""
    neighbours: int = 8
    """How many of them."""
    digits: int = 3
    """Digits of a term, without a file."""
    run_dir: str | None = None
    """A new directory; runs/<UTC time>-word2vec if not given."""


def check(args):
    """Raises UserError (exit USAGE) that names the first flag out of range."""
    for flag in ("negatives", "d_model", "window", "min_count", "steps", "batch_size", "neighbours"):
        flags.require(flag, 1 <= getattr(args, flag) < 2**31, args, "1 to 2147483647")
    flags.require("d_model", args.d_model >= 2, args, "at least 2, for the picture")
    flags.require("subsample", args.subsample is None or 0 < args.subsample <= 1, args, "more than 0 and at most 1")
    flags.require("learning_rate", 0 < args.learning_rate < 10, args, "more than 0 and less than 10")
    flags.require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")


def read(args):
    """(vocabulary, counts_V, corpus) of the file, or of generated progressions.

    Raises UserError (exit DATA) if the file cannot be read, or fewer than three words or no two of a passage are left.
    """
    if args.file is None:
        cfg = recipes.exact(args.digits).data
        generator.check(cfg)
        rows = generator.draw(jax.random.key(args.seed), cfg, cfg.sequences)
        rows = zip(*(np.asarray(column).tolist() for column in rows), strict=True)
        passages = [generator.render(*row, args.digits).replace(" ", "␣") for row in rows]
    else:
        passages = words.split(text.read(args.file))
    vocabulary, counts_V = words.count(passages, args.min_count)
    corpus = words.encode(passages, vocabulary)
    if len(vocabulary) < 3 or not (corpus.passage_T[1:] == corpus.passage_T[:-1]).any():
        found = f"{args.file or 'this'} has {len(vocabulary)} words that occur {args.min_count} times or more"
        raise UserError(f"{found}, too few to have neighbours: give a longer text, or lower --min_count", DATA)
    return vocabulary, counts_V, corpus


def asked(args, vocabulary):
    """The words whose neighbours are asked for. Raises UserError (exit USAGE) that names one that there is not."""
    if args.words is None:
        return vocabulary if args.file is None else [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
    given = [word.strip().lower() for word in args.words.split(",")]
    for word in given:
        if word not in vocabulary:
            # A word spelled much the same, or else one in the middle: the most frequent words say little.
            near = [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]
            known = f"none of the {len(vocabulary):,} words that occur {args.min_count} times or more"
            raise UserError(f"--words {word} is {known}: lower --min_count, or ask for a word such as {near}", USAGE)
    return given


@partial(jax.jit, static_argnames=("cfg", "args", "steps"), donate_argnames="state")
def run_steps(state, corpus, counts_V, kept_share_V, cfg, args, steps):
    """(state, metrics of each step) after this many steps, on windows of a corpus thinned out anew."""
    rule = optimizer.make(optimizer.Config(learning_rate=args.learning_rate), args.steps)
    noise_V = word2vec.noise(counts_V)
    # Apart from the keys of the step itself, which are split from the same.
    thin_key = jax.random.fold_in(jax.random.fold_in(state.key, state.step), LOG_EVERY)
    thinned = words.subsample(thin_key, corpus, kept_share_V)
    step = train.make_train_step(lambda params, windows, key: word2vec.loss(params, windows, key, cfg, noise_V), rule)
    return train.scan_steps(step, lambda key: words.sample(key, thinned, args.batch_size, args.window), steps)(state)


def fit(args, corpus, counts_V, report=lambda step, loss: None):
    """The parameters after the last step; report(step, loss) is called every LOG_EVERY steps.

    Raises UserError (exit NON_FINITE) as soon as the loss is not finite.
    """
    cfg = word2vec.Config(len(counts_V), args.d_model, args.architecture, args.loss, args.negatives)
    threshold = args.subsample or (3e-4 if args.file else 1.0)
    kept_share_V = jnp.asarray(words.kept_share(counts_V, threshold))
    counts_V = jnp.asarray(counts_V, jnp.float32)
    params_key, run_key = jax.random.split(jax.random.key(args.seed))
    rule = optimizer.Config(learning_rate=args.learning_rate)
    params = word2vec.init(params_key, cfg)
    state, step = train.init_state(run_key, params, optimizer.make(rule, args.steps), rule.hyper()), 0
    while step < args.steps:
        steps = min(LOG_EVERY, args.steps - step)
        state, metrics = run_steps(state, corpus, counts_V, kept_share_V, cfg, args, steps)
        step += steps
        loss = float(metrics["loss"].mean())
        if not np.isfinite(loss):
            raise UserError(f"the loss is not finite at step {step}: lower --learning_rate", NON_FINITE)
        report(step, loss)
    return state.params


def learn(args, path, corpus, counts_V):
    """The parameters, learned behind a progress bar and with a line of loss.jsonl every LOG_EVERY steps."""
    begun = time.perf_counter()
    with progress.bar(total=args.steps, unit="step") as bar:

        def report(step, loss):
            seconds = round(time.perf_counter() - begun, 3)
            files.append_record(path / "loss.jsonl", {"step": step, "loss": loss, "seconds": seconds})
            bar.update(step - bar.n)
            bar.set_postfix(loss=f"{loss:.4f}")

        return fit(args, corpus, counts_V, report)


def neighbours(params, vocabulary, given, k):
    """{word: [(neighbour, cosine), ...]}, the nearest first."""
    rows = jnp.asarray([vocabulary.index(word) for word in given], jnp.int32)
    nearest_BK, cosine_BK = map(np.asarray, word2vec.nearest(params, rows, min(k, len(vocabulary) - 1)))
    pairs = (zip(*row, strict=True) for row in zip(nearest_BK.tolist(), cosine_BK.tolist(), strict=True))
    return {word: [(vocabulary[v], cosine) for v, cosine in row] for word, row in zip(given, pairs, strict=True)}


def table(near):
    """A line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    lines = (f"{word:{width}}  {', '.join(f'{v} {c:.2f}' for v, c in row)}" for word, row in near.items())
    return "\n".join(lines)


def draw(params, vocabulary, near):
    """The figure of the words of a table, those asked for in a colour of their own."""
    drawn = list(dict.fromkeys([*near, *(word for row in near.values() for word, _ in row)]))
    rows = jnp.asarray([vocabulary.index(word) for word in drawn], jnp.int32)
    place_V2, shares = word2vec.plane(word2vec.unit(params["input"])[rows])
    return figures.words(drawn, np.asarray(place_V2), np.asarray(shares), len(near) if len(near) < len(drawn) else 0)


def run(args):
    """Learn, and keep and print what was learned."""
    check(args)
    vocabulary, counts_V, corpus = read(args)
    words_asked = asked(args, vocabulary)
    path = Path(args.run_dir or directory.dated("word2vec"))
    directory.create("word2vec", path)
    text = {"words": int(corpus.length), "vocabulary": len(vocabulary)}
    files.write_json(path / "word2vec.json", {"flags": asdict(args), "versions": provenance.versions(), "text": text})
    print(f"{path}: {text['words']:,} words, {text['vocabulary']:,} different ones", file=sys.stderr)
    params = learn(args, path, corpus, counts_V)
    near = neighbours(params, vocabulary, words_asked, args.neighbours)
    with files.disk_errors(path):
        np.savez(path / "vectors.npz", words=np.array(vocabulary), counts=counts_V, **params)
        draw(params, vocabulary, near).savefig(path / "vectors.png")
    files.write_text(path / "neighbours.txt", table(near) + "\n")
    print(f"{table(near)}\n\n{path / 'vectors.npz'}\n{path / 'vectors.png'}")


def main():
    """Run; the exit code of the process."""
    return flags.script("word2vec.py", Word2vec, run)


if __name__ == "__main__":
    sys.exit(main())
