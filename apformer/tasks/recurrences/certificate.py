"""The certificate of recurrences: every rule with every first two terms, and each next term asked.

Take one rule, and a model whose logits depend on a token and the `reach` tokens before it, at every position alike.
Then the last R terms hold all that it sees (`progressions.certificate.terms_seen`). Any R neighbours of a row are
themselves a row that begins with its first two. So rows of R + 1 terms hold every context there is, with 2, 3 ... R
terms before the term asked, and no error among them proves rows of any length.

A model without a reach sees the whole row, and one of several rules must know which it is: these are asked every row
of up to `--terms` terms, and the claim ends there. Where nothing names the rule, a term is asked if it is known: if all
rules that the terms before it follow agree on it.

A term counts as trained if both pairs of neighbours that it makes a step of are of the training split.
"""

import heapq
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.analysis import certificate, rounding
from apformer.decoding.bind import call
from apformer.settings import architecture_of
from apformer.tasks.progressions.certificate import terms_seen
from apformer.tasks.recurrences import generator
from apformer.tokenizers.digits import decode

BATCH_TOKENS = {"cpu": 8192}  # of a batch; an accelerator wants more
PARTS = ("trained steps", "untrained steps")


def certify(model, settings, work):
    """The certificate of a model: a dict that JSON can hold. work: commands.certify.Work."""
    cfg, reach = settings.data, architecture_of(settings).reach(settings.model)
    terms, seen = extent(cfg, reach)
    if seen is None:
        work.say(f"is asked whole rows: what can be claimed ends with rows of up to {terms} terms")
    tally = kept = work.state or start()
    tokens = BATCH_TOKENS.get(jax.default_backend(), 2**20)
    for tally in enumerate_contexts(cfg, terms, model.apply, kept, tokens):
        note = certificate.summary(tally["parts"].values(), tally["worst"])
        work.tell(tally["row"] * (terms - 2), generator.count(cfg) * (terms - 2), tally, note)
    return conclude(cfg, terms, seen, tally, model)


def extent(cfg, reach):
    """(Terms of the rows that are asked, the terms on which a prediction depends); None for all there are."""
    if len(cfg.rules) > 1 or reach is None:
        return cfg.terms, None
    seen = terms_seen(reach, cfg.digits)
    return seen + 1, seen


def start():
    """The tally of nothing."""
    return {"row": 0, "parts": {name: certificate.part() for name in PARTS}, "worst": []}


def enumerate_contexts(cfg, terms, apply, tally, batch_tokens=8192):
    """Ask every context of the rows after those in the tally; yields the tally, added to, after each batch."""
    ask, total = partial(margins, cfg=cfg, terms=terms, apply=apply), generator.count(cfg)
    size = min(total, max(1, batch_tokens // generator.length(cfg, terms)))
    for first in range(tally["row"], total, size):
        number_B = np.arange(first, first + size, dtype=np.int32)
        fresh = min(size, total - first)
        margin_BN, trained_BN = (leaf[:fresh] for leaf in jax.device_get(ask(np.minimum(number_B, total - 1))))
        tally = _add(tally, first, margin_BN, trained_BN)
        yield tally


@partial(jax.jit, static_argnames=("cfg", "terms"))
def margins(number_B, *, cfg, terms, apply):
    """(Margin of the third and later terms of rows by their number, whether each is trained), both (B, terms - 2).

    A margin is the least, over the characters of a term, of the right logit less the largest other. It is inf where a
    term is not known, and the least number there is where a logit is not finite.
    """
    rows, start = generator.numbered(number_B, cfg, terms), generator.length(cfg, 2)
    batch = generator.encode(rows, cfg, terms)
    margin_BT = certificate.margins(apply(batch.tokens_BT[:, :-1])[:, start - 1 :], batch.tokens_BT[:, start:])
    margin_BT = jnp.where(batch.weights_BT[:, start:] > 0, margin_BT, jnp.inf)
    margin_BN = margin_BT.reshape(len(number_B), terms - 2, cfg.digits + 1).min(-1)
    return margin_BN, generator.trained(generator.values(rows, cfg, terms), cfg.digits)


def _add(tally, first, margin_BN, trained_BN):
    """The tally with the contexts of a batch of rows that begins with row number `first`."""
    asked_BN, parts = margin_BN != np.inf, {}
    for name, of_BN in zip(PARTS, (trained_BN, ~trained_BN), strict=True):
        parts[name] = certificate.part(margin_BN[of_BN & asked_BN], tally["parts"][name])
    named = [{"row": first + b, "given": n + 2, "margin": margin} for b, n, margin in certificate.nearest(margin_BN)]
    worst = heapq.nsmallest(certificate.WORST, tally["worst"] + named, key=lambda context: context["margin"])
    return {"row": first + len(margin_BN), "parts": parts, "worst": worst}


def conclude(cfg, terms, seen, tally, model):
    """The certificate that a finished tally allows, after measuring what it rests on: a dict that JSON can hold."""
    numbers = [context["row"] for context in tally["worst"]]
    numbers += [i * generator.count(cfg) // certificate.WORST for i in range(certificate.WORST)]
    tokens_BT = np.asarray(generator.encode(_rows(numbers, cfg, terms), cfg, terms).tokens_BT)[:, :-1]
    inside_BT = np.ones(tokens_BT.shape, bool)
    difference, outside = rounding.between_ways(tokens_BT, inside_BT, model), None
    if seen is not None:
        outside, moved = rounding.context_differences(tokens_BT, inside_BT, cfg.digits + 1, seen, model.apply)
        difference = max(difference, moved)
    before = f"what stands before the last {seen} terms"
    return certificate.verdict(claim(cfg, terms, seen), tally["parts"], difference, outside, before) | {
        "terms_seen": seen,
        "depends": f"a prediction depends on the last {seen} terms" if seen else "",
        "parts": tally["parts"],
        "worst": _describe(tally["worst"], cfg, terms, model.apply),
    }


def claim(cfg, terms, seen):
    """What no error proves."""
    kind = f"row of {cfg.digits}-digit terms by the rule{'s' * (len(cfg.rules) > 1)} {', '.join(cfg.rules)}"
    extent = f"of up to {terms} terms" if seen is None else "of any length"
    known = ", wherever the terms before fix the next" if generator.given_terms(cfg) > 2 else ""
    first = "its rule and its first two terms are" if generator.is_named(cfg) else "its first two terms are"
    return f"greedy decoding continues every {kind}, {extent}, rightly once {first} given{known}"


def _rows(numbers, cfg, terms):
    return generator.numbered(jnp.asarray(numbers, jnp.int32), cfg, terms)


def _describe(worst, cfg, terms, apply):
    """The worst contexts: their text, the right next term and the one that the model gives."""
    rows = _rows([context["row"] for context in worst], cfg, terms)
    predicted_BT = np.asarray(call(apply, generator.encode(rows, cfg, terms).tokens_BT)).argmax(-1)
    described = []
    for context, rule, first, second, predicted_T in zip(worst, *map(np.asarray, rows[:3]), predicted_BT, strict=True):
        text = generator.render(int(rule), int(first), int(second), context["given"] + 1, cfg)
        end = generator.length(cfg, context["given"])
        named = {"given": text[:end], "expected": text[end:]}
        named["predicted"] = decode(predicted_T[end - 1 : end + cfg.digits])
        described.append(named | {"margin": context["margin"]})
    return described
