"""Compare recurrent translators with the Transformer: `python experiments/studies/bahdanau.py`.

    h      = both directions of a GRU over the source             e_ts = v.tanh(W s_{t-1} + U h_s)
    c_t    = sum_s softmax(e_t)_s h_s                             s_t  = GRU([y_{t-1}; c_t], s_{t-1})
    logits = W_o [s_t; c_t; y_{t-1}] + b                          Bahdanau, Cho and Bengio 2015

The recurrent model without attention has the last state of both directions as c_t, for every t (Cho et al. 2014). The
cells are Flax's. All three models translate number words, letter by letter, from the same pairs. The score is the share
of unseen numbers that greedy decoding writes without a mistake.
"""

import sys
import time
from dataclasses import dataclass
from functools import partial

import _study
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from apformer import flags, loss, seq2seq, train
from apformer.files import FilePath
from apformer.report import progress
from apformer.tasks.translation import number_words

PAD, BEGIN, END = range(3)  # ids; those of letters follow
MODELS = {"GRU": "last state", "GRU, additive attention": "attention", "Transformer": None}
COLOURS = dict(zip(MODELS, (*_study.COLOURS[1:3], _study.COLOURS[-1]), strict=True))


@dataclass(frozen=True)
class Bahdanau:
    """Train recurrent translators, without and with additive attention, and the Transformer on number words."""

    from_language: str = "en"
    """Language of the source, a name of num2words."""
    to_language: str = "fr"
    """Language of the target."""
    largest: int = 9999
    """Largest number."""
    d_model: int = 96
    """Width of the Transformer, and of the states and embeddings of the others; a multiple of 4."""
    steps: int = 1000
    """Optimizer steps of each model."""
    batch_size: int = 32
    """Pairs of a step."""
    learning_rate: float = 2e-3
    """Peak learning rate of Adam."""
    test: int = 256
    """Numbers that are translated at the end, at most; none of them is trained on."""
    members: int = 4
    """Seeds of each model."""
    seed: int = 0
    """Random seed of the first member."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-bahdanau."""


class Writer(nn.Module):
    """One step of the decoder: read a letter, attend to the source, predict the next letter."""

    width: int
    letters: int
    attends: bool

    @nn.compact
    def __call__(self, s_BD, y_BD, source):
        h_BSE, mask_BS, last_BE = source
        c_BE, weights_BS = last_BE, jnp.zeros(mask_BS.shape)
        if self.attends:
            sums_BSD = nn.Dense(self.width, name="W")(s_BD)[:, None] + nn.Dense(self.width, name="U")(h_BSE)
            scores_BS = nn.Dense(1, use_bias=False, name="v")(jnp.tanh(sums_BSD))[..., 0]
            weights_BS = jax.nn.softmax(jnp.where(mask_BS, scores_BS, -1e9))
            c_BE = jnp.einsum("BS,BSE->BE", weights_BS, h_BSE)
        s_BD, _ = nn.GRUCell(self.width)(s_BD, jnp.concatenate([y_BD, c_BE], -1))
        return s_BD, (nn.Dense(self.letters)(jnp.concatenate([s_BD, c_BE, y_BD], -1)), weights_BS)


class Recurrent(nn.Module):
    """Encoder and decoder, which return (logits_BTV, weights_BTS)."""

    width: int
    letters: int
    attends: bool

    @nn.compact
    def __call__(self, source_BS, target_BT):
        embed, mask_BS = nn.Embed(self.letters, self.width), source_BS != PAD
        both = nn.Bidirectional(nn.RNN(nn.GRUCell(self.width)), nn.RNN(nn.GRUCell(self.width)))
        lengths_B = mask_BS.sum(1)
        h_BSE = both(embed(source_BS), seq_lengths=lengths_B)
        ends_BE = jnp.take_along_axis(h_BSE, lengths_B[:, None, None] - 1, axis=1)[:, 0]
        last_BE = jnp.concatenate([ends_BE[:, : self.width], h_BSE[:, 0, self.width :]], -1)
        s_BD = jnp.tanh(nn.Dense(self.width)(last_BE))
        scan = nn.scan(
            Writer, variable_broadcast="params", split_rngs={"params": False}, in_axes=(1, nn.broadcast), out_axes=1
        )
        return scan(self.width, self.letters, self.attends)(s_BD, embed(target_BT), (h_BSE, mask_BS, last_BE))[1]


def pairs(args):
    """Return ({split: (source_NS, target_NT)}, letters); targets have BEGIN and END."""
    speakers = [number_words.speaker(language) for language in (args.from_language, args.to_language)]
    numbers = {split: number_words.draw(0, args.largest, args.largest, split) for split in ("train", "test")}
    spellings = {split: [[say(n) for n in numbers[split]] for say in speakers] for split in numbers}
    letters = sorted({c for sides in spellings.values() for side in sides for text in side for c in text})
    number = {c: k for k, c in enumerate(letters, END + 1)}

    def encode(texts, ends, longest):
        rows = [[*[BEGIN] * ends, *map(number.get, text), *[END] * ends] for text in texts]
        return np.array([row + [PAD] * (longest - len(row)) for row in rows], np.int32)

    longest = [max(len(text) for sides in spellings.values() for text in sides[side]) + 2 * side for side in (0, 1)]
    rows = {split: tuple(encode(sides[k], k, longest[k]) for k in (0, 1)) for split, sides in spellings.items()}
    return rows, ["", "", "", *letters]


def model_of(name, letters, args):
    """Return (init(key), apply(params, source_BS, target_BT) -> logits_BTV) of a model."""
    if MODELS[name] is None:
        shape = {"d_model": args.d_model, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_ff": None}
        cfg = seq2seq.Config(letters, letters, **shape, norm_position="pre", final_norm=True, dropout=0.0)

        def apply(params, source_BS, target_BT):
            return seq2seq.apply(params, source_BS, target_BT, cfg, source_lengths_B=(source_BS != PAD).sum(1))

        return partial(seq2seq.init, cfg=cfg), apply
    module = Recurrent(args.d_model, letters, MODELS[name] == "attention")
    token_11 = jnp.ones((1, 1), jnp.int32)
    return lambda key: module.init(key, token_11, token_11)["params"], lambda params, *sides: module.apply(
        {"params": params}, *sides
    )[0]


def fit(key, name, letters, sides, args):
    """Train a model; return its parameters and the loss of each step."""
    init, apply = model_of(name, letters, args)
    warmup = min(50, args.steps - 1)
    rule = optax.adam(optax.warmup_cosine_decay_schedule(0.0, args.learning_rate, warmup, args.steps))

    def loss_fn(params, batch, key):
        source_BS, target_BT = batch
        weights_BT = (target_BT[:, 1:] != PAD).astype(jnp.float32)
        mean = loss.cross_entropy(apply(params, source_BS, target_BT[:, :-1]), target_BT[:, 1:], weights_BT)
        return mean, {"loss": mean}

    def sample(key):
        index_B = jax.random.randint(key, (args.batch_size,), 0, len(sides[0]))
        return tuple(side[index_B] for side in sides)

    init_key, run_key = jax.random.split(key)
    state = train.init_state(run_key, init(init_key), rule, {})
    step = train.make_train_step(loss_fn, rule)
    state, metrics = train.scan_steps(step, sample, args.steps)(state)
    return state.params, metrics["loss"]


def write(params, source_BS, length, apply):
    """Return greedy translations, which begin with BEGIN: (B, length)."""

    def add(t, target_BT):
        return target_BT.at[:, t + 1].set(apply(params, source_BS, target_BT)[:, t].argmax(-1).astype(jnp.int32))

    target_BT = jnp.full((len(source_BS), length), PAD, jnp.int32).at[:, 0].set(BEGIN)
    return jax.lax.fori_loop(0, length - 1, add, target_BT)


def learn(name, rows, letters, args):
    """Train a model with each seed; return its scores, and what attention reads in one translation of the last seed."""
    apply = model_of(name, len(letters), args)[1]
    sides, (source_NS, target_NT) = rows["train"], [side[: args.test] for side in rows["test"]]
    program = jax.jit(partial(fit, name=name, letters=len(letters), sides=tuple(map(jnp.asarray, sides)), args=args))
    program = program.lower(jax.random.key(0)).compile()
    found = {"exact": [], "seconds": [], "loss": []}
    for seed in progress.bar(range(args.seed, args.seed + args.members), desc=name, unit="seed"):
        start = time.perf_counter()
        params, losses = jax.block_until_ready(program(jax.random.key(seed)))
        found["seconds"].append(time.perf_counter() - start)
        written_NT = np.asarray(jax.jit(write, static_argnums=(2, 3))(params, source_NS, target_NT.shape[1], apply))
        after_end_NT = np.cumsum(target_NT == END, 1) - (target_NT == END) > 0  # places after the end
        found["exact"].append(float(((written_NT == target_NT) | after_end_NT).all(1).mean()))
        found["loss"].append(float(losses[-1]))
    found["weights"] = sum(leaf.size for leaf in jax.tree.leaves(params))
    if MODELS[name] == "attention":
        longest = int(np.argmax((source_NS != PAD).sum(1)))
        pair = source_NS[longest], target_NT[longest]
        module = Recurrent(args.d_model, len(letters), True)
        weights_TS = module.apply({"params": params}, pair[0][None], pair[1][None])[1][0]
        S, T = (int((side != PAD).sum()) for side in pair)
        texts = [[letters[k] for k in side[:size]] for side, size in zip(pair, (S, T), strict=True)]
        found["aligned"] = {"weights": weights_TS[: T - 1, :S], "source": texts[0], "target": [*texts[1][1:-1], "end"]}
    return found


def table(found):
    """Return a row for each model."""
    rows = [["model", "weights", "unseen numbers right, %", "loss at the end", "seconds of training"]]
    for name, result in found.items():
        cells = _study.spread(result["exact"]), _study.middle(result["loss"], 4), _study.middle(result["seconds"], 0)
        rows.append([name, f"{result['weights']:,}", *cells])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    figures = {}
    for name, result in found.items():
        key = name.replace(", ", "_").replace(" ", "_").lower()
        ends = {"least": min(result["exact"]), "exact": np.median(result["exact"]), "greatest": max(result["exact"])}
        figures |= {f"{key}_{end}": float(share) for end, share in ends.items()}
        figures |= {f"{key}_seconds": float(np.median(result["seconds"])), f"{key}_weights": result["weights"]}
    return figures


def draw_figure(found):
    """Draw the share of each model that is right, and the additive attention weights of one translation."""
    figure, (bars, heatmap) = _study.canvas(2, height=5.4)
    shares = [[100 * share for share in result["exact"]] for result in found.values()]
    _study.bars(bars, [name.replace(", ", ",\n") for name in found], shares, [COLOURS[name] for name in found])
    bars.set_ylim(0, 105)
    bars.set_title("unseen numbers right, % (line: least to greatest seed)", loc="left", fontsize=10)
    alignment = next(result["aligned"] for result in found.values() if "aligned" in result)
    heatmap.imshow(np.array(alignment["weights"]), cmap="Blues", vmin=0)
    heatmap.set_xticks(range(len(alignment["source"])), [c.replace(" ", "␣") for c in alignment["source"]], fontsize=7)
    heatmap.set_yticks(range(len(alignment["target"])), [c.replace(" ", "␣") for c in alignment["target"]], fontsize=7)
    heatmap.set_title("what additive attention reads (across), by what it writes", loc="left", fontsize=10)
    heatmap.grid(False)
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "largest", "steps", "batch_size", "test", "members")
    flags.require("d_model", args.d_model % 4 == 0 < args.d_model, args, "a multiple of 4, the number of heads")
    rows, letters = pairs(args)
    flags.require("largest", len(rows["test"][0]) > 0, args, "more, so that some numbers are held out")
    study = _study.Study("bahdanau", args)
    for name in MODELS:
        if name not in study.found:
            study.save(name, learn(name, rows, letters, args))
    study.finish(numbers(study.found), table(study.found), draw_figure(study.found))


if __name__ == "__main__":
    sys.exit(flags.script("bahdanau.py", Bahdanau, run))
