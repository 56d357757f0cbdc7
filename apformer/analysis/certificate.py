"""The certificate of a model: the contexts of its task, asked by two judges.

    margin = logit of the right token - the largest other logit          wrong where it is not above 0

JAX screens a model: it computes the logits of texts that hold the contexts in float32, by `model.apply`, as decoding
does. numpy proves it (proof/check.py): in float64, with bounds of any float32 rounding. Both ask what the task's module
of contexts lists, and add up the same tally.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding.bind import Model
from apformer.errors import UserError
from apformer.layers import leaves
from apformer.machine import devices
from apformer.proof import check, network
from apformer.proof.check import Case, prove  # noqa: F401, the judge beside `screen`
from apformer.settings import Settings

BATCH_TOKENS = {"cpu": 4096}  # at once, about: what its caches hold; another device wants 2^20
LARGEST_GAP = 1e-4  # between logits of float32 and float64: rounding does not explain more, unless logits are large
XLA = f"XLA, jaxlib {version('jaxlib')}, float32"  # the judge that screens, as a certificate names it
FORMAT = 2  # of certificate.json: 2 is a proof


def case(settings: Settings, contexts: Any, params: Any) -> Case:
    """Return the Case of a model.

    Args:
        settings: Settings of its run.
        contexts: The module that lists its contexts, or a function of the settings that returns it.
        params: Parameters of the model.

    Raises:
        UserError: Exit code USAGE, if there is no context, or if the strings of the module are those of another model
            and it has no `whole_rows`, which JAX could be asked.
    """
    contexts = contexts(settings) if callable(contexts) else contexts
    data, cfg = asdict(settings.data), asdict(settings.model)
    why = contexts.fault(data, cfg)
    if why and not hasattr(contexts, "whole_rows"):
        raise UserError(f"the contexts are not those of this model: {why}; train with the recipe's own flags")
    why = why or network.beyond(cfg, contexts)
    weights = {} if why else network.complete(stored(params), cfg, contexts)
    found = Case(contexts, data, cfg, weights, why)
    if found.total == 0:
        raise UserError("no progression of this run has a third term: there is nothing to certify")
    return found


def stored(params: Any) -> dict[str, np.ndarray]:
    """Return {name: float64 array} of parameters, by their names in a file of weights."""
    return {name: np.asarray(leaf, np.float64) for name, leaf in leaves.named(params).items()}


def provable(case: Case, tally: dict) -> dict:
    """Return the tally of numpy of the contexts with the smallest margins of another tally: a quick first look."""
    return check.judged(case, np.array([context["column"] for context in tally["worst"]], np.int64).T)


# The judge that screens


def screen(case: Case, model: Model, tally: dict = check.TALLY) -> Iterator[dict]:
    """Yield the tally of JAX after each slice that it does not hold yet, as check.prove yields that of numpy."""
    for columns in islice(case.slices(), tally["slices"], None):
        tally = check.added(tally, screened(case, model, columns))
        yield tally


def screened(case: Case, model: Model, columns: np.ndarray) -> dict:
    """Return the tally of JAX of a slice. Contexts that no text holds count as right: numpy alone asks them."""
    codes_NKC, truth_NKC = case.strings(columns)
    asked_NKC = truth_NKC < case.cfg["vocab_size"]
    logits_NKCV, held_NKC = asked_logits(case, model, columns, codes_NKC, asked_NKC)
    margin_NKC = np.where(asked_NKC, np.float32(-check.LEAST), np.float32(np.inf))
    margin_NKC[held_NKC] = check.margins(logits_NKCV[held_NKC], truth_NKC[held_NKC])
    told = check.tallied(case, columns, margin_NKC, logits_NKCV.argmax(-1))
    return told | {"strings": int(held_NKC.sum()), "wrong": int((margin_NKC <= 0).sum())}


def compare(case: Case, model: Model) -> Iterator[tuple[int, float]]:
    """Yield the strings of each slice, and the largest difference between their logits of JAX and of numpy."""
    logits = getattr(case.contexts, "logits", network.logits)
    for columns in case.slices():
        codes_NKC, truth_NKC = case.strings(columns)
        asked_NKC = truth_NKC < case.cfg["vocab_size"]
        theirs_NKCV, held_NKC = asked_logits(case, model, columns, codes_NKC, asked_NKC)
        codes_M, place_M = np.unique(codes_NKC[held_NKC], return_inverse=True)
        ours_MV = logits(codes_M, case.weights, case.cfg, case.contexts)[place_M]
        with np.errstate(invalid="ignore"):
            apart_MV = np.abs(theirs_NKCV[held_NKC] - ours_MV)
        yield len(place_M), float(np.where(np.isnan(apart_MV), np.inf, apart_MV).max(initial=0.0))


def asked_logits(
    case: Case, model: Model, columns: np.ndarray, codes_NKC: np.ndarray, asked_NKC: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of JAX after each string that is asked, (N, K, C, V), and where there are any, (N, K, C)."""
    (N, K, C), V = asked_NKC.shape, case.cfg["vocab_size"]
    if hasattr(case.contexts, "whole_rows"):
        logits_NAV = last_logits(model, case.contexts.whole_rows(columns, case.data), K * C)
        return logits_NAV.reshape(N, K, C, V), asked_NKC
    logits_NKCV, held_NKC = np.zeros((N, K, C, V), np.float32), np.zeros((N, K, C), bool)
    codes_M, place_M = np.unique(codes_NKC[asked_NKC], return_inverse=True)
    found_MV, held_M = np.zeros((len(codes_M), V), np.float32), np.zeros(len(codes_M), bool)
    for which_B, text_BT in case.contexts.rows(codes_M, case.cfg, case.weights):
        found_MV[which_B] = last_logits(model, np.pad(text_BT, ((0, 0), (0, 1))), 1)[:, 0]
        held_M[which_B] = True
    logits_NKCV[asked_NKC], held_NKC[asked_NKC] = found_MV[place_M], held_M[place_M]
    return logits_NKCV, held_NKC


def last_logits(model: Model, text_NT: np.ndarray, asked: int) -> np.ndarray:
    """Return the logits that predict the last `asked` tokens of texts: (N, asked, V). Tokens that are none become 0."""
    (N, T), each = text_NT.shape, len(devices.taken())
    tokens = BATCH_TOKENS.get(jax.default_backend(), 2**20)
    size = each * max(1, min(tokens // (T * each), -(-N // each)))
    text_NT = np.where(text_NT < model.cfg.vocab_size, text_NT, 0).astype(np.int32)
    found = []
    for first in range(0, N, size):
        text_BT = text_NT[np.minimum(np.arange(first, first + size), N - 1)]  # the last may repeat
        found.append(_last_logits(model, text_BT, asked))
    return np.concatenate(jax.device_get(found))[:N]


@partial(jax.jit, static_argnums=2)
def _last_logits(model: Model, text_BT: jax.Array, asked: int) -> jax.Array:
    return model.apply(text_BT[:, :-1])[:, -asked:].astype(jnp.float32)


# What a tally comes to


def conclude(case: Case, tally: dict, proof: bool) -> dict:
    """Return the certificate that a finished tally allows, a dict that JSON can hold; proof: whether it is of numpy."""
    tally = tally if proof else tally | {"covered": tally["strings"]}
    theorem, rounding, faults = check.verdict(tally, case.total, case.bounded)
    claim = f"greedy decoding rightly continues {case.contexts.claim(case.data, case.cfg)}"
    witness = f"numpy {np.__version__}, float64" if proof else XLA
    depends = case.contexts.depends(case.data, case.cfg) if hasattr(case.contexts, "depends") else ""
    claim = claim if proof else f"screened, and not proven: {claim}"
    kept = ("contexts", "errors", "smallest_margin", "strings", "least_ratio", "largest", "parts", "worst")
    return {
        "format": FORMAT,
        "certified": proof and theorem and (rounding or not case.bounded),
        "theorem": proof and theorem,
        "rounding": (proof and rounding) if case.bounded else None,
        "screened": not proof and not faults,
        "claim": "; ".join(faults) or claim,
        "depends": depends,
        "witnesses": [{"witness": witness}],
    } | {name: tally[name] for name in kept}
