"""What a model is asked besides what it was trained on: suites of rows, each one step away from its training.

- in distribution       lines that training has not seen, cut to as many terms as training rows have
- more terms            such lines, up to 10 times as long; what counts is the terms that training never reached
- unseen differences    beyond the largest of training, up to twice it, where three terms fit
- negative differences  those of training, downwards
- one more digit        the same generator, its terms one digit wider

All but the second are cut to the length of training. A suite is None where the generator, or the model, has no such
rows.
"""

from collections import deque
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import train
from apformer.decoding import buckets
from apformer.decoding.bind import bind
from apformer.errors import UserError
from apformer.machine import devices
from apformer.settings import architecture_of, load_architecture
from apformer.tasks import hard_rows
from apformer.tasks.progressions import certificate as certification
from apformer.tasks.progressions import evaluation, generator, training

MOST_CONTEXTS = 2_000_000  # that are enumerated
SEQUENCES = 512  # of a suite, where --test_sequences does not say

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


class Suite(NamedTuple):
    what: str  # for a reader
    rows: generator.Progressions
    digits: int
    known: int = 0  # how many of a row's first terms do not count


def suites(settings, rows=None):
    """{name: Suite or None}, each of `test_sequences` rows, the same for every seed.

    rows: {split: Progressions} of a dataset file, whose test rows are then in distribution; else None.
    """
    cfg, count = settings.data, settings.options.test_sequences
    crop, least = min(settings.options.crop_terms, cfg.max_terms), max(3, cfg.min_terms)
    farthest = min((10**cfg.digits - 1) // (least - 1), 2 * cfg.max_difference - 1)
    wider = replace(cfg, digits=cfg.digits + 1)

    def cut(what, rows, digits=cfg.digits):
        return rows and Suite(what, rows._replace(terms_B=np.minimum(rows.terms_B, crop)), digits)

    def between(low, high, **changes):
        asked = replace(cfg, min_difference=low, max_difference=high, **changes)
        return cut(f"differences {low} to {high}", _rows(asked, count))

    found = {
        "in distribution": cut(f"held-out lines, up to {crop} terms", training.test_rows(settings, rows)),
        "more terms": _longer(cfg, crop, count),
        "unseen differences": between(cfg.max_difference + 1, farthest, min_terms=least),
        "negative differences": between(-cfg.max_difference, -max(1, cfg.min_difference)),
        "one more digit": cut(f"{wider.digits} digits", _rows(wider, count), wider.digits),
    }
    if cfg.min_difference < 0:
        found["negative differences"] = None  # they were trained on
    known = architecture_of(settings).max_tokens(settings.model)
    if known is not None and crop * (cfg.digits + 2) > known + 1:
        found["one more digit"] = None
    return found


def _rows(cfg, count, split=None):
    """Rows of a generator as numpy arrays; None if it can draw none."""
    try:
        generator.check(cfg)
        return jax.device_get(_draw(jax.random.key(hard_rows.TEST_KEY), cfg, count, split))
    except UserError:
        return None


def _longer(cfg, crop, count):
    """Held-out rows of the most terms there are, up to 10 times the crop; None if all end with it."""
    for terms in range(min(10 * crop, cfg.max_terms), crop, -1):
        size = (10**cfg.digits - 1) // (terms - 1)
        low, high = max(cfg.min_difference, -size), min(cfg.max_difference, size)
        fitting = replace(cfg, min_terms=terms, max_terms=terms, min_difference=low, max_difference=high)
        if rows := _rows(fitting, count, "test"):
            return Suite(f"held-out lines, terms {crop + 1} to {terms}", rows, cfg.digits, crop)
    return None


def measure(suite, params_M, settings):
    """Of each member, which share of the terms of a suite it continues exactly.

    params_M: parameters with a leading axis of members, of the model of the settings. Returns a list of
    {"what", "terms", "teacher_forced", "free_running"}, or of None if no term is predictable.
    """
    members, rows = len(jax.tree.leaves(params_M)[0]), suite.rows
    terms, right_M2 = 0, np.zeros((members, 2), int)
    padded_B = evaluation.padded_terms(rows.terms_B, suite.digits)
    for row_B, batch_B, most in buckets.batches(padded_B, _batch_tokens(members) // (suite.digits + 1)):
        batch = generator.Progressions(*(column_B[batch_B] for column_B in rows))
        right_M2BN = np.asarray(_right(params_M, batch, settings.architecture, settings.model, suite.digits, most))[
            :, :, : len(row_B)
        ]
        term_N = np.arange(3, most + 1)
        counted_BN = (suite.known < term_N) & (term_N <= rows.terms_B[row_B][:, None])
        terms, right_M2 = terms + int(counted_BN.sum()), right_M2 + right_M2BN[:, :, counted_BN].sum(-1)
    if not terms:
        return [None] * members
    facts = {"what": suite.what, "terms": terms}
    return [facts | {"teacher_forced": int(m[0]) / terms, "free_running": int(m[1]) / terms} for m in right_M2]


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _right(params_M, rows, architecture, cfg, digits, terms):
    """Whether each member is right on each predictable term, teacher-forced and free-running: (M, 2, B, terms - 2)."""

    module = load_architecture(architecture)

    # The parameters are arguments here, so that one compilation serves all members.
    def member(params):
        model = bind(module, params, cfg)
        _, _, forced_BNC, truth_BNC = evaluation.teacher_forced(rows, digits, terms, model)
        free_right_BN = evaluation.free_running(rows, digits, terms, model)
        return jnp.stack([(forced_BNC == truth_BNC).all(-1), free_right_BN])

    return train.over_members(member, "map" if jax.default_backend() == "cpu" else "vmap")(params_M)


def can_enumerate(settings):
    """Whether the contexts of a model are finitely many, and few enough to ask them all."""
    tokens = architecture_of(settings).reach(settings.model)
    return tokens is not None and 0 < certification.count(settings.data, tokens) <= MOST_CONTEXTS


def certificate(params, settings):
    """What the enumeration of every context says of one model: {"certified", "contexts", "errors", "smallest_margin"}.

    Only for settings that `can_enumerate`.
    """
    cfg, tokens = settings.data, architecture_of(settings).reach(settings.model)
    groups = certification.plan(cfg, tokens)
    model = bind(architecture_of(settings), params, settings.model, devices.mesh())
    tallies = certification.enumerate_contexts(groups, model, certification.start(), _batch_tokens(1))
    tally = deque(tallies, maxlen=1).pop()
    result = certification.conclude(cfg, tokens, tally, groups, model)
    return {name: result[name] for name in ("certified", "contexts", "errors", "smallest_margin")}


def _batch_tokens(members):
    """Tokens computed at once: what the caches of a CPU hold, or what keeps an accelerator busy with all members."""
    return 4096 if jax.default_backend() == "cpu" else 2**18 // members
