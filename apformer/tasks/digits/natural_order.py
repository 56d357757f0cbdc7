"""The certificate for every number of digits, most significant digit first: a carry is looked for ahead.

After the terms y and x comes z = 2x - y. With u_i = 2 x_i - y_i and carries c in -1, 0, 1

    z_j = (u_j + c_j) mod 10      c_{j+1} = floor((u_j + c_j) / 10)      c_0 = 0

and c_j may depend on every lower place, which is written after x_j. A model of three layers with --position ahead and
without residuals can look so far. What it predicts after z_{j+1} depends on two things alone:

    a state    what two layers make of x_{j-1}, a function of x_{j-1}, x_j, y_{j-1} and y_j
    a bit      what the first key that decides says, among those at x_{j-2} .. x_0, the space and z; 0 if none does

The lowest digit is asked of the state of the space after x_0, the space after a term of the state of its highest digit.
Whether a key decides, and what it says, is a function of its state too. So the model is a finite automaton, which reads
the places from j - 1 down: 100 digits x_i, y_i of the last place read, and the function that c_j is of the carry into
that place, of which there are 7. For each of them we enumerate all that can come:

    outcomes(c_j as a function, place) = all pairs of (bit, c_j) that some lower places lead to

as the least solution of its recursion, which is finite though the number of places is not. The answers to every state
with every bit and every c_j that can come with it are all there are. No error among them proves every progression of
any length, with terms of any number of digits, one and two included. Which key decides what is the model's choice.

That nothing else matters is measured too: contexts are put into texts of wider terms between random characters, where
the whole network must say what the last layer says of the state and the bit. Rounding moves logits and the numbers of
keys, and the smallest margin of a logit must be 100 times that, as must UNSURE. A key with a number that is nearer to 0
is read both ways.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import model as transformer
from apformer.analysis import certificate
from apformer.analysis.rounding import between_ways
from apformer.decoding.bind import call
from apformer.layers.embedding import Head
from apformer.layers.feedforward import FeedForward
from apformer.layers.norm import LayerNorm
from apformer.tasks.digits.generator import SPACE
from apformer.tokenizers.digits import VOCABULARY, decode

WIDTHS = (5, 20, 100)  # of the terms into which contexts are put
UNSURE = 0.25  # as check.py has it
BITS = CARRIES = (-1, 0, 1)
_INSIDE, _LOWEST = "within a term", "its lowest digit"
_SECOND, _LATER = "the space after the second term", "the space after a later term"
_SAMPLE = 12  # contexts of each kind put there
_CLAIM = (
    "greedy decoding continues every progression with terms of any number of digits, most significant first, of any "
    "difference, up or down, and of any length, rightly once its first two terms are given"
)
_REFUSED = {  # what a prediction would depend on more with, or what `_answers` does not compute
    "position": "ahead", "residual": False, "norm_position": "pre", "weighting": "softmax", "attention_sink": False,
    "attention_bias": False, "output_projection": True, "feedforward": True, "feedforward_bias": True,
    "norm": "layer", "tie_embeddings": False,
}  # fmt: skip


class Answers(NamedTuple):
    """What a model says of states."""

    decides_B: np.ndarray
    says_B: np.ndarray
    logits_BRV: np.ndarray  # after each of BITS


def texts():
    """{where: tokens_BT}: texts whose last token has a state. Within a term they are numbered y_j y_i x_j x_i."""
    y_j, y_i, x_j, x_i = _grid(10, 10, 10, 10)
    y_0, x_0 = _grid(10, 10)
    space, space_0, zero = np.full_like(x_i, SPACE), np.full_like(x_0, SPACE), np.zeros_like(x_0)
    return {
        _INSIDE: np.stack([y_j, y_i, space, x_j, x_i], 1),
        _LOWEST: np.stack([zero, y_0, space_0, zero, x_0, space_0], 1),
        _SECOND: np.stack([y_0, space_0, x_0], 1),
        _LATER: np.stack([zero, space_0, y_0, space_0, x_0], 1),
    }


def _grid(*counts):
    """Every combination of numbers from 0 up to these, as one int32 array each."""
    return [axis.ravel().astype(np.int32) for axis in np.meshgrid(*map(np.arange, counts), indexing="ij")]


def outcomes(found):
    """(Which bits and carries can come together (place, bit, carry), which bits follow a place of z (place, bit)).

    The first is of the place j - 1, of which the state is read, and of the carry c_j. Places are numbered 10 y + x.
    """
    # [y_j, y_i, x_j, x_i] -> [place above, place]
    goes_PP1, says_PPR = (
        a.reshape(10, 10, 10, 10, -1).transpose(0, 2, 1, 3, 4).reshape(100, 100, -1) for a in _read(found[_INSIDE])
    )
    goes_PP, (goes_P1, says_PR) = goes_PP1[..., 0].astype(int), _read(found[_LOWEST])
    y_P, x_P = _grid(10, 10)
    of_place = [tuple((2 * x - y + c) // 10 for c in CARRIES) for x, y in zip(x_P.tolist(), y_P.tolist(), strict=True)]
    functions = sorted({tuple(f[c + 1] for c in g) for f, g in itertools.product(of_place, of_place)} | {*of_place})
    number = {f: m for m, f in enumerate(functions)}
    after_MP = np.array([[number[tuple(f[c + 1] for c in g)] for g in of_place] for f in functions])
    image_MC = np.array([[c in f for c in CARRIES] for f in functions])
    at_end_MC = np.array([[c == f[1] for c in CARRIES] for f in functions])  # no carry goes into the lowest place
    # What ends at the next key, the space, or, if that does not decide, at any token of z, of which nothing is known.
    ends_MPRC = (says_PR | goes_P1)[None, :, :, None] & at_end_MC[:, None, None]
    ends_MPRC |= np.einsum("pqr,mqc->mprc", says_PPR.astype(int), image_MC[after_MP].astype(int)) > 0

    def below(found_MPRC):
        next_MQRC = found_MPRC[after_MP, np.arange(100)].astype(int)
        return ends_MPRC | (np.einsum("pq,mqrc->mprc", goes_PP, next_MQRC) > 0)

    # The keys of z end at the last token, wherever it is.
    ends_PR = says_PPR.any(1) | (np.array(BITS) == 0)[None]
    of_z_PR = _least(lambda bits_PR: ends_PR | (goes_PP @ bits_PR > 0), ends_PR)
    return _least(below, ends_MPRC)[[number[f] for f in of_place], np.arange(100)], of_z_PR


def _least(step, found):
    """The least solution of found = step(found) that is above this one."""
    while not np.array_equal(new := step(found), found):
        found = new
    return found


def _read(answers):
    """(Whether keys may go on (B, 1), which of BITS they may say instead (B, 3))."""
    decides_B1, says_B1, bit_1R = answers.decides_B[:, None], answers.says_B[:, None], np.array([BITS])
    return decides_B1 <= UNSURE, (decides_B1 >= -UNSURE) & (bit_1R != 0) & (bit_1R * says_B1 >= -UNSURE)


def targets(found):
    """{where: what has to follow (B, 3, 3) the state, each of BITS and each of CARRIES; -1 where they do not meet}.

    Where no carry matters, it is 0. Before the lowest digit the first key is at the highest digit of z, before the
    space after a term at the one below it. Terms of one digit have no such key.
    """
    y_j, y_i, x_j, x_i = _grid(10, 10, 10, 10)
    y_0, x_0 = _grid(10, 10)
    met_PRC, of_z_PR = outcomes(found)
    digit_B1C = ((2 * x_j - y_j)[:, None, None] + np.array(CARRIES)) % 10
    goes_P1, says_PR = _read(found[_LATER])
    of_lowest_R = (says_PR | goes_P1 & of_z_PR).any(0) | (np.array(BITS) == 0)
    zero_C = np.array(CARRIES) == 0
    lowest_PRC = np.where(of_lowest_R[:, None] & zero_C, ((2 * x_0 - y_0) % 10)[:, None, None], -1)
    space_PRC = np.where(of_z_PR[:, :, None] & zero_C, SPACE, -1)
    inside_BRC = np.where(met_PRC[10 * y_i + x_i], digit_B1C, -1)
    return {_INSIDE: inside_BRC, _LOWEST: lowest_PRC, _SECOND: space_PRC, _LATER: space_PRC}


def unbounded(cfg):
    """Why a model's logits depend on more than the certificate asks; None if they do not."""
    wrong = [f"--{name} {getattr(cfg, name)}" for name, value in _REFUSED.items() if getattr(cfg, name) != value]
    return f"{' and '.join(wrong)} lets it see more than a state and a bit" if wrong else None


def conclude(model, progress=None):
    """The certificate of a bound model; progress(done, total) is told of contexts."""
    found = {where: ask(model, tokens_BT) for where, tokens_BT in texts().items()}
    outside, difference = differences(model, found)
    parts, worst = judge(found)
    faults = []
    if not certificate.SAFETY * difference <= UNSURE:
        faults.append(f"rounding, {difference:.3g}, is above the {UNSURE} of an unsure key over {certificate.SAFETY}")
    if progress is not None:
        done = certificate.together(parts.values())["contexts"]
        progress(done, done)
    keys = np.concatenate([np.abs(found[where][:2]).min(0) for where in (_INSIDE, _LOWEST, _LATER)])
    return certificate.verdict(_CLAIM, parts, difference, outside, "what should not be seen", faults=faults) | {
        "depends": "a prediction depends on a few digits and one bit, in terms of any width",
        "keys": len(keys),
        "unsure_keys": int((keys <= UNSURE).sum()),
        "parts": parts,
        "worst": worst,
    }


def judge(found):
    """({where: contexts, errors and smallest margin}, the worst contexts) of Answers to `texts`."""
    parts, worst = {}, []
    for where, target_BRC in targets(found).items():
        b, r, c = np.nonzero(target_BRC >= 0)
        target_N, logits_NV = target_BRC[b, r, c], found[where].logits_BRV[b, r]
        margin_N1 = certificate.margins(*(jnp.asarray(a)[:, None] for a in (logits_NV, target_N)))
        margin_N, predicted_N = np.asarray(margin_N1)[:, 0], logits_NV.argmax(1)
        parts[where] = certificate.part(margin_N)
        for n in np.argsort(margin_N)[: certificate.WORST]:
            bit, tokens_T = BITS[r[n]], texts()[where][b[n]]
            shown_T = _below(tokens_T, bit, CARRIES[c[n]], found[where]) if where == _INSIDE else tokens_T
            named = {"given": decode(shown_T), "expected": decode(target_N[n : n + 1]), "where": where, "bit": bit}
            worst.append(named | {"predicted": decode(predicted_N[n : n + 1]), "margin": float(margin_N[n])})
    return parts, sorted(worst, key=lambda context: context["margin"])[: certificate.WORST]


def _below(tokens_T, bit, carry, answers):
    """The text of a state within a term, with a third place that says the bit and leads to the carry if one does."""
    (y_j, y_i, _, x_j, x_i), (y, x) = tokens_T, _grid(10, 10)
    key = 1000 * y_i + 100 * y + 10 * x_i + x
    fits = (answers.decides_B[key] > UNSURE) & (bit * answers.says_B[key] > UNSURE)
    fits &= (2 * x_i - y_i + (2 * x - y) // 10) // 10 == carry
    n = np.argmax(fits)
    return np.array([y_j, y_i, y[n], SPACE, x_j, x_i, x[n], SPACE]) if fits.any() else tokens_T


def ask(model, tokens_BT):
    """Answers of the states after the last of these tokens. A number that is not finite counts as 0, which is wrong."""
    decides_BT, says_BT, logits_BRV = (np.asarray(a) for a in _answers(model.params, tokens_BT, model.cfg))
    decides_B, says_B = (np.nan_to_num(a_BT[:, -1], nan=0, posinf=0, neginf=0) for a_BT in (decides_BT, says_BT))
    return Answers(decides_B, says_B, logits_BRV)


@partial(jax.jit, static_argnames="cfg")
def _answers(params, tokens_BT, cfg):
    """(decides_BT, says_BT, logits_BRV): what keys decide and say; what the last state leads to with a bit -1, 0 or 1.

    The last layer is computed here as its equations say it of a token that reads one state and one bit.
    """
    with jax.default_matmul_precision("highest"):
        _, captured = transformer.apply(params, tokens_BT, cfg, capture=("residual",))
        last = jax.tree.map(lambda leaf: leaf[-1], params["blocks"])
        heads, feedforward = last["attention"], FeedForward(cfg.d_ff or 4 * cfg.d_model, cfg.activation, True)
        n_BTD = _norm(last, "attention_norm", captured["residual"][-2], cfg)
        decides_BT, says_BT = (n_BTD @ heads[name][:, -1, 0] for name in ("key", "value"))
        bit_1R = jnp.array([BITS], n_BTD.dtype)
        v_BHK = jnp.einsum("BD,DHK->BHK", n_BTD[:, -1], heads["value"])
        v_BRHK = jnp.repeat(v_BHK.at[:, -1].set(0.0)[:, None], 3, axis=1).at[:, :, -1, 0].set(bit_1R)
        y_BRD = jnp.einsum("BRHK,HKD->BRD", v_BRHK, heads["output"])
        y_BRD = feedforward.apply({"params": last["feedforward"]}, _norm(last, "feedforward_norm", y_BRD, cfg))
        y_BRD = _norm(params, "final_norm", y_BRD, cfg)
        return decides_BT, says_BT, Head(cfg.vocab_size, cfg.head_bias).apply({"params": params["head"]}, y_BRD, None)


def _norm(params, name, x_BTD, cfg):
    """x_BTD after the norm of that name, where there is one."""
    if name not in params:
        return x_BTD
    return LayerNorm(cfg.norm_epsilon, cfg.norm_bias).apply({"params": params[name]}, x_BTD)


def differences(model, found):
    """(outside, rounding): what unseen characters change in logits, and what other texts and ways of computing do."""
    random, outside, rounding = np.random.default_rng(0), 0.0, 0.0
    for (where, tokens_BT), width in itertools.product(texts().items(), WIDTHS):
        some = random.integers(0, len(tokens_BT), _SAMPLE)
        logits, bits = [], []
        for text_BT in (put_into(tokens_BT[some], width, random) for _ in range(2)):
            decides_BT, says_BT, _ = (np.asarray(a) for a in _answers(model.params, text_BT, model.cfg))
            logits.append(np.asarray(call(model.apply, text_BT))[:, -1])
            bits.append(look(decides_BT[:, 1 - width :], says_BT[:, 1 - width :]))
            alone_BV = found[where].logits_BRV[some, 1 + bits[-1]]
            rounding = max(rounding, float(abs(logits[-1] - alone_BV).max()))
            at = text_BT.shape[1] - width
            for there_BT, here_B in ((decides_BT, found[where].decides_B), (says_BT, found[where].says_B)):
                rounding = max(rounding, float(abs(there_BT[:, at] - here_B[some]).max()))
        alike = bits[0] == bits[1]
        outside = max(outside, float(abs(logits[0] - logits[1])[alike].max(initial=0.0)))
        if width == min(WIDTHS):
            rounding = max(rounding, between_ways(text_BT, text_BT >= 0, model))
    return outside, rounding


def look(decides_BS, says_BS):
    """The bit of the first of these keys that decides: -1 or 1; 0 if none does."""
    first_B = np.argmax(decides_BS > 0, axis=1)
    said_B = np.where(says_BS[np.arange(len(first_B)), first_B] > 0, 1, -1)
    return np.where((decides_BS > 0).any(1), said_B, 0)


def put_into(tokens_BT, width, random):
    """Texts of terms `width` wide in whose last token reads the state that these end with, the rest being random.

    The state is that of the token P - 2 back. It is of the tokens 0, 1, P and P + 1 before that one. What would stand
    before a text begins stands nowhere in the other either; else the text may stand anywhere.
    """
    (B, T), short, P = tokens_BT.shape, int(np.argmax(tokens_BT[0] == SPACE)) + 1, width + 1
    reads = [(terms, place) for terms in (0, 1) for place in (0, 1) if T - 1 - terms * short - place >= 0]
    at = P + (2 * P if len(reads) == 4 else 0)  # of the state
    text_BT = random.integers(0, len(VOCABULARY), (B, at + P - 1)).astype(np.int32)
    text_BT[:, : P - 1] %= SPACE  # no space before the first, which tells the period
    text_BT[:, P - 1] = SPACE
    for terms, place in reads:
        text_BT[:, at - terms * P - place] = tokens_BT[:, T - 1 - terms * short - place]
    return text_BT
