"""Weights written by hand with which `model.apply` continues every arithmetic progression exactly.

After the terms y and x comes z = 2x - y. Text wants its highest digit first, but borrows come from the lowest. Doubling
keeps them in sight: what the digit x_{i-1} carries, [x_{i-1} >= 5], never carries further, so that place by place

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

Layer 1 treats all terms alike, also the one that is being written, where the look-ahead must not read. It never gets
there: the first digit of a term has no digit before it, and its e is then a mark above all differences, which ends the
search without a borrow. The mark at the same place says that the next token is a space.

Every number is small and whole, every softmax a choice: the logits are exact. The carry look-ahead is as old as adders;
programs for transformers: Weiss et al. 2021 (RASP), compiled to weights: Lindner et al. 2023 (Tracr).
"""

import jax
import numpy as np

from apformer import model
from apformer.tokenizers.digits import VOCABULARY

SURE = 256.0
"""The lead of a score or logit: exp(-256) is 0 in float32. A power of two, which keeps weights exact in bfloat16."""
FIRST = 11
"""The mark, e of a token without a digit before it: at least 10, the token of the space, even less a borrow."""

# The residual stream, coordinate by coordinate. The last of the eight is free.
ONE = 0  # 1 at every token
DIGIT = 1  # the digit, 0 at a space
DOUBLE = 2  # (2 * digit mod 10) - FIRST, 0 at a space: what turns the mark of the next token into a difference
DIFFERENCE = 3  # e of the digit before, or the mark
DECISIVE = 4  # [e != 0]
BORROW = 5  # [e < 0]
NEXT = 6  # the next token
D_MODEL, D_FF = 8, 4

HEADS = (
    (
        "Previous digit: reads one back, and takes 2 x mod 10 of the digit there; its own token adds the carry.",
        "Term before: reads a period and one back, and subtracts the digit that stood there a term earlier.",
    ),
    (
        "Same place: reads two less than a period back, where the difference of this place was found.",
        "Look-ahead: reads the nearest lower place whose difference is not 0, and borrows if it is negative.",
    ),
)
"""What each head does, layer by layer."""


def config(digits):
    """The architecture for terms of this many digits, whose window ends at the furthest token read.

    Raises ValueError for fewer than one digit.
    """
    if digits < 1:
        raise ValueError(f"a term has at least one digit, not {digits}")
    return model.Config(
        vocab_size=len(VOCABULARY),
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


def params(digits):
    """The weights for terms of this many digits: the tree of `model.init(key, config(digits))`, float32.

    They predict all that follows from the text: every space, and every digit from the third term on while
    0 <= z < 10^digits, of a text that begins with a term. The digits of the first two terms do not follow; there the
    logits mean nothing. Raises ValueError for fewer than one digit.
    """
    cfg, period = config(digits), digits + 1
    find_differences = _block(cfg, [_previous_digit(cfg), _term_before(cfg, period)], _signs())
    write_digits = _block(cfg, [_same_place(cfg, period), _look_ahead(cfg, period)], _modulo_ten())
    weights = {
        "embedding": {"table": _embedding()},
        "blocks": jax.tree.map(lambda *layers: np.stack(layers), find_differences, write_digits),
        "head": {"output": _nearest_token()},
    }
    return jax.device_put(jax.tree.map(np.float32, weights))


def _embedding():
    """What a token tells of itself."""
    table_VD = np.zeros((len(VOCABULARY), D_MODEL))
    table_VD[:, ONE] = 1
    table_VD[:, DIFFERENCE] = FIRST  # unless a digit stands before
    for digit in range(10):
        table_VD[digit, DIGIT] = digit
        table_VD[digit, DOUBLE] = 2 * digit % 10 - FIRST
        table_VD[digit, DIFFERENCE] += digit >= 5
    return table_VD


def _previous_digit(cfg):
    """e_i starts from 2 x_i mod 10."""
    return _head(cfg, read=DOUBLE, write=DIFFERENCE, bias_O=_only(cfg, 1))


def _term_before(cfg, period):
    """e_i loses y_i, which stands a period before x_i."""
    return _head(cfg, read=DIGIT, write=DIFFERENCE, times=-1, bias_O=_only(cfg, period + 1))


def _same_place(cfg, period):
    """z_j starts from e_j."""
    return _head(cfg, read=DIFFERENCE, write=NEXT, bias_O=_only(cfg, period - 2))


def _look_ahead(cfg, period):
    """z_j loses the borrow: [e_i < 0] at the nearest place below j with e_i != 0, and nothing if all are 0."""
    distance_O = period - 2 - np.arange(cfg.window)  # j - i
    decisive = SURE * (period - 1)  # the farthest such place still leads the sink
    bias_O = np.where(distance_O > 0, -SURE * distance_O, -SURE - decisive)
    return _head(cfg, read=BORROW, write=NEXT, times=-1, bias_O=bias_O, decisive=decisive)


def _only(cfg, offset):
    """A bias by which a head reads one offset, and nothing where no token stands there: the sink's score is 0."""
    return np.where(np.arange(cfg.window) == offset, SURE, -SURE)


def _head(cfg, read, write, bias_O, times=1, decisive=0.0):
    """A head that adds `times` the coordinate `read` of the token it attends to, to the coordinate `write`.

    A key scores the bias of its offset, and `decisive` more where e is not 0.
    """
    width = cfg.d_model // cfg.n_heads
    query_DK, key_DK, value_DK = np.zeros((3, cfg.d_model, width))
    output_KD = np.zeros((width, cfg.d_model))
    if decisive:
        query_DK[ONE, 0], key_DK[DECISIVE, 0] = decisive, 1
    value_DK[read, 0], output_KD[0, write] = 1, times
    return query_DK, key_DK, value_DK, output_KD, bias_O


def _signs():
    """BORROW = [e < 0] and DECISIVE = [e < 0] + [e > 0], where [e > 0] = relu(e) - relu(e - 1) for whole e."""
    return _feedforward(
        (-1, DIFFERENCE, 0, {BORROW: 1, DECISIVE: 1}),
        (-1, DIFFERENCE, -1, {BORROW: -1, DECISIVE: -1}),
        (1, DIFFERENCE, 0, {DECISIVE: 1}),
        (1, DIFFERENCE, -1, {DECISIVE: -1}),
    )


def _modulo_ten():
    """From e_j - b_j in -10 .. 9 to z_j: 10 more if below 0."""
    return _feedforward((-1, NEXT, 0, {NEXT: 10}), (-1, NEXT, -1, {NEXT: -10}))


def _feedforward(*units):
    """Each unit (sign, read, bias, {write: times}) adds times * relu(sign * x_read + bias) to x_write."""
    expand_DF, bias_F, contract_FD = np.zeros((D_MODEL, D_FF)), np.zeros(D_FF), np.zeros((D_FF, D_MODEL))
    for unit, (sign, read, bias, writes) in enumerate(units):
        expand_DF[read, unit], bias_F[unit] = sign, bias
        for write, times in writes.items():
            contract_FD[unit, write] = times
    return {
        "expand": {"weight": expand_DF, "bias": bias_F},
        "contract": {"weight": contract_FD, "bias": np.zeros(D_MODEL)},
    }


def _block(cfg, heads, feedforward):
    query_HDK, key_HDK, value_HDK, output_HKD, bias_HO = map(np.stack, zip(*heads, strict=True))
    attention = {
        "query": query_HDK.swapaxes(0, 1),
        "key": key_HDK.swapaxes(0, 1),
        "value": value_HDK.swapaxes(0, 1),
        "output": output_HKD,
        "relative": {"table": bias_HO},
        "sink": np.zeros(cfg.n_heads),
    }
    return {"attention": attention, "feedforward": feedforward}


def _nearest_token():
    """logit_v = SURE (2 z v - v^2) = SURE (z^2 - (z - v)^2): largest for the token v nearest to z.

    The space is token 10, the nearest to a mark.
    """
    tokens_V = np.arange(len(VOCABULARY))
    weight_DV = np.zeros((D_MODEL, len(VOCABULARY)))
    weight_DV[NEXT] = SURE * 2 * tokens_V
    return {"weight": weight_DV, "bias": -SURE * tokens_V**2}
