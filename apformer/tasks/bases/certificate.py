"""The certificate of rows in many bases: every context of each rule and base, for terms of any number of digits.

A model of two layers with positions in columns sees, at z_{j-1}, nothing but the heading and

    z_{j-1}  x_{j-1}  x_{j-2}      x_j  y_j  y_{j-1}

at any position and for any width of the terms. proof/contexts.py says which of these contexts occur, and why their
number does not depend on the width. Here each is asked as a text of terms of three digits, or of one: most of them
after z_1, as

    heading  0 y_1 y_2  x_0 x_1 x_2  0 z_1

A text is read once up to where it branches. No error among the contexts proves every row of any length, with terms of
any number of digits. Which tokens a prediction depends on is measured too: contexts are put into texts of wider terms
between random characters, which must not change their logits, and the smallest margin must be 100 times what rounding
does.
"""

import heapq
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.analysis import certificate
from apformer.analysis.rounding import between_ways
from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.tasks.bases import generator
from apformer.tasks.bases.alphabet import CHARACTERS, DIGITS, HEADING, SPACE, decode, rule_token
from apformer.tasks.bases.proof import contexts
from apformer.tasks.recurrences.rules import NAMES

PREFIXES = 256  # texts that branch at once; each has one branch for each digit and carry
BATCH = 4096  # other contexts asked at once
TEXTS = 32  # texts of wider terms asked at once
WIDTHS = (5, 20, 100)  # of the terms into which contexts are put
_SAMPLE = 4  # contexts put there, of each rule, base and kind


def certify(model, settings, work):
    """The certificate of a model: a dict that JSON can hold. work: commands.certify.Work.

    Raises UserError (exit USAGE) if the logits of the model depend on more than can be enumerated.
    """
    if settings.model.position != "columns":
        reason = "it sees other tokens than --position columns does, so its contexts are too many to ask"
        raise UserError(f"{reason}: what can be claimed is what `apformer evaluate` finds, width by width", USAGE)
    cfg, tally = settings.data, work.state or {"pair": 0, "parts": {}, "worst": [], "done": 0}
    total = sum(contexts.count(rule, base) for rule, base in generator.pairs(cfg))
    largest_first = sorted(generator.pairs(cfg), key=lambda pair: -pair[1])  # which tell how long the rest takes
    for number, (rule, base) in enumerate(largest_first):
        if number < tally["pair"]:
            continue
        part, worst = certificate.part(), tally["worst"]
        for margin_N, described in enumerate_contexts(model, rule, base):
            part = certificate.part(margin_N, part)
            if len(worst) < certificate.WORST or margin_N.min() < worst[-1]["margin"]:
                worst = heapq.nsmallest(certificate.WORST, worst + described(), key=lambda context: context["margin"])
            note = certificate.summary([*tally["parts"].values(), part], worst)
            work.tell(tally["done"] + part["contexts"], total, tally, note)
        parts = tally["parts"] | {where((rule, base)): part}
        tally = {"pair": number + 1, "parts": parts, "worst": worst, "done": tally["done"] + part["contexts"]}
    return conclude(model, cfg, tally)


def where(pair):
    """The name of a rule and base."""
    return f"{pair[0]}, base {pair[1]}"


def enumerate_contexts(model, rule, base):
    """Yields (margins (N,), a function that lists the worst of them), for all contexts of a rule and base."""
    a, b, _ = NAMES[rule]
    carries = generator.CARRIES[rule]
    occurs = contexts.passed_on(rule, base)  # by digit and carry
    ask = partial(_branches, model=model, carries=carries)
    given = np.array([rule_token(rule), base - 1, a, b, base], np.int32)
    for first in range(0, base**4, PREFIXES):
        number_B = np.arange(first, first + PREFIXES) % base**4
        y_1, y_2, x_0, x_1 = (number_B // base**i % base for i in (3, 2, 1, 0))
        digits_B4 = np.stack([y_1, y_2, x_0, x_1], axis=1).astype(np.int32)
        margin_BJ, predicted_BJ = (np.asarray(leaf) for leaf in ask(digits_B4, given))
        asked_BJ = np.repeat(occurs[x_0][:, None], len(DIGITS), axis=1).reshape(margin_BJ.shape)
        asked_BJ[:, base * len(carries) :] = False
        asked_BJ[min(PREFIXES, base**4 - first) :] = False
        yield margin_BJ[asked_BJ], partial(_worst_within, digits_B4, margin_BJ, predicted_BJ, asked_BJ, rule, base)
    codes_N1, right_N1 = contexts.strings(contexts.others(rule, base), None, None)
    text_NT, last_N = texts(codes_N1[:, 0])
    for first in range(0, len(last_N), BATCH):
        some = np.minimum(np.arange(first, first + BATCH), len(last_N) - 1)  # the last may repeat
        fresh, right_B = slice(0, min(BATCH, len(last_N) - first)), right_N1[some, 0].astype(np.int32)
        asked = text_NT[some], last_N[some], right_B
        margin_B, predicted_B = (np.asarray(leaf)[fresh] for leaf in _last(*asked, model=model))
        yield margin_B, partial(_worst_of, *asked, margin_B, predicted_B, where((rule, base)))


def texts(codes_N):
    """(tokens_NT, last_N): texts that end, at `last`, with what reads these strings; 0 stands beyond."""
    found = contexts.rows(codes_N, None)
    text_NT = np.zeros((len(codes_N), max(text_BT.shape[1] for _, text_BT in found)), np.int32)
    last_N = np.zeros(len(codes_N), np.int32)
    for which, text_BT in found:
        text_NT[which, : text_BT.shape[1]], last_N[which] = text_BT, text_BT.shape[1] - 1
    return text_NT, last_N


@partial(jax.jit, static_argnames="carries")
def _branches(digits_B4, given, *, model, carries):
    """(Margins, predicted tokens) of z_2 after y_1 y_2 x_0 x_1, any x_2 with any carry: (B, J)."""
    rule, top, a, b, base = given
    y_1, y_2, x_0, x_1 = digits_B4.T
    B, each = len(digits_B4), len(DIGITS)
    fill = lambda token: jnp.full(B, token, jnp.int32)  # noqa: E731
    prefix = [fill(rule), fill(top), fill(SPACE), fill(0), y_1, y_2, fill(SPACE), x_0, x_1]
    prefix_BT = jnp.stack(prefix, axis=1)
    _, cache = model.extend(prefix_BT, model.init_cache(B, prefix_BT.shape[1] + 4))
    cache = jax.tree.map(lambda leaf: jnp.repeat(leaf, each, axis=0), cache)
    x_2 = jnp.tile(jnp.arange(each, dtype=jnp.int32) % base, B)
    x_2BT = jnp.stack([x_2, jnp.full_like(x_2, SPACE), jnp.zeros_like(x_2)], axis=1)
    _, cache = model.extend(x_2BT, cache)
    found = []
    for carry in carries:
        t_1 = jnp.repeat(a * x_1 + b * y_1 + carry, each)
        target = (a * x_2 + b * jnp.repeat(y_2, each) + t_1 // base) % base
        logits_B1V, _ = model.extend((t_1 % base)[:, None], cache)
        margin = certificate.margins(logits_B1V, target[:, None])[:, 0]
        found.append((margin, logits_B1V[:, 0].argmax(-1).astype(jnp.int32)))
    return tuple(jnp.stack(leaves, axis=-1).reshape(B, -1) for leaves in zip(*found, strict=True))


def _worst_within(digits_B4, margin_BJ, predicted_BJ, asked_BJ, rule, base):
    """The worst contexts of a batch, as dicts."""
    (a, b, _), worst = NAMES[rule], []
    for row, place, margin in certificate.nearest(np.where(asked_BJ, margin_BJ, np.inf)):
        x_2, j = divmod(place, len(generator.CARRIES[rule]))
        y_1, y_2, x_0, x_1 = digits_B4[row].tolist()
        t_1 = a * x_1 + b * y_1 + generator.CARRIES[rule][j]
        given = [rule_token(rule), base - 1, SPACE, 0, y_1, y_2, SPACE, x_0, x_1, x_2, SPACE, 0, t_1 % base]
        expected = (a * x_2 + b * y_2 + t_1 // base) % base
        named = {"given": decode(given), "expected": DIGITS[expected]}
        named["predicted"] = decode(predicted_BJ[row, place : place + 1])
        worst.append(named | {"where": where((rule, base)), "margin": margin})
    return worst


@jax.jit
def _last(tokens_BT, last_B, right_B, *, model):
    """(Margins of the token after the last of each text, the most likely tokens there), both (B,)."""
    logits_BV = model.apply(tokens_BT)[jnp.arange(len(last_B)), last_B]
    margin_B1 = certificate.margins(logits_BV[:, None], right_B[:, None])
    return margin_B1[:, 0], logits_BV.argmax(1).astype(jnp.int32)


def _worst_of(tokens_BT, last_B, right_B, margin_B, predicted_B, name):
    """The worst contexts of a batch of texts, as dicts."""
    worst = []
    for row, _, margin in certificate.nearest(margin_B[:, None]):
        given, answers = decode(tokens_BT[row, : last_B[row] + 1]), (right_B[row], predicted_B[row])
        named = dict(zip(("expected", "predicted"), (decode([token]) for token in answers), strict=True))
        worst.append({"given": given} | named | {"where": name, "margin": margin})
    return worst


def conclude(model, cfg, tally):
    """The certificate that a finished tally allows, after measuring what it rests on: a dict that JSON can hold."""
    outside, difference = differences(model, cfg)
    claim = f"greedy decoding continues {contexts.claim({'rules': cfg.rules, 'bases': cfg.bases})}, rightly"
    parts = {name: tally["parts"][name] for name in map(where, generator.pairs(cfg))}
    return certificate.verdict(claim, parts, difference, outside, "what should not be seen") | {
        "depends": "a prediction depends on six tokens and the heading, in terms of any width",
        "parts": parts,
        "worst": tally["worst"],
    }


def differences(model, cfg):
    """(outside, rounding): what unseen characters change in logits, and what other texts and ways of computing do."""
    random = np.random.default_rng(0)
    codes_N = np.concatenate([_some(rule, base, random) for rule, base in generator.pairs(cfg)])
    text_NT, _ = texts(codes_N)
    outside, rounding = 0.0, between_ways(text_NT[::_SAMPLE], text_NT[::_SAMPLE] >= 0, model)
    # A first term of one digit has its space where a wider one has a digit.
    tokens_N8 = contexts.tokens_of(codes_N)
    alike_N = (tokens_N8[:, 7] != contexts.START) | (tokens_N8[:, 2] != SPACE)
    tokens_N8, short_NV = tokens_N8[alike_N], _logits(model, *texts(codes_N[alike_N]))
    for width in WIDTHS:
        one_NV, other_NV = (_logits(model, *put_into(tokens_N8, width, random)) for _ in range(2))
        outside = max(outside, float(abs(one_NV - other_NV).max()))
        rounding = max(rounding, float(abs(one_NV - short_NV).max()))
    return outside, rounding


def _logits(model, text_NT, last_N):
    """The logits after the last of each text, some texts at a time: attention of long ones takes much memory."""
    found = []
    for first in range(0, len(last_N), TEXTS):
        some = np.minimum(np.arange(first, first + TEXTS), len(last_N) - 1)  # the last may repeat
        found.append(np.asarray(call(model.apply, text_NT[some]))[np.arange(TEXTS), last_N[some]])
    return np.concatenate(found)[: len(last_N)]


def _some(rule, base, random):
    """Some contexts of a rule and base, of each kind, as codes."""
    found = []
    for columns in (contexts.within(rule, base, (base - 1,)), contexts.others(rule, base)):
        codes_N = contexts.strings(columns, None, None)[0][:, 0]
        found += [codes_N[random.integers(0, len(codes_N), _SAMPLE)], codes_N[-_SAMPLE:]]
    return np.concatenate(found)


def put_into(tokens_N8, width, random):
    """(tokens_NT, last_N) of terms `width` wide in which the last token reads these strings, the rest being random.

    It stands where the heading hides what is 2 P back if that is hidden from it, else anywhere.
    """
    P, begins_N = width + 1, tokens_N8[:, 7] == contexts.START
    last_N = np.where(begins_N, 2 * P + 1, 4 * P + 5)
    text_NT = random.integers(0, len(CHARACTERS), (len(tokens_N8), 4 * P + 6)).astype(np.int32)
    text_NT[:, HEADING + 1 : HEADING + P] %= SPACE  # no space before that of the first term, which tells the period
    text_NT[:, [HEADING, HEADING + P]] = SPACE
    for which in (begins_N, ~begins_N):
        text_BT = text_NT[which, : last_N[which].max(initial=0) + 1]
        contexts.put(text_BT, P, tokens_N8[which])
        text_NT[which, : text_BT.shape[1]] = text_BT
    return text_NT, last_N
