"""The certificate of sums: every context there is, of terms of D digits.

A model of one layer with --position fixed_offsets sees, before s_j, the five tokens that proof/contexts.py lists. All
20,300 contexts are asked, each at the end of a right row. No error among them proves all 10^(2D) sums. Which tokens a
prediction depends on is measured too: contexts are put into random texts, which must not change their logits, and the
smallest margin must be 100 times what rounding does.
"""

from dataclasses import asdict

import jax
import numpy as np

from apformer.analysis import certificate
from apformer.analysis.rounding import between_ways
from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.tasks.sums.proof import contexts
from apformer.tokenizers.digits import decode

BATCH_TOKENS = 2**17
SAMPLE = 64  # contexts of each kind that rounding is measured by
FURTHER = 7  # random tokens before the rows in which contexts are put


def certify(model, settings, work):
    """The certificate of a model: a dict that JSON can hold. work: commands.certify.Work.

    Raises UserError (exit USAGE) if the logits of the model depend on more than can be enumerated.
    """
    if wrong := contexts.fault(asdict(settings.data), asdict(settings.model)):
        remedy = "train --recipe sums with its own --position, --seen_offsets and --n_layers"
        raise UserError(f"the contexts are of another model: {wrong}; {remedy}", USAGE)
    digits = settings.data.digits
    kinds, parts, worst = contexts.kinds(digits), {}, []
    total, outside, rounding = sum(columns.shape[1] for columns in kinds.values()), 0.0, 0.0
    for name, columns in kinds.items():
        ((_, text_NT),) = contexts.texts(columns[:-1].T, digits)
        logits_NV = last_logits(model, text_NT)
        margin_N = np.asarray(certificate.margins(logits_NV[:, None], columns[-1][:, None])[:, 0])
        parts[name] = certificate.part(margin_N)
        worst = sorted(worst + _worst(text_NT, logits_NV, columns[-1], margin_N), key=lambda context: context["margin"])
        worst, done = worst[: certificate.WORST], certificate.together(parts.values())["contexts"]
        work.tell(done, total, None, certificate.summary(parts.values(), worst))
        some = np.unique(np.append(np.linspace(0, len(margin_N) - 1, SAMPLE).astype(int), margin_N.argmin()))
        outside_some, rounding_some = differences(model, columns[:-1, some].T, text_NT[some], digits)
        outside, rounding = max(outside, outside_some), max(rounding, rounding_some)
    claim = f"greedy decoding continues {contexts.claim(asdict(settings.data))}, rightly"
    return certificate.verdict(claim, parts, rounding, outside, "what should not be seen") | {
        "depends": "a digit depends on five tokens",
        "parts": parts,
        "worst": worst,
    }


def last_logits(model, text_NT):
    """The logits after the last token of each text, some texts at a time: (N, V)."""
    found, size = [], min(len(text_NT), max(1, BATCH_TOKENS // text_NT.shape[1]))
    for first in range(0, len(text_NT), size):
        some = np.minimum(np.arange(first, first + size), len(text_NT) - 1)  # the last may repeat
        found.append(np.asarray(call(_last, model, text_NT[some])))
    return np.concatenate(found)[: len(text_NT)]


@jax.tree_util.Partial
def _last(model, text_NT):
    return model.apply(text_NT)[:, -1]


def _worst(text_NT, logits_NV, right_N, margin_N):
    """The worst contexts, as dicts."""
    worst = []
    for n, _, margin in certificate.nearest(margin_N[:, None]):
        answers = {"expected": decode(right_N[n : n + 1]), "predicted": decode([int(logits_NV[n].argmax())])}
        worst.append({"given": decode(text_NT[n])} | answers | {"margin": margin})
    return worst


def differences(model, tokens_N5, text_NT, digits):
    """(outside, rounding) of some contexts: what unseen tokens change, and what ways of computing do."""
    random, logits_NV = np.random.default_rng(0), last_logits(model, text_NT)
    further = FURTHER * int(tokens_N5[0, 4] != contexts.START)  # where nothing stands before, nothing may
    shape = (2, len(text_NT), text_NT.shape[1] + further)
    other_2NT = random.integers(0, contexts.START, shape).astype(np.int32)
    for other_NT in other_2NT:
        contexts.put(other_NT, tokens_N5, digits)
    one_NV, other_NV = (last_logits(model, other_NT) for other_NT in other_2NT)
    rounding = between_ways(text_NT, np.ones(text_NT.shape, bool), model)
    return float(abs(one_NV - other_NV).max()), max(rounding, float(abs(one_NV - logits_NV).max()))
