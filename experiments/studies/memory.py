"""Does an LSTM forget? `python experiments/studies/memory.py`: RNN, GRU, LSTM and attention of the same size.

    recall   d  x x x ... x  ask  ->  d               one digit, n + 1 tokens back
    copy     d1 d2 ... dn    ask  ->  d1 d2 ... dn    n digits, each of them n + 1 tokens back

A recurrent network has one state for all that it has read. Recall tests how long the state holds one digit, copy how
many digits it holds. Attention keeps every token, and looks it up. The digits in between are random, too, so that a
network has to choose what it writes into its state (Hochreiter and Schmidhuber 1997).

A recurrent network is trained from the shortest distance to the longest, each time from the parameters of the distance
before: a gate that has learned to stay open only has to stay open for longer. Attention learns where to look, which
differs at every distance, so it starts from new parameters. Training at a distance ends when all seeds reach
`--enough`, or after `--steps`. Once no seed reaches 1.5 times chance, there is no more training, and longer distances
are only measured.
"""

import sys
from dataclasses import dataclass
from functools import partial

import _study
import jax
import jax.numpy as jnp
import numpy as np

from apformer import flags, loss, model, optimizer, recurrent, train
from apformer.files import FilePath
from apformer.report import progress
from apformer.tasks.batch import Batch

DIGITS = ASK = 10  # ten digits, and the token after them
CHANCE = 1 / DIGITS
TEST_ROWS = 64  # rows for each seed and distance


@dataclass(frozen=True)
class Memory:
    """Train RNN, GRU, LSTM and attention to recall and to copy over growing distances."""

    distances: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    """Tokens between a digit and its copy, from the least to the most."""
    d_model: int = 32
    """Width of the LSTM and of attention. RNN and GRU are wider, for as many weights."""
    steps: int = 400
    """Most optimizer steps at a distance."""
    chunk: int = 25
    """Steps of a compiled loop. After each, training may end."""
    enough: float = 0.99
    """Share of right digits that ends training at a distance, once the worst seed reaches it."""
    batch_size: int = 16
    """Rows of a step."""
    learning_rate: float = 5e-3
    """Peak learning rate of AdamW."""
    members: int = 8
    """Seeds of each model, trained at once."""
    seed: int = 0
    """Random seed of the first member."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-memory."""


def copy(key, rows, n):
    """Draw rows of n random digits, ASK, and the digits again."""
    digits_BT = _digits(key, rows, n)
    return _batch(digits_BT, digits_BT)


def recall(key, rows, n):
    """Draw rows of n random digits, ASK, and the first digit again."""
    digits_BT = _digits(key, rows, n)
    return _batch(digits_BT, digits_BT[:, :1])


def _digits(key, rows, n):
    return jax.random.randint(key, (rows, n), 0, DIGITS, jnp.int32)


def _batch(prompt_BT, answer_BT):
    ask_BT = jnp.full((len(prompt_BT), 1), ASK, jnp.int32)
    tokens_BT = jnp.concatenate([prompt_BT, ask_BT, answer_BT], axis=1)
    counts_T = jnp.arange(tokens_BT.shape[1]) > prompt_BT.shape[1]
    return Batch(tokens_BT, jnp.broadcast_to(counts_T, tokens_BT.shape).astype(jnp.float32))


TASKS = {"recall": recall, "copy": copy}
MODELS = ("RNN", "GRU", "LSTM", "attention")


def architecture(name, args):
    """Return (module, Config) with 8 d_model^2 weights besides embedding and head."""
    d = args.d_model
    if name == "attention":  # queries, keys, values, output: 4 d^2; feed-forward of width 2 d: 4 d^2
        return model, model.Config(
            ASK + 1,
            d,
            d_ff=2 * d,
            scale_embedding=True,
            output_projection=True,
            final_norm=True,
        )
    width = {"RNN": 2 * d, "GRU": round(d * (8 / 6) ** 0.5), "LSTM": d}[name]
    return recurrent, recurrent.Config(ASK + 1, name.lower(), width)


def exact_share(logits_BTV, batch):
    """Return {"exact": share of the digits asked for that are right}."""
    right_BT = logits_BTV.argmax(-1) == batch.tokens_BT[:, 1:]
    weights_BT = batch.weights_BT[:, 1:]
    return {"exact": jnp.where(right_BT, weights_BT, 0.0).sum() / weights_BT.sum()}


def learn(name, task, args, tick):
    """Train at one distance after the other; return [{"steps": trained there, "exact": [of each seed, on fresh rows]}].

    tick(sentence) is called after every chunk of steps.
    """
    module, cfg = architecture(name, args)
    rule = optimizer.Config(learning_rate=args.learning_rate, warmup_steps=10)
    make = optimizer.make(rule, args.steps)
    loss_fn = partial(loss.next_token_loss, cfg=cfg, apply=module.apply, measure=exact_share)
    step = train.make_train_step(loss_fn, make)
    keys_M = jax.vmap(jax.random.key)(args.seed + jnp.arange(args.members))

    @jax.jit
    def begin(keys_M, params_M, place):
        keys_M = jax.vmap(jax.random.fold_in, (0, None))(keys_M, place)
        return jax.vmap(lambda key, params: train.init_state(key, params, make, rule.hyper()))(keys_M, params_M)

    fresh_M = jax.jit(jax.vmap(partial(module.init, cfg=cfg)))(keys_M)
    params_M, found, hopeless = fresh_M, [], False
    for place, n in enumerate(args.distances):
        draw = partial(TASKS[task], n=n)
        sample = partial(draw, rows=args.batch_size)
        run_chunk = jax.jit(train.over_members(train.scan_steps(step, sample, args.chunk), "vmap"))
        state, n_steps = begin(keys_M, fresh_M if name == "attention" else params_M, place), 0
        while not hopeless and n_steps < args.steps:
            state, metrics = run_chunk(state)
            n_steps += args.chunk
            least = float(np.mean(metrics["exact"], axis=1).min())
            tick(f"{task} {name}, distance {n}, step {n_steps}: worst seed {least:.0%}")
            if least >= args.enough:
                break
        params_M = state.params
        exact_M = jax.jit(jax.vmap(partial(measure, draw=draw, apply=module.apply, cfg=cfg)))(params_M)
        found.append({"steps": n_steps, "exact": exact_M.tolist()})
        hopeless = hopeless or float(exact_M.max()) < 1.5 * CHANCE
    return found


def measure(params, draw, apply, cfg):
    """Return the share of right digits in rows that are the same for every seed."""
    batch = draw(jax.random.key(2**31 - 1), TEST_ROWS)
    return exact_share(apply(params, batch.tokens_BT[:, :-1], cfg), batch)["exact"]


def table(found, args):
    """Return a row for each task and model: share of right digits, and steps trained, at each distance."""
    rows = [["task", "model", *(f"{n} back" for n in args.distances)]]
    for task in TASKS:
        for name in MODELS:
            cells = [f"{_study.spread(stage['exact'])}, {stage['steps']} steps" for stage in found[f"{task} {name}"]]
            rows.append([task, name, *cells])
    return rows


def numbers(found, args):
    """Return {name: number} for a record: medians, and the longest distance at which the median seed has 99 %."""
    figures = {}
    for key, stages in found.items():
        medians = {n: float(np.median(stage["exact"])) for n, stage in zip(args.distances, stages, strict=True)}
        name = key.replace(" ", "_").lower()
        figures |= {f"{name}_{n}": share for n, share in medians.items()}
        distances = [n for n, share in medians.items() if share >= 0.99]
        figures[f"{name}_holds"] = max(distances, default=0)
    return figures


def draw_figure(found, args):
    """Draw both tasks side by side: the median seed of each model, in a band from least to greatest."""
    figure, panels = _study.canvas(2)
    titles = {"recall": "recall: one digit, n random digits later", "copy": "copy: n digits, each n + 1 tokens later"}
    for panel, task in zip(panels, TASKS, strict=True):
        for name, colour in zip(MODELS, _study.COLOURS[:3] + _study.COLOURS[-1:], strict=True):
            exact_NM = 100 * np.array([stage["exact"] for stage in found[f"{task} {name}"]])
            panel.fill_between(args.distances, exact_NM.min(1), exact_NM.max(1), color=colour, alpha=0.2, linewidth=0)
            panel.plot(args.distances, np.median(exact_NM, axis=1), color=colour, marker="o", markersize=4, label=name)
        panel.axhline(100 * CHANCE, color="#555555", linestyle="--", linewidth=0.8, label="chance")
        panel.set(title=titles[task], xlabel="n (band: least to greatest seed)", ylim=(-3, 103))
        _study.set_length_axis(panel, args.distances)
    panels[0].set(ylabel="digits right (%)")
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "distances", "d_model", "steps", "chunk", "batch_size", "members")
    flags.require("distances", list(args.distances) == sorted({*args.distances}), args, "each once, the least first")
    flags.require("chunk", args.steps % args.chunk == 0, args, f"a divisor of --steps {args.steps}")
    study = _study.Study("memory", args)
    missing = [(task, name) for task in TASKS for name in MODELS if f"{task} {name}" not in study.found]
    most = len(args.distances) * -(-args.steps // args.chunk)
    for task, name in missing:
        with progress.bar(total=most, desc=f"{task} {name}", unit="chunk") as bar:

            def tick(sentence, bar=bar):
                bar.update()
                bar.set_postfix_str(sentence.rpartition(", ")[2])

            study.save(f"{task} {name}", learn(name, task, args, tick))
    study.finish(numbers(study.found, args), table(study.found, args), draw_figure(study.found, args))


if __name__ == "__main__":
    sys.exit(flags.script("memory.py", Memory, run))
