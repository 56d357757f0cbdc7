"""What does attention gain by being parallel? `python experiments/studies/parallel.py`: times against length.

    recurrent   h_t = cell(x_t, h_{t-1})        n steps, one after the other; a new token costs the same at any length
    attention   softmax(Q K^T) V                all tokens at once; n^2 scores, and a new token reads n keys

Vaswani et al. 2017, table 1: sequential operations O(n) against O(1), work per layer O(n d^2) against O(n^2 d). Where
the two cross depends on the machine: the more it can do at once, the longer the rows for which attention is faster.

All models have 24 d_model^2 weights in their layers: two blocks of attention, three layers of an LSTM, four of a GRU.
We time a training step (loss, gradient, AdamW) of `--batch_size` rows, and one new token of one row after about n
others. The models take turns, and the least time of each counts. On a busy machine, wall-clock time includes other
programs. Processor time, in brackets in the table, does not, but it hides what runs in parallel.
"""

import itertools
import sys
import time
from dataclasses import dataclass
from functools import partial

import _study
import jax
import jax.numpy as jnp
import numpy as np

from apformer import flags, loss, model, optimizer, recurrent, train
from apformer.decoding import generate
from apformer.files import FilePath
from apformer.report import progress
from apformer.tasks.batch import Batch

VOCABULARY = 65
MODELS = {"LSTM": _study.COLOURS[2], "GRU": _study.COLOURS[1], "attention": _study.COLOURS[-1]}
WORK = {"train": "a training step", "generate": "a new token"}


@dataclass(frozen=True)
class Parallel:
    """Time a training step and the generation of a token, for rows of growing length."""

    lengths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    """Tokens of a row, from the least to the most."""
    d_model: int = 128
    """Width of all models; a multiple of 4."""
    batch_size: int = 8
    """Rows of a training step."""
    tokens: int = 16
    """New tokens of a measurement of generation; the time is that of one."""
    turns: int = 15
    """Measurements of each model and length, of which the least counts."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-parallel."""


def architecture(name, d, longest):
    """Return (module, Config) with 24 d^2 weights in its layers."""
    if name == "attention":
        cfg = model.Config(VOCABULARY, d, 4, 2, max_len=longest, output_projection=True, final_norm=True)
        return model, cfg
    return recurrent, recurrent.Config(VOCABULARY, name.lower(), d, n_layers={"LSTM": 3, "GRU": 4}[name])


def work(name, n, args):
    """Return {kind of work: function that does it once, and waits for its end}, compiled and run once."""
    module, cfg = architecture(name, args.d_model, max(args.lengths) + args.tokens)
    params = jax.jit(partial(module.init, cfg=cfg))(jax.random.key(0))
    tokens_BT = jax.random.randint(jax.random.key(1), (args.batch_size, n + 1), 0, VOCABULARY, jnp.int32)
    rule = optimizer.Config()
    make = optimizer.make(rule, 1000)
    loss_fn = partial(loss.next_token_loss, cfg=cfg, apply=module.apply)
    step = jax.jit(train.make_train_step(loss_fn, make))
    state = jax.jit(lambda key: train.init_state(key, params, make, rule.hyper()))(jax.random.key(2))
    batch = Batch(tokens_BT, jnp.ones(tokens_BT.shape))

    bound, layer_params = partial(module.extend, cfg=cfg), jax.jit(module.unstack)(params)
    prompt_BT, lengths_B = tokens_BT[:1, : n - args.tokens], jnp.full(1, n - args.tokens, jnp.int32)

    def extend(layer_params, tokens_BT, cache, lengths_B=None):
        return bound(layer_params, tokens_BT, cache, lengths_B=lengths_B)

    @jax.jit
    def begin(layer_params):
        cache = module.init_cache(cfg, 1, n)
        return generate.begin(partial(extend, layer_params), cache, prompt_BT, lengths_B)

    @jax.jit
    def proceed(layer_params, generation):
        return generate.proceed(partial(extend, layer_params), generation, 1, args.tokens)[1]

    generation = begin(layer_params)
    calls = {
        "train": lambda: jax.block_until_ready(step(state, batch)),
        "generate": lambda: jax.block_until_ready(proceed(layer_params, generation)),
    }
    for call in calls.values():
        call()
    return calls


def time_call(call):
    """Call a function; return its seconds of wall-clock time and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(n, args, tick):
    """Return {kind of work: {model: [least wall-clock seconds, least processor seconds]}} for rows of n tokens."""
    calls = {}
    for name in MODELS:
        calls[name] = work(name, n, args)
        tick(f"{name}, {n} tokens, compiled")
    least = {kind: {name: np.full(2, np.inf) for name in MODELS} for kind in WORK}
    share = {"train": 1, "generate": args.tokens}
    for _, kind, name in itertools.product(range(args.turns), WORK, MODELS):
        least[kind][name] = np.minimum(least[kind][name], np.divide(time_call(calls[name][kind]), share[kind]))
    tick(f"{n} tokens")
    return {
        kind: {name: seconds.tolist() for name, seconds in seconds_of.items()} for kind, seconds_of in least.items()
    }


def crossings(lengths, ratios):
    """Return [(length, "slower" or "faster")], where attention becomes slower or faster than another model.

    ratios: seconds of attention divided by those of the other, at each length; interpolated linearly in logarithms.
    """
    x, y, found = np.log2(lengths), np.log2(ratios), []
    for k in range(len(x) - 1):
        if (y[k] < 0) != (y[k + 1] < 0):
            log_length = x[k] - y[k] * (x[k + 1] - x[k]) / (y[k + 1] - y[k])
            found.append((float(2**log_length), "slower" if y[k] < 0 else "faster"))
    return found


def ratios(found, args, kind, other, clock=0):
    """Return seconds of attention divided by those of another model, at each length; clock: 0 wall, 1 processor."""
    times = [found[str(n)][kind] for n in args.lengths]
    return [seconds["attention"][clock] / max(seconds[other][clock], 1e-9) for seconds in times]


def table(found, args):
    """Return milliseconds of wall-clock and, in brackets, processor time; the last columns are wall-clock ratios."""
    head = ["work", "tokens", *(f"{name}, ms" for name in MODELS), "attention / LSTM", "attention / GRU"]
    rows = [head]
    for kind, what in WORK.items():
        for place, n in enumerate(args.lengths):
            times = found[str(n)][kind]
            cells = [f"{1e3 * times[name][0]:.3g} ({1e3 * times[name][1]:.3g})" for name in MODELS]
            shares = [f"{ratios(found, args, kind, other)[place]:.2f}" for other in ("LSTM", "GRU")]
            rows.append([what, str(n), *cells, *shares])
    return rows


def numbers(found, args):
    """Return {name: number} for a record: ratios, and the lengths at which they last cross 1."""
    figures = {}
    for kind in WORK:
        for other in ("LSTM", "GRU"):
            for clock, suffix in enumerate(("", "_processor")):
                shares = ratios(found, args, kind, other, clock)
                name = f"{kind}_{other.lower()}{suffix}"
                figures |= {f"{name}_{n}": share for n, share in zip(args.lengths, shares, strict=True)}
                for length, turn in crossings(args.lengths, shares)[-1:]:
                    figures[f"{name}_{turn}_from"] = length
    return figures


def draw_figure(found, args):
    """Draw times above, and ratios of attention to the others below, with the last crossings."""
    from matplotlib.ticker import LogLocator

    figure, panels = _study.canvas(2, rows=2, height=3.2)
    for (kind, what), upper, lower in zip(WORK.items(), panels[:2], panels[2:], strict=True):
        for name, colour in MODELS.items():
            times = [1e3 * found[str(n)][kind][name][0] for n in args.lengths]
            upper.plot(args.lengths, times, color=colour, marker="o", markersize=4, label=name)
        for other in ("LSTM", "GRU"):
            shares = ratios(found, args, kind, other)
            lower.plot(args.lengths, shares, color=MODELS[other], marker="o", markersize=4, label=f"by {other}")
            for length, turn in crossings(args.lengths, shares)[-1:]:
                lower.plot(length, 1, "D", color=MODELS[other], markersize=7, markeredgecolor="black")
                text = f"{turn} from {length:.0f} on"
                lower.annotate(text, (length, 1), (8, -14 if other == "GRU" else 6), textcoords="offset points")
        lower.axhline(1, color="#555555", linestyle="--", linewidth=0.8)
        upper.set(title=f"{what}, least time", ylabel="milliseconds", yscale="log")
        lower.set(ylabel="attention / recurrent", xlabel="tokens of a row", yscale="log")
        for panel in (upper, lower):
            _study.set_length_axis(panel, args.lengths)
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.minorticks_off()
            panel.legend(frameon=False, fontsize=9)
    return figure


def run(args):
    """Measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "lengths", "d_model", "batch_size", "tokens", "turns")
    flags.require("d_model", args.d_model % 4 == 0, args, "a multiple of 4, the number of heads")
    flags.require("lengths", list(args.lengths) == sorted({*args.lengths}), args, "each once, the least first")
    flags.require("lengths", min(args.lengths) >= 2 * args.tokens, args, f"at least {2 * args.tokens}, twice --tokens")
    study = _study.Study("parallel", args)
    missing = [n for n in args.lengths if str(n) not in study.found]
    with progress.bar(total=len(missing) * (len(MODELS) + 1), unit="part") as bar:

        def tick(sentence):
            bar.update()
            bar.set_postfix_str(sentence)

        for n in missing:
            study.save(str(n), measure(n, args, tick))
    study.finish(numbers(study.found, args), table(study.found, args), draw_figure(study.found, args))


if __name__ == "__main__":
    sys.exit(flags.script("parallel.py", Parallel, run))
