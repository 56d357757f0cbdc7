"""The certificate: every context a model can meet, enumerated, and the next term asked of each.

Let the logits depend on a token and the `reach` tokens before it only, and not on their positions. Then the prediction
after the k-th term T_k of a progression of difference d is a function of (T_k, d, min(k, R)). R terms hold all that is
seen,

    R = 1 + ceil((reach - (D - 1)) / (D + 1))            reach = n_layers (window - 1) for windowed attention

because the first character asked for, the space after T_k, is asked by its last digit. These contexts are finitely
many. A context is right when the space and each of the D digits that follow is the most likely token, and

    margin = the least, over these D + 1 characters, of its logit - the largest other logit,

is how clearly. No error among them proves every progression of any length, since a term rightly continued is the
context of the next. A model without a reach is asked every whole progression of up to M terms instead, and the claim
ends there.

All contexts of a row share one pass: row (T_1, d) holds those with 2, 3 ... R terms before them. The characters before
the last digit of its second term it shares with nine other rows (numbering.py): a model reads them once, and goes on
from a copy of its cache for each row.

What margins must exceed to mean anything is in analysis/certificate.py.
"""

import heapq
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer.analysis import certificate, rounding
from apformer.decoding import buckets
from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.machine import devices
from apformer.settings import architecture_of
from apformer.tasks.progressions import generator, numbering
from apformer.tasks.progressions.generator import SPLITS, Progressions, encode_rows, render, split_of
from apformer.tokenizers.digits import decode

COMPILATION = 400_000  # tokens that cost as much as one more group, between one on the disk and one compiled
BATCH_TOKENS = {"cpu": 4096}  # what its caches hold; an accelerator wants more


def certify(model, settings, work):
    """The certificate of a model: a dict that JSON can hold. Raises UserError (exit USAGE) if there is nothing to ask.

    work: commands.certify.Work, which goes on from where it was stopped.
    """
    cfg, tokens = settings.data, architecture_of(settings).reach(settings.model)
    groups = plan(cfg, tokens)
    if not groups:
        raise UserError("no progression of this run has a third term: there is nothing to certify", USAGE)
    if tokens is None:
        extent = f"up to {most_terms(cfg, None)} terms"
        work.say(f"looks at all that it has read: what can be claimed ends with rows of {extent}")
    total = count(cfg, tokens)
    tally = begun = work.state or start()  # which may be of all contexts
    for tally in enumerate_contexts(groups, model, begun, batch_tokens()):
        work.tell(asked(tally), total, tally, certificate.summary(tally["splits"].values(), tally["worst"]))
    return conclude(cfg, tokens, tally, groups, model)


def batch_tokens() -> int:
    """Return about how many tokens are computed at once."""
    return BATCH_TOKENS.get(jax.default_backend(), 2**20)


def terms_seen(reach, digits):
    """R, the terms that hold every token on which the prediction of the next term depends; at least 2."""
    return max(2, 1 - (digits - 1 - reach) // (digits + 1))


def most_terms(cfg, reach):
    """Terms of the longest rows that must be asked: R + 1, or without a reach those of the longest progression."""
    if reach is None:
        return generator.most_terms(cfg)
    most, ends = terms_seen(reach, cfg.digits) + 1, not cfg.min_difference <= 0 <= cfg.max_difference
    return min(most, 10**cfg.digits) if ends else most


def plan(cfg, reach):
    """The groups of rows that hold every context, few enough that compiling them costs little."""
    most, each = most_terms(cfg, reach), COMPILATION / (cfg.digits + 1)
    rows_N = 10 * np.array([len(numbering.Group(n, n, n == most, cfg)) for n in range(3, most + 1)])
    found = np.flatnonzero(rows_N)  # of a row only the terms after the second are computed
    asked = buckets.widths(found + 1, rows_N[found], each=each) if len(found) else ()
    return numbering.groups(cfg, [2 + terms for terms in asked])


def count(cfg, reach):
    """How many contexts there are."""
    return int(numbering.count_at_least(cfg, most_terms(cfg, reach)).sum())


def start():
    """The tally of nothing: what `enumerate_contexts` goes on from."""
    return {"group": 0, "ten": 0, "splits": {name: certificate.part() for name in SPLITS}, "worst": []}


def asked(tally):
    """Contexts of the tally."""
    return sum(split["contexts"] for split in tally["splits"].values())


def enumerate_contexts(groups, model, tally, batch_tokens=16_384):
    """Ask every context of the tens after those in the tally; yields the tally, added to, after each batch.

    model: decoding.bind.Model. batch_tokens: about the tokens that a device computes at once. A tally is JSON, and to
    go on from one is to get what an uninterrupted enumeration gets.
    """
    held, each = None, len(devices.taken())
    for number, group in enumerate(groups[tally["group"] :], tally["group"]):
        tokens = 10 * (group.high - 2) * (group.cfg.digits + 1)
        size = each * min(-(-len(group) // each), max(1, batch_tokens // tokens))
        for first in range(tally["ten"] if number == tally["group"] else 0, len(group), size):
            rows = group.rows(first, size)
            margin_BN = margins(rows, group.cfg.digits, group.high, model)
            batch = number, min(first + size, len(group)) - first, first, rows, margin_BN
            # The batch before: reading this one's margins now would let the device wait.
            if held is not None:
                yield (tally := _add(tally, *held))
            held = batch
    if held is not None:
        yield _add(tally, *held)


@partial(jax.jit, static_argnums=(1, 2))
def margins(rows, digits, terms, model):
    """Margin of each context of each row, after 2, 3 ... terms: (B, terms - 2). The rows are tens (numbering.py).

    It is inf where the row has ended, and the least number there is where a logit is not finite.
    """
    tokens_BT, _ = encode_rows(rows, digits, terms)
    # The tokens after the last character that is asked for are not needed.
    alike_GT, own_BT = tokens_BT[::10, : 2 * digits], tokens_BT[:, 2 * digits : -1]
    _, cache = model.extend(alike_GT, model.init_cache(len(alike_GT), tokens_BT.shape[1]))
    logits_BTV, _ = model.extend(own_BT, jax.tree.map(lambda leaf: jnp.repeat(leaf, 10, axis=0), cache))
    margin_BT = certificate.margins(logits_BTV, tokens_BT[:, 2 * digits + 1 :])
    margin_BN = margin_BT.reshape(-1, terms - 2, digits + 1).min(-1)
    term_N = jnp.arange(3, terms + 1, dtype=jnp.int32)
    return jnp.where(term_N[None] <= rows.terms_B[:, None], margin_BN, jnp.inf)


def _add(tally, number, fresh, first, rows, margin_BN):
    """The tally with the first `fresh` tens of a batch."""
    margin_BN, rows = np.asarray(margin_BN)[: 10 * fresh], Progressions(*(column[: 10 * fresh] for column in rows))
    split_B = split_of(rows.difference_B, rows.first_B)
    splits = {}
    for i, (name, before) in enumerate(tally["splits"].items()):
        of_split_BN = margin_BN[split_B == i]
        splits[name] = certificate.part(of_split_BN[of_split_BN != np.inf], before)
    named = [
        {"first": int(rows.first_B[b]), "difference": int(rows.difference_B[b]), "given": n + 2, "margin": margin}
        for b, n, margin in certificate.nearest(margin_BN)
    ]
    worst = heapq.nsmallest(certificate.WORST, tally["worst"] + named, key=lambda context: context["margin"])
    return {"group": number, "ten": first + fresh, "splits": splits, "worst": worst}


def conclude(cfg, reach, tally, groups, model):
    """The certificate that a finished tally allows, after measuring what it rests on: a dict that JSON can hold.

    model: decoding.bind.Model.
    """
    tokens_BT, inside_BT = _tokens(_sample(tally, groups[-1]), cfg.digits)
    seen = None if reach is None else terms_seen(reach, cfg.digits)
    difference, outside = rounding.between_ways(tokens_BT, inside_BT, model), None
    if reach is not None:
        outside, moved = rounding.context_differences(tokens_BT, inside_BT, cfg.digits + 1, seen, model.apply)
        difference = max(difference, moved)
    faults = []
    if asked(tally) != count(cfg, reach):
        faults.append(f"{asked(tally):,} contexts were asked where there are {count(cfg, reach):,}")
    differences = f"a difference from {cfg.min_difference} to {cfg.max_difference}"
    extent = f"of up to {most_terms(cfg, reach)} terms" if reach is None else "of any length"
    claim = f"greedy decoding continues every progression of {cfg.digits}-digit terms with {differences}, {extent}"
    claim += ", rightly once its first two terms are given"
    splits, before = tally["splits"], f"what stands before the last {seen} terms"
    parts = {
        "trained lines": splits["train"],
        "untrained lines": certificate.together([splits["validation"], splits["test"]]),
    }
    return certificate.verdict(claim, parts, difference, outside, before, faults=faults) | {
        "terms_seen": seen,
        "tokens_seen": reach,
        "depends": f"a prediction depends on the last {seen} terms ({reach} tokens back)" if seen else "",
        "parts": parts,
        "worst": _describe(tally["worst"], cfg.digits, np.asarray(call(model.apply, tokens_BT)).argmax(-1)),
    }


def _sample(tally, group):
    """The rows of the worst contexts, and as many again, each the longest of its ten, spread over a group."""
    worst = [(c["first"], c["difference"], c["given"] + 1) for c in tally["worst"]]
    tens = [group.rows(i * len(group) // certificate.WORST, 1) for i in range(certificate.WORST)]
    spread = [tuple(int(column[ten.terms_B.argmax()]) for column in ten) for ten in tens]
    columns = zip(*worst, *spread, strict=True)
    return Progressions(*(np.array(column, np.int32) for column in columns))


def _tokens(rows, digits):
    """The rows without their last characters, and which tokens are within a row."""
    tokens_BT, weights_BT = map(np.asarray, encode_rows(rows, digits, int(rows.terms_B.max())))
    return tokens_BT[:, :-1], weights_BT[:, 1:] > 0


def _describe(worst, digits, predicted_BT):
    """The worst contexts: their text, the right next term and the one that is predicted in the row of each."""
    described = []
    for context, predicted_T in zip(worst, predicted_BT, strict=False):  # rows that are not of the worst follow
        text = render(context["first"], context["difference"], context["given"] + 1, digits)
        end = context["given"] * (
            digits + 1
        )  # where the next term begins; the token before it is predicted one earlier
        answers = {"expected": text[end - 1 :], "predicted": decode(predicted_T[end - 2 : end + digits - 1])}
        described.append({"given": text[: end - 1]} | answers | {"margin": context["margin"]})
    return described
