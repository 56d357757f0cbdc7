"""Suites of rows that tell whether a model generalizes, each one step away from its training.

- in distribution       lines that training has not seen, cut to as many terms as training rows have
- more terms            such lines, up to 10 times as long; what counts is the terms that training never reached
- unseen differences    beyond the largest of training, up to twice it, where three terms fit
- negative differences  those of training, downwards
- one more digit        the same generator, its terms one digit wider

All but the second are cut to the length of training. A suite is None where the generator, or the model, has no such
rows.
"""

from dataclasses import asdict, replace
from typing import NamedTuple

import jax
import numpy as np

from apformer.analysis import certificate as certification
from apformer.decoding.bind import bind_run
from apformer.errors import UserError
from apformer.settings import Settings, architecture_of
from apformer.tasks import hard_rows
from apformer.tasks.progressions import evaluation, generator, training
from apformer.tasks.progressions.proof import contexts

MOST_CONTEXTS = 2_000_000  # that are enumerated
SEQUENCES = 512  # of a suite, where --test_sequences does not say

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


class Suite(NamedTuple):
    """Rows to measure a model on."""

    what: str  # for a reader
    rows: generator.Progressions
    digits: int
    known: int = 0  # how many of a row's first terms do not count


def suites(settings: Settings, rows: dict[str, generator.Progressions] | None = None) -> dict[str, Suite | None]:
    """Return {name: Suite or None}, each of `test_sequences` rows, the same for every seed.

    Args:
        settings: Settings of a run.
        rows: {split: Progressions} of a dataset file, whose test rows are then in distribution; else None.
    """
    cfg, count = settings.data, settings.options.test_sequences
    crop, least = min(settings.options.crop_terms, cfg.max_terms), max(3, cfg.min_terms)
    farthest = min((10**cfg.digits - 1) // (least - 1), 2 * cfg.max_difference - 1)

    def cropped(what: str, rows: generator.Progressions | None, digits: int = cfg.digits) -> Suite | None:
        return rows and Suite(what, rows._replace(terms_B=np.minimum(rows.terms_B, crop)), digits)

    def between(low: int, high: int, **changes: int) -> Suite | None:
        other = replace(cfg, min_difference=low, max_difference=high, **changes)
        return cropped(f"differences {low} to {high}", _rows(other, count))

    wider, known = replace(cfg, digits=cfg.digits + 1), architecture_of(settings).max_tokens(settings.model)
    fits = known is None or crop * (wider.digits + 1) <= known + 1
    negative = cfg.min_difference >= 0  # else they were trained on
    return {
        "in distribution": cropped(f"held-out lines, up to {crop} terms", training.test_rows(settings, rows)),
        "more terms": _longer(cfg, crop, count),
        "unseen differences": between(cfg.max_difference + 1, farthest, min_terms=least),
        "negative differences": between(-cfg.max_difference, -max(1, cfg.min_difference)) if negative else None,
        "one more digit": cropped(f"{wider.digits} digits", _rows(wider, count), wider.digits) if fits else None,
    }


def _rows(cfg: generator.Config, count: int, split: str | None = None) -> generator.Progressions | None:
    """Return rows of a generator as numpy arrays; None if it can draw none."""
    try:
        generator.check(cfg)
        return jax.device_get(_draw(jax.random.key(hard_rows.TEST_KEY), cfg, count, split))
    except UserError:
        return None


def _longer(cfg: generator.Config, crop: int, count: int) -> Suite | None:
    """Return held-out rows of the most terms there are, up to 10 times the crop; None if all end with it."""
    for terms in range(min(10 * crop, cfg.max_terms), crop, -1):
        size = (10**cfg.digits - 1) // (terms - 1)
        low, high = max(cfg.min_difference, -size), min(cfg.max_difference, size)
        fitting = replace(cfg, min_terms=terms, max_terms=terms, min_difference=low, max_difference=high)
        if rows := _rows(fitting, count, "test"):
            return Suite(f"held-out lines, terms {crop + 1} to {terms}", rows, cfg.digits, crop)
    return None


def measure(suite: Suite, params: dict, settings: Settings) -> dict | None:
    """Return which share of the terms of a suite a model continues exactly.

    Args:
        suite: Rows.
        params: Parameters of the model.
        settings: Settings, whose model it is.

    Returns:
        {"what", "terms", "teacher_forced", "free_running"}; None if no term is predictable.
    """
    found = evaluation.outcomes(suite.rows, suite.digits, bind_run(settings, params))
    counts_N = found.term_N > suite.known
    shares = {mode: evaluation.share(right_N[counts_N]) for mode, right_N in found.right.items()}
    return {"what": suite.what, "terms": int(counts_N.sum())} | shares if counts_N.any() else None


def can_enumerate(settings: Settings) -> bool:
    """Return whether the contexts of a model are finitely many, and few enough to ask them all."""
    data, cfg = asdict(settings.data), asdict(settings.model)
    return contexts.reach(cfg) is not None and 0 < contexts.count(data, cfg) <= MOST_CONTEXTS


def certificate(params: dict, settings: Settings) -> dict:
    """Return {"certified", "contexts", "errors", "smallest_margin"} of all contexts, where `can_enumerate`."""
    result = certification.certificate(certification.case(settings, contexts, params), bind_run(settings, params))
    return {name: result[name] for name in ("certified", "contexts", "errors", "smallest_margin")}
