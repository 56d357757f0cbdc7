"""What a population is asked in a sweep: terms as wide as in training, and of more digits; half of them adversarial."""

from typing import NamedTuple

import jax
import numpy as np

from apformer.decoding.bind import bind
from apformer.machine import devices
from apformer.settings import architecture_of
from apformer.tasks.digits import certificate as certification
from apformer.tasks.digits import evaluation, natural_order


class Suite(NamedTuple):
    what: str  # for a reader
    tokens_BT: np.ndarray
    width: int  # digits of a term


def suites(settings, rows=None):
    """{name: Suite}, each of `test_sequences` drawn rows, the same for every seed; `rows` are not asked."""
    cfg, count = settings.data, settings.options.test_sequences
    widths = {"in distribution": cfg.digits, "more digits": max(evaluation.widths(cfg))}
    found = {}
    for name, width in widths.items():
        parts = [evaluation.rows(cfg, width, kind, -(-count // 2)) for kind in ("random", "adversarial")]
        found[name] = Suite(f"terms of {width} digits, half of them adversarial", np.concatenate(parts)[:count], width)
    return found


def measure(suite, params_M, settings):
    """Of each member, which share of the terms of a suite it continues exactly.

    params_M: parameters with a leading axis of members. Returns a list of {"what", "terms", "teacher_forced",
    "free_running"}.
    """
    found = []
    for member in range(len(jax.tree.leaves(params_M)[0])):
        model = _bind(jax.tree.map(lambda leaf_M, m=member: leaf_M[m], params_M), settings)
        shares = evaluation.suite(suite.tokens_BT, suite.width, model)
        found.append({"what": suite.what} | {key: shares[key] for key in ("terms", "teacher_forced", "free_running")})
    return found


def can_enumerate(settings):
    """Whether the contexts of a model are finitely many."""
    return certification.unbounded(settings) is None


def certificate(params, settings):
    """What the enumeration of every context says of one model: {"certified", "contexts", "errors", "smallest_margin"}.

    Only for settings that `can_enumerate`.
    """
    judged = natural_order.conclude if settings.data.order == "msb" else certification.conclude
    result = judged(_bind(params, settings))
    return {name: result[name] for name in ("certified", "contexts", "errors", "smallest_margin")}


def _bind(params, settings):
    return bind(architecture_of(settings), params, settings.model, devices.mesh())
