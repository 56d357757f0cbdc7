"""Weights written by hand with which `model.apply` continues every arithmetic progression exactly.

After the terms y and x comes z = 2x - y. Text has the highest digit first, but borrows come from the lowest. Carries of
2x stay local: the carry from place i - 1 is [x_{i-1} >= 5], whatever is carried into it. So, place by place,

    e_i = (2 x_i mod 10) + [x_{i-1} >= 5] - y_i     in -9 .. 9, the difference at place i (0 is the lowest)
    b_j = [e_i < 0] at the nearest i < j with e_i != 0; 0 if there is none     the borrow from place j
    z_j = (e_j - b_j) mod 10

007 010 gives e = 0, 2, -7 from the highest place down, b = 0, 1, 0 and z = 013. Two layers of two heads do this. Terms
of D digits repeat every P = D + 1 tokens. e_i is found at the token after x_i, which is x_{i-1} or the space; z_j is
predicted at the token before it, where x_j stood P - 1 tokens ago and e_j was found P - 2 tokens ago.

    layer 1:  previous digit   reads offset 1         2 x_i mod 10, to which its own token adds [x_{i-1} >= 5];
              term before      reads offset P + 1     -y_i
              feed-forward                            [e_i != 0] and [e_i < 0]

    layer 2:  same place       reads offset P - 2     e_j
              look-ahead       reads a smaller one    -b_j, from the largest offset with e_i != 0
              feed-forward                            mod 10

Layer 1 treats all terms alike, even the one that is being written, which the look-ahead must not read. It stops before
that term: the first digit of a term has no digit before it, so its e is a mark above all differences, which ends the
search without a borrow. If the head "same place" reads the mark, the next token is a space.

All numbers are small integers, and every softmax selects one key, so the logits are exact. Carry look-ahead is known
from the adders of processors. Weiss et al. 2021 (RASP) write programs for transformers, and Lindner et al. 2023 (Tracr)
compile such programs to weights.

    python -m apformer_lab.circuit --digits 3 --run_dir RUN
    apformer certify RUN

The first line saves the weights as a run, with a picture of the attention. The second one proves the run.
"""

import sys
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from apformer import flags, model
from apformer.commands import report, train
from apformer.report import attention, figures
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, generator, recipes
from apformer.tokenizers import digits as tokenizer

SURE = 256.0
"""The margin of a score or logit: exp(-256) is 0 in float32. A power of two, which keeps weights exact in bfloat16."""
FIRST = 11
"""The mark: e of a token without a digit before it. Minus a borrow it is still at least 10, the token of the space."""

# The residual stream, coordinate by coordinate. The last of the eight is not used.
ONE = 0  # 1 at every token
DIGIT = 1  # the digit, 0 at a space
DOUBLE = 2  # (2 * digit mod 10) - FIRST, 0 at a space: what turns the mark of the next token into a difference
DIFFERENCE = 3  # e of the digit before, or the mark
DECISIVE = 4  # [e != 0]
BORROW = 5  # [e < 0]
NEXT = 6  # the next token
D_MODEL, D_FF = 8, 4

HEADS = (("previous digit", "term before"), ("same place", "look-ahead"))

# Units (sign, read, bias, {write: times}) of a feed-forward, which add times * relu(sign * x_read + bias) to x_write.
UNITS = (
    (  # [e < 0] and [e != 0] = [e < 0] + [e > 0], where [e > 0] = relu(e) - relu(e - 1) for whole e
        (-1, DIFFERENCE, 0, {BORROW: 1, DECISIVE: 1}),
        (-1, DIFFERENCE, -1, {BORROW: -1, DECISIVE: -1}),
        (1, DIFFERENCE, 0, {DECISIVE: 1}),
        (1, DIFFERENCE, -1, {DECISIVE: -1}),
    ),
    ((-1, NEXT, 0, {NEXT: 10}), (-1, NEXT, -1, {NEXT: -10})),  # add 10 if below 0
)


def config(digits: int) -> model.Config:
    """Return the Config for terms of this many digits; its window ends at the furthest token that a head reads.

    Raises:
        ValueError: For fewer than one digit.
    """
    if digits < 1:
        raise ValueError(f"a term has at least one digit, not {digits}")
    return model.Config(
        vocab_size=len(tokenizer.VOCABULARY),
        d_model=D_MODEL,
        n_heads=2,
        n_layers=2,
        d_ff=D_FF,
        window=digits + 3,
        position="relative",
        similarity="dot",
        output_projection=True,
        attention_sink=True,
        norm="none",
    )


def params(digits: int) -> Any:
    """Return the weights for terms of this many digits: the tree of `model.init(key, config(digits))`, float32.

    They predict all that follows from the text: every space, and every digit from the third term on while
    0 <= z < 10^digits, of a text that begins with a term. The digits of the first two terms cannot be predicted; there
    the logits mean nothing.

    Raises:
        ValueError: For fewer than one digit.
    """
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), config(digits)))
    weights = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    blocks, token_V = weights["blocks"], np.arange(len(tokenizer.VOCABULARY))
    digit_C, table_VD = token_V[:10], weights["embedding"]["table"]
    table_VD[:, ONE], table_VD[:, DIFFERENCE] = 1, FIRST
    table_VD[:10, DIGIT], table_VD[:10, DOUBLE] = digit_C, 2 * digit_C % 10 - FIRST
    table_VD[:10, DIFFERENCE] += digit_C >= 5
    heads = blocks["attention"]
    for layer, head, read, write, sign, bias_O in _heads(digits):
        heads["value"][layer, read, head, 0], heads["output"][layer, head, 0, write] = 1, sign
        heads["relative"]["table"][layer, head] = bias_O
    heads["query"][1, ONE, 1, 0], heads["key"][1, DECISIVE, 1, 0] = SURE * digits, 1
    expand, contract = blocks["feedforward"]["expand"], blocks["feedforward"]["contract"]
    for layer, units in enumerate(UNITS):
        for unit, (sign, read, bias, writes) in enumerate(units):
            expand["weight"][layer, read, unit], expand["bias"][layer, unit] = sign, bias
            for write, times in writes.items():
                contract["weight"][layer, unit, write] = times
    # logit_v = SURE (2 z v - v^2) is largest for the token v nearest to z. The space is nearest to a mark.
    output = weights["head"]["output"]
    output["weight"][NEXT], output["bias"][:] = SURE * 2 * token_V, -SURE * token_V**2
    return jax.device_put(weights)


def _heads(digits: int) -> list[tuple[int, int, int, int, int, np.ndarray]]:
    """Return (layer, head, coordinate read, coordinate written, sign, bias of each offset) of each head."""
    offset_O, period = np.arange(config(digits).window), digits + 1

    def only(offset: int) -> np.ndarray:
        return np.where(offset_O == offset, SURE, -SURE)  # without such a token, the sink: its score is 0

    lower_O = period - 2 - offset_O  # how many places below the one to be written
    nearest_O = np.where(lower_O > 0, -SURE * lower_O, -SURE - SURE * digits)  # with SURE * digits where e != 0
    return [
        (0, 0, DOUBLE, DIFFERENCE, 1, only(1)),
        (0, 1, DIGIT, DIFFERENCE, -1, only(period + 1)),
        (1, 0, DIFFERENCE, NEXT, 1, only(period - 2)),
        (1, 1, BORROW, NEXT, -1, nearest_O),
    ]


@dataclass(frozen=True)
class Circuit:
    """Save the circuit as a run. Its loss means nothing: it includes the first two terms, which cannot be predicted."""

    digits: int = 3
    """Digits of a term."""
    min_difference: int = 1
    """Smallest difference that is certified; may be 0 or negative."""
    max_difference: int | None = None
    """Largest difference that is certified. The default is 500, or the largest that this many digits have."""
    run_dir: str | None = None
    """New directory for the run. The default is runs/circuit-<digits>."""


def run(args: Circuit) -> None:
    """Write the run, and print the paths of its page and of the run."""
    largest = recipes.exact(args.digits).data.max_difference if args.max_difference is None else args.max_difference
    data = generator.Config(args.digits, min_difference=args.min_difference, max_difference=largest)
    generator.check(data)
    generator.require_split(data, "validation")  # of which the page has rows
    training = Training(steps=1, run_dir=args.run_dir or f"runs/circuit-{args.digits}")
    settings = Settings("progressions", "model", training, config(args.digits), data, Options())
    path = train.keep(settings, params(args.digits))
    figures.save(path / "figures", {"attention": picture(args.digits)})
    print(report.write(path, settings, None))
    print(path)


def picture(digits: int) -> Figure:
    """Draw the attention weights of each head in a short progression: rows are queries, columns are keys."""
    text = generator.render(7, 3, 4, digits)
    apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params(digits), tokenizer.encode(text)[None], config(digits), capture=("attention",))
    figure = attention.draw(np.asarray(captured["attention"][:, 0]), [*text], [*text])
    for axes, (layer, head) in zip(figure.axes[:-1], np.ndindex(2, 2), strict=True):
        axes.set_title(f"layer {layer + 1}: {HEADS[layer][head]}", loc="left", fontsize=9)
    return figure


if __name__ == "__main__":
    sys.exit(flags.script("apformer_lab.circuit", Circuit, run))
