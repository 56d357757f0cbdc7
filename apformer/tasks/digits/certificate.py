"""The certificate for every number of digits: least significant digit first, what is said depends on a few digits.

After the terms y and x comes z = 2x - y. Its digits follow from the lowest up, with carries c in -1 .. 1,

    t_j = 2 x_j - y_j + c_j      z_j = t_j mod 10      c_{j+1} = floor(t_j / 10),

and c_j follows from x_{j-1}, y_{j-1} and z_{j-1}, since t_{j-1} lies within 1 of 2 x_{j-1} - y_{j-1}. A model of two
layers with periodic positions and near = 1 sees just this: each layer reads the token itself and those P and P - 1
tokens ago, so at z_{j-1} two layers see

    z_{j-1}      x_j  x_{j-1}      y_{j+1}  y_j  y_{j-1}

at any position and for any width of the terms. These contexts are finitely many. Beside those within a term there
are those at its ends: before the lowest digit, where the tokens at j - 1 are spaces, or nothing before the first term;
and after the highest, where the space is asked for, and the tokens at place D are spaces and y_{D+1} is x_0. Each is
asked as a short text. No error among them proves every progression of any length, with terms of any number of digits.

That nothing else matters is measured too: contexts are put into texts of wider terms between random characters, which
must not change their logits, and the smallest margin must be 100 times what rounding does.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.analysis import certificate
from apformer.analysis.rounding import between_ways
from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.tasks.digits import natural_order
from apformer.tasks.digits.generator import SPACE
from apformer.tokenizers.digits import VOCABULARY, decode

BATCH = 512
WIDTHS = (5, 20, 100)  # of the terms into which contexts are put
_SAMPLE = 12  # contexts of each kind put there
CARRY_FROM = {-1: (0, 9), 0: (0, 0), 1: (9, 0)}  # digits x, y of a place, and what it carries whatever it is carried


def contexts():
    """{where: (tokens_BT, target_B)}: texts that end with the token that is asked, and what must follow."""
    x_j, y_j, x_i, y_i, carry, y_k = _grid(10, 10, 10, 10, (-1, 0, 1), (*range(10), SPACE))
    guard = np.array([CARRY_FROM[c] for c in (-1, 0, 1)], np.int32)[carry + 1]
    t_i = 2 * x_i - y_i + carry
    z = [(2 * guard[:, 0] - guard[:, 1]) % 10, t_i % 10]
    target = (2 * x_j - y_j + t_i // 10) % 10
    inside, top = y_k < SPACE, y_k == SPACE
    zero = np.zeros_like(x_j)
    found = {
        "within a term": _text(inside, ([guard[:, 1], y_i, y_j, y_k], [guard[:, 0], x_i, x_j, zero]), z, target),
        "its highest digit": _text(top, ([guard[:, 1], y_i, y_j], [guard[:, 0], x_i, x_j]), z, target),
    }
    x_0, y_0, y_1 = _grid(10, 10, (*range(10), SPACE))
    inside, top, zero, target = y_1 < SPACE, y_1 == SPACE, np.zeros_like(x_0), (2 * x_0 - y_0) % 10
    found |= {
        "its lowest digit": _text(inside, ([zero, zero], [y_0, y_1], [x_0, zero]), [], target),
        "its only digit": _text(top, ([zero], [y_0], [x_0]), [], target),
        "the third term's lowest digit": _text(inside, ([y_0, y_1], [x_0, zero]), [], target),
        "the third term's only digit": _text(top, ([y_0], [x_0]), [], target),
    }
    # The highest digit of a term that fits carries nothing. x_0, two places lower, is seen; it must not carry either.
    x_j, y_j, carry, x_0 = _grid(10, 10, (-1, 0, 1), 10)
    t_j, fits = 2 * x_j - y_j + carry, (2 * x_j - y_j + carry) // 10 == 0
    guard = np.array([CARRY_FROM[c] for c in (-1, 0, 1)], np.int32)[carry + 1]
    y_0 = np.maximum(2 * x_0 - 9, 0)
    z = [2 * x_0 - y_0, (2 * guard[:, 0] - guard[:, 1]) % 10, t_j % 10]
    space = np.full_like(x_j, SPACE)
    found["the space after a term"] = _text(fits, ([y_0, guard[:, 1], y_j], [x_0, guard[:, 0], x_j]), z, space)
    x_j, y_j, y_0 = _grid(10, 10, 10)
    everything, zero, space = x_j >= 0, np.zeros_like(x_j), np.full_like(x_j, SPACE)
    found["the space after the second term"] = _text(everything, ([y_0, y_j],), [zero, x_j], space)
    return found


def _grid(*choices):
    """Every combination of the choices (a number stands for 0 up to it), as one int32 array each."""
    arrays = [np.arange(choice) if isinstance(choice, int) else np.array(choice) for choice in choices]
    return [axis.ravel().astype(np.int32) for axis in np.meshgrid(*arrays, indexing="ij")]


def _text(kept_B, terms, last, target_B):
    """(tokens_BT, target_B) of texts: terms, lists of digits, each with a space after it, then the last digits."""
    space_B = np.full_like(target_B, SPACE)
    columns = [column for term in terms for column in (*term, space_B)] + last
    return np.stack(columns, axis=1)[kept_B], target_B[kept_B]


def certify(model, settings, work):
    """The certificate of a model that sees no more than two layers of near = 1 do: a dict that JSON can hold.

    Most significant digit first, natural_order.py has it.

    Raises UserError (exit USAGE) if the logits of the model depend on more than can be enumerated.
    """
    reason = unbounded(settings)
    if reason:
        claim = "what can be claimed of it is what `apformer evaluate` finds, width by width"
        raise UserError(f"{reason}, so the contexts of this model are too many to ask: {claim}", USAGE)
    judged = natural_order.conclude if settings.data.order == "msb" else conclude
    return judged(model, work.tell)


def unbounded(settings):
    """Why a model's logits depend on more than the certificate asks; None if they do not."""
    cfg = settings.model
    if settings.data.order == "msb":
        if cfg.position == "ahead":
            return natural_order.unbounded(cfg)
        return "a digit depends on carries from all places below it, which are written after it"
    options = cfg.position_options
    if cfg.position != "periodic" or options.near != 1 or options.span_heads or cfg.window or cfg.n_layers > 2:
        return "it sees other tokens than two layers of --position periodic --near 1 do"
    return None


def conclude(model, progress=None):
    """The certificate of a model that reads no other tokens; progress is told what `enumerate_contexts` tells it."""
    parts, worst = enumerate_contexts(model.apply, progress)
    outside, difference = differences(model)
    claim = (
        "greedy decoding continues every progression with terms of any number of digits, least significant first, of "
        "any difference, up or down, and of any length, rightly once its first two terms are given"
    )
    return certificate.verdict(claim, parts, difference, outside, "what should not be seen") | {
        "depends": "a prediction depends on a few digits, in terms of any width",
        "parts": parts,
        "worst": worst,
    }


def enumerate_contexts(apply, progress=None):
    """Ask every context: ({where: contexts, errors and smallest margin}, the worst contexts).

    progress(done, total, note={"errors": number}) is told of contexts.
    """
    ask, found, parts, worst, done, errors = partial(_margins, apply=apply), contexts(), {}, [], 0, 0
    total, longest = (f(tokens_BT.shape[i] for tokens_BT, _ in found.values()) for f, i in ((sum, 0), (max, 1)))
    for where, (tokens_BT, target_B) in found.items():
        margin_B, predicted_B = np.zeros(len(target_B), np.float32), np.zeros(len(target_B), np.int32)
        padded_BT, last = _pad(tokens_BT, longest), tokens_BT.shape[1] - 1
        for start in range(0, len(target_B), BATCH):
            row_B = np.arange(start, start + BATCH) % len(target_B)  # the last batch has the shape of all
            fresh = min(BATCH, len(target_B) - start)
            margin_B[start : start + fresh], predicted_B[start : start + fresh] = (
                answer_B[:fresh] for answer_B in ask(padded_BT[row_B], last, target_B[row_B])
            )
            done, errors = done + fresh, errors + int((margin_B[start : start + fresh] <= 0).sum())
            if progress is not None:
                progress(done, total, note={"errors": errors})
        parts[where] = certificate.part(margin_B)
        for b in np.argsort(margin_B)[: certificate.WORST]:
            named = {"given": decode(tokens_BT[b]), "expected": decode(target_B[b : b + 1])}
            named["predicted"] = decode(predicted_B[b : b + 1])
            worst.append(named | {"where": where, "margin": float(margin_B[b])})
    return parts, sorted(worst, key=lambda context: context["margin"])[: certificate.WORST]


@jax.jit
def _margins(tokens_BT, last, target_B, *, apply):
    """(Margins of the token after `last`, the most likely tokens there), both (B,)."""
    logits_B1V = apply(tokens_BT)[:, last, None]
    return certificate.margins(logits_B1V, target_B[:, None])[:, 0], logits_B1V[:, 0].argmax(1).astype(jnp.int32)


def differences(model):
    """(outside, rounding): what unseen characters change in logits, and what other texts and ways of computing do."""
    random, outside, rounding, narrow = np.random.default_rng(0), 0.0, 0.0, {}
    for where, (tokens_BT, _) in contexts().items():
        narrow[where] = tokens_BT[random.integers(0, len(tokens_BT), _SAMPLE)]

    def logits(texts):
        last_B = np.concatenate([np.full(len(text_BT), text_BT.shape[1] - 1) for text_BT in texts.values()])
        longest = max(text_BT.shape[1] for text_BT in texts.values())
        text_BT = np.concatenate([_pad(text_BT, longest) for text_BT in texts.values()])
        return text_BT, np.asarray(call(model.apply, text_BT)[np.arange(len(last_B)), last_B])

    # A first term of one digit has its space where a wider one has a digit.
    alike = {where: tokens_BT for where, tokens_BT in narrow.items() if where != "the third term's only digit"}
    for width in WIDTHS:
        pair = [{where: put_into(tokens_BT, width, random) for where, tokens_BT in alike.items()} for _ in range(2)]
        (wide_BT, one_BV), (_, other_BV) = map(logits, pair)
        outside = max(outside, float(abs(one_BV - other_BV).max()))
        rounding = max(rounding, float(abs(one_BV - logits(alike)[1]).max()))
    for text_BT in (logits(narrow)[0], wide_BT[::_SAMPLE]):
        rounding = max(rounding, between_ways(text_BT, text_BT >= 0, model))
    return outside, rounding


def _pad(tokens_BT, length):
    return np.pad(tokens_BT, ((0, 0), (0, length - tokens_BT.shape[1])))


def put_into(tokens_BT, width, random):
    """Texts of terms `width` wide in which the last token sees what the last one of these sees, the rest being random.

    Two layers see the offsets 0, P - 1, P, 2 P - 2, 2 P - 1 and 2 P. What would stand before a text begins stands
    nowhere in the other either; else the text may stand anywhere.
    """
    (B, T), short, long = tokens_BT.shape, int(np.argmax(tokens_BT[0] == SPACE)) + 1, width + 1
    end = T - 1 - 2 * short + (2 * long if T - 1 < 2 * short else 4 * long)
    text_BT = random.integers(0, len(VOCABULARY), (B, end + 1)).astype(np.int32)
    text_BT[:, : long - 1] %= SPACE  # no space before the first, which tells the period
    text_BT[:, long - 1] = SPACE
    for terms, places in ((0, (0,)), (1, (0, 1)), (2, (0, 1, 2))):
        for place in places:
            if T - 1 - terms * short + place >= 0:
                text_BT[:, end - terms * long + place] = tokens_BT[:, T - 1 - terms * short + place]
    return text_BT
