"""The certificate of a run: every string that a prediction depends on is asked, as a text, and the margins are told.

The strings and why they are all there are stand in proof/, which check.py asks again, in numpy alone.
"""

import heapq
from dataclasses import asdict
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from apformer import tasks
from apformer.analysis import certificate
from apformer.analysis.rounding import between_ways
from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.proof import network, witness
from apformer.settings import Settings
from apformer_lab import pieces

TEXTS = 4096  # asked at once
SPREAD = 16  # texts of a slice by which rounding is measured


def certify(model: Any, settings: Settings, work: Any) -> dict:
    """Return the certificate of a model: a dict that JSON can hold.

    Args:
        model: decoding.bind.Model.
        settings: Settings of its run.
        work: commands.certify.Work.

    Raises:
        UserError: Exit code USAGE, if the logits of the model depend on more than the contexts hold.
    """
    contexts = tasks.load(settings.task).contexts
    contexts = contexts(settings) if callable(contexts) else contexts
    data, cfg = asdict(settings.data), asdict(settings.model)
    if wrong := contexts.fault(data, cfg) or network.beyond(cfg, contexts):
        raise UserError(f"the contexts are not those of this model: {wrong}; train with the recipe's own flags", USAGE)
    weights = network.complete(witness.stored(model.params), cfg, contexts)
    judge = partial(_judged, model, contexts, settings.data.form.characters, data, cfg, weights)
    tally = work.state or {"slices": 0, "parts": {}, "worst": [], "rounding": 0.0}
    for number, columns in enumerate(contexts.slices(data, cfg, weights), 1):
        if number > tally["slices"]:
            tally = judge(columns, tally | {"slices": number})
            done = certificate.together(tally["parts"].values())["contexts"]
            work.tell(done, done, tally, certificate.summary(tally["parts"].values(), tally["worst"]))
    claim = f"greedy decoding continues {contexts.claim(data)}, rightly"
    verdict = certificate.verdict(claim, tally["parts"], tally["rounding"], None, "")
    return verdict | {"depends": "a prediction depends on few tokens"} | {n: tally[n] for n in ("parts", "worst")}


def _judged(
    model: Any, contexts: Any, characters: str, data: dict, cfg: dict, weights: dict, columns: np.ndarray, tally: dict
) -> dict:
    """Return the tally with the contexts of a slice.

    The logits of a string that no short text has are those of the network of the proof.
    """
    codes_NA, truth_NA = contexts.strings(columns, data, cfg)
    codes_M, place_N = np.unique(codes_NA, return_inverse=True)
    logits_MV, rounding = np.full((len(codes_M), cfg["vocab_size"]), np.nan, np.float32), tally["rounding"]
    texts = contexts.rows(codes_M, cfg, weights)
    for which_B, text_BT in texts:
        logits_MV[which_B] = last_logits(model, text_BT)
    most_BT = max((text_BT for _, text_BT in texts), key=len)
    some_BT = most_BT[np.linspace(0, len(most_BT) - 1, SPREAD).astype(int)]
    rounding = max(rounding, between_ways(some_BT, np.ones(some_BT.shape, bool), model))
    if (left_M := np.isnan(logits_MV).all(1)).any() and hasattr(contexts, "logits"):
        logits_MV[left_M] = contexts.logits(codes_M[left_M], weights, cfg)
    logits_NAV = logits_MV[place_N.reshape(codes_NA.shape)]
    margin_NA = np.asarray(certificate.margins(jnp.asarray(logits_NAV), jnp.asarray(truth_NA)))
    worst, name = [], contexts.part(columns[:, 0], data)
    for n, place, margin in certificate.nearest(margin_NA):
        given, right = contexts.text(columns[:, n], place, data)
        said = characters[int(logits_NAV[n, place].argmax())]
        worst.append({"given": given, "expected": right, "predicted": said, "where": name, "margin": margin})
    least_N = margin_NA.min(1)
    worst = heapq.nsmallest(certificate.WORST, tally["worst"] + worst, key=lambda context: context["margin"])
    parts = tally["parts"] | {name: certificate.part(least_N, tally["parts"].get(name))}
    return tally | {"parts": parts, "worst": worst, "rounding": rounding}


def last_logits(model: Any, text_NT: np.ndarray) -> np.ndarray:
    """Return the logits after the last token of each of these texts: (N, V)."""
    size, found = min(pieces.power_of_two(len(text_NT)), TEXTS), []
    for first in range(0, len(text_NT), size):
        text_BT = np.resize(text_NT[first : first + size], (size, text_NT.shape[1]))  # the last begins again
        found.append(np.asarray(call(model.apply, text_BT)[:, -1]))
    return np.concatenate(found)[: len(text_NT)]
