"""Why divide by sqrt(d_k)? `python experiments/similarity.py` compares all similarities, and draws them.

    score(q, k) = q.k / sqrt(d_k)     for independent numbers of variance 1, q.k alone has variance d_k

Vaswani et al. 2017, section 3.2.1: "for large values of d_k, the dot products grow large in magnitude, pushing the
softmax function into regions where it has extremely small gradients". Two measurements:

- random queries and keys: the variance of the scores, the entropy of the softmax over `--keys` keys, and the gradient
  of u.softmax(scores), u of variance 1, with respect to the scores of a query and to the query itself
- small models (one block, one head as wide as the model) that learn to copy a row of random digits, trained with each
  similarity at several learning rates; the rate whose mean loss over all steps is least counts
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files, flags, loss, model, optimizer, train
from apformer.layers import config
from apformer.report import progress
from apformer.runs import directory
from apformer.tasks.batch import Batch

SIMILARITIES = {  # colour and line style
    "scaled_dot": ("#0072B2", "-"),
    "dot": ("#D55E00", "-"),
    "cosine": ("#009E73", "--"),
    "additive": ("#CC79A7", "-"),
}
DIGITS, LOG_EVERY = 10, 10


@dataclass(frozen=True)
class Similarity:
    """Compare similarities by the softmax of random scores, and by the losses of models that train with them."""

    widths: tuple[int, ...] = (4, 16, 64, 256)
    """d_k of the random queries and keys."""
    keys: int = 32
    """Number of keys that each query is compared with."""
    d_models: tuple[int, ...] = (16, 64, 256)
    """Widths of the models, and so of their one head."""
    row: int = 10
    """Number of random digits in a row, which the model then copies."""
    steps: int = 200
    """Optimizer steps."""
    batch_size: int = 32
    """Rows of a step."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    """Learning rates of AdamW. The one whose loss is least, averaged over steps and members, is shown."""
    members: int = 3
    """Seeds of each model."""
    figure: str | None = None
    """A PNG file for the figure. The default is similarity.png in the new directory runs/<UTC time>-similarity."""


@partial(jax.jit, static_argnames=("similarity", "width", "keys", "queries"))
def measure(key, similarity, width, keys, queries=1024):
    """Return {quantity: its value for each query} for random queries, each a head with new learned parameters."""
    q_key, k_key, u_key, v_key = jax.random.split(key, 4)
    q_HK, vector_HK = (jax.random.normal(key, (queries, width)) for key in (q_key, v_key))
    k_BSHK, u_HS = jax.random.normal(k_key, (1, keys, queries, width)), jax.random.normal(u_key, (queries, keys))
    params = {"gain": jnp.full(queries, width**0.5), "vector": vector_HK * width**-0.5}

    def scores(q_HK):
        score = config.load("similarity", similarity).score
        return score(lambda name, *_: params[name], q_HK[None, None], k_BSHK)[0, :, 0]

    def read(scores_HS):
        return (u_HS * jax.nn.softmax(scores_HS)).sum()

    scores_HS = scores(q_HK)
    by_score_HS, by_query_HK = jax.grad(read)(scores_HS), jax.grad(lambda q_HK: read(scores(q_HK)))(q_HK)
    return {
        "variance": scores_HS.var(1),
        "entropy": -(jax.nn.softmax(scores_HS) * jax.nn.log_softmax(scores_HS)).sum(1),
        "gradient of scores": jnp.linalg.norm(by_score_HS, axis=1),
        "gradient of query": jnp.linalg.norm(by_query_HK, axis=1),
    }


def sample(key, rows, length):
    """Return a Batch of rows of random digits, each written twice; only the second copy has weight."""
    digits_BT = jax.random.randint(key, (rows, length), 0, DIGITS, jnp.int32)
    weights_T = jnp.arange(2 * length) >= length
    return Batch(jnp.tile(digits_BT, (1, 2)), jnp.broadcast_to(weights_T, (rows, 2 * length)).astype(jnp.float32))


@partial(jax.jit, static_argnames=("cfg", "args"))
def fit(key, learning_rate, cfg, args):
    """Train a model from this key, and return the loss of every step."""
    init_key, run_key = jax.random.split(key)
    rule = optimizer.Config()
    make = optimizer.make(rule, args.steps)
    hyper = rule.hyper() | {"learning_rate": learning_rate}
    state = train.init_state(run_key, model.init(init_key, cfg), make, hyper)
    step = train.make_train_step(partial(loss.next_token_loss, cfg=cfg, apply=model.apply), make)
    draw = partial(sample, rows=args.batch_size, length=args.row)
    return train.scan_steps(step, draw, args.steps)(state)[1]["loss"]


def curve(similarity, d_model, args):
    """Return (learning rate of least loss, losses of each member at this rate, averaged over LOG_EVERY steps)."""
    cfg = model.Config(
        DIGITS,
        d_model,
        similarity=similarity,
        position="learned",
        max_len=2 * args.row,
        output_projection=True,
        final_norm=True,
    )
    keys, losses = jax.random.split(jax.random.key(0), args.members), {}
    for rate in args.learning_rates:
        member_losses = np.stack([fit(key, jnp.float32(rate), cfg, args) for key in keys])
        losses[rate] = member_losses.reshape(args.members, -1, LOG_EVERY).mean(-1)
    best = min(losses, key=lambda rate: np.nan_to_num(losses[rate], nan=np.inf).mean())
    return best, losses[best]


def table(measurements, curves):
    """Return both measurements as Markdown: for queries the median and, in brackets, the mean; for models each seed."""
    names = ("variance", "entropy", "gradient of scores", "gradient of query")
    lines = [f"| d_k | similarity | {' | '.join(names)} |", "|" + "---|" * (2 + len(names))]
    for (width, similarity), found in measurements.items():
        cells = [f"{np.median(found[name]):.3g} ({np.mean(found[name]):.3g})" for name in names]
        lines.append(f"| {width} | {similarity} | {' | '.join(cells)} |")
    lines += [
        "",
        "| d_model | similarity | learning rate | steps until 0.1 | loss at the end |",
        "|---|---|---|---|---|",
    ]
    for (d_model, similarity), (rate, losses) in curves.items():
        below = [np.flatnonzero(member < 0.1) for member in losses]
        steps = ", ".join(str((found[0] + 1) * LOG_EVERY) if len(found) else "never" for found in below)
        lines.append(
            f"| {d_model} | {similarity} | {rate:g} | {steps} | {', '.join(f'{x:.2g}' for x in losses[:, -1])} |"
        )
    return "\n".join(lines)


def draw(measurements, curves, args):
    """Draw the measurements of random queries above, and the losses of models below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = {
        "variance": "variance of a query's scores",
        "entropy": f"entropy of the softmax over {args.keys} keys (nats)",
        "gradient of scores": "gradient that reaches the scores",
    }
    upper, lower = figure.subplots(2, max(len(panels), len(args.d_models)))
    for axes, (name, title) in zip(upper, panels.items(), strict=False):
        for similarity, (colour, dash) in SIMILARITIES.items():
            quartiles = [np.quantile(measurements[width, similarity][name], (0.25, 0.5, 0.75)) for width in args.widths]
            low, median, high = np.transpose(quartiles)
            axes.fill_between(args.widths, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(args.widths, median, color=colour, marker="o", markersize=4, linestyle=dash, label=similarity)
        axes.set(title=title, xlabel="d_k (band: quartiles of queries)", xscale="log")
        axes.set_xticks(args.widths, map(str, args.widths))
        axes.minorticks_off()
        axes.set_yscale("linear" if name == "entropy" else "log")
    for axes, d_model in zip(lower, args.d_models, strict=False):
        for similarity, (colour, dash) in SIMILARITIES.items():
            rate, losses = curves[d_model, similarity]
            steps = LOG_EVERY * np.arange(1, losses.shape[1] + 1)
            axes.plot(steps, losses.T, color=colour, linewidth=0.7, alpha=0.6)
            label = f"{similarity}, rate {rate:g}"
            axes.plot(steps, np.median(losses, axis=0), color=colour, linewidth=2, linestyle=dash, label=label)
        axes.set(title=f"loss of a copied digit, d_model = d_k = {d_model}", xlabel="step (thick: median of seeds)")
        axes.set(ylim=(0, 3), ylabel="nats")
        axes.legend(frameon=False, fontsize=8)
    upper[0].legend(frameon=False, fontsize=8)
    for axes in (*upper, *lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        axes.title.set(fontsize=10)
    return figure


def figure_path(args):
    """Return the path of the figure, in a directory that can be written. Raises UserError: USAGE, or DISK."""
    if args.figure is None:
        path = directory.dated("similarity") / "similarity.png"
        directory.create("similarity", path.parent)
        return path
    path = Path(args.figure)
    flags.require("figure", path.suffix == ".png", args, "a name that ends in .png")
    files.preflight(path.parent, needs=0)
    return path


def run(args):
    """Measure, print the tables and draw the figure."""
    for flag in ("widths", "keys", "d_models", "row", "batch_size", "members"):
        flags.require(flag, min(np.atleast_1d(getattr(args, flag)), default=0) >= 1, args, "at least 1")
    flags.require("learning_rates", args.learning_rates, args, "at least one")
    flags.require("steps", args.steps >= LOG_EVERY and args.steps % LOG_EVERY == 0, args, f"a multiple of {LOG_EVERY}")
    figure = figure_path(args)
    measurements, curves = {}, {}
    for width in args.widths:
        for similarity in SIMILARITIES:
            measurements[width, similarity] = measure(jax.random.key(0), similarity, width, args.keys)
    models = [(d_model, similarity) for d_model in args.d_models for similarity in SIMILARITIES]
    for d_model, similarity in progress.bar(models, unit="model"):
        curves[d_model, similarity] = curve(similarity, d_model, args)
    print(table(measurements, curves))
    with files.disk_errors(figure):
        draw(measurements, curves, args).savefig(figure)
    print(f"\n{figure}")


if __name__ == "__main__":
    sys.exit(flags.script("similarity.py", Similarity, run))
