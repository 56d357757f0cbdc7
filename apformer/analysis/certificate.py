"""Certify a model: compute its margin in every context of its task, by JAX or by numpy.

    margin = logit of the right token - largest other logit          an error where it is not above 0

A context is a text that the model has to continue by a few tokens; the task's module of contexts lists all of them.
`screen` computes the logits in JAX and float32, by `model.apply`, as decoding does. `prove` (proof/check.py) computes
them in numpy and float64, with bounds of any float32 rounding. Both yield the same tally: the numbers of contexts and
of errors, the smallest margin, and the contexts with the smallest margins.

A module of contexts has the names below, in numpy alone. `data` and `cfg` are the Configs of the data and of the model
as dicts. A string holds the tokens on which a prediction depends, the newest first, as the digits of an integer to the
base vocab_size + 1, lowest digit first; the digit vocab_size stands for a token before the row.

    claim(data, cfg) -> str                 what is continued rightly if no context has an error
    fault(data, cfg) -> str | None          why the strings are not those of this model
    slices(data, cfg, weights)              iterator over arrays of contexts, a column for each of N rows of contexts
    strings(columns, data, cfg)             (strings, right tokens) of a slice, (N, contexts of a row, tokens of a
                                            context); the right token is vocab_size for padding
    parts(columns, data)                    {name: mask (N,)}, the parts of which a certificate counts the errors
    text(column, place, data)               (text, right token) as read by people; place: index of the token in the row
    reads(cfg, layer)                       places in a string on which each key of a layer depends, (keys, tokens);
                                            layers count from 1
    bias(cfg)                               name of the weights that are added to the scores, one for each key
    rows(strings, cfg, weights)             pairs (indices of strings, tokens (n, T) after which they predict), for JAX
    whole_rows(columns, data)               instead: tokens (N, T) that end with those to predict

A module may also have count(data, cfg), the number of contexts; depends(data, cfg), a phrase on what predictions depend
on; characters(data), of the tokens; named(context, data), a record for missed.jsonl; COMPUTED, see `network.COMPUTED`;
FILES, Paths of the files that it imports; logits and bounded_logits, instead of those in network.py and rounding.py.
With its own logits, it needs no reads and bias, and a string is any integer that stands for it.
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

from apformer import files
from apformer.decoding.bind import Model
from apformer.errors import UserError
from apformer.layers import leaves
from apformer.machine import devices
from apformer.proof import check, network
from apformer.proof.check import Case, prove  # noqa: F401, for users of this module
from apformer.settings import Settings, proof_config

BATCH_TOKENS = {"cpu": 4096}  # tokens of a batch, so that it fits into the caches; 2^20 on other devices
LARGEST_GAP = 1e-4  # a larger difference of logits in float32 and float64 is not rounding, unless the logits are large
XLA = f"XLA, jaxlib {version('jaxlib')}, float32"  # the program of `screen`, as a certificate names it
FORMAT = 2  # version of certificate.json


def header(settings: Settings) -> Any:
    """Return the part of certificate.json that names its version and the Configs of a run, in types that JSON has."""
    return files.plain({"format": FORMAT, "model": asdict(settings.model), "data": asdict(settings.data)})


def case(settings: Settings, contexts: Any, params: Any) -> Case:
    """Return the Case of a model: its contexts and its weights.

    Args:
        settings: Settings of its run.
        contexts: The module that lists its contexts, or a function of the settings that returns it.
        params: Parameters of the model.

    Raises:
        UserError: Exit code USAGE, if there is no context, or if the module lists strings of another kind of model and
            has no `whole_rows`, which JAX could compute.
    """
    contexts = contexts(settings) if callable(contexts) else contexts
    data, cfg = asdict(settings.data), proof_config(settings)
    fault = contexts.fault(data, cfg)
    if fault and not hasattr(contexts, "whole_rows"):
        raise UserError(f"the contexts are not those of this model: {fault}; train with the recipe's own flags")
    weights = leaves.named(params)
    single = {name: leaf.shape for name, leaf in weights.items() if leaf.dtype == np.float32}
    fault = fault or network.unsupported(cfg, contexts)
    if not fault and single != network.shapes(cfg, contexts):
        fault = "its parameters are not the float32 arrays that apformer.proof computes"
    weights = {} if fault else network.complete(weights, cfg, contexts)
    case = Case(contexts, data, cfg, weights, fault)
    if case.total == 0:
        raise UserError("the task of this run has no context: there is nothing to certify")
    return case


# Screening


def screen(case: Case, model: Model, tally: dict = check.TALLY) -> Iterator[dict]:
    """Yield the tally after each slice of contexts that `tally` lacks, by JAX's logits; `check.prove` takes numpy's.

    A string that occurs in no text counts as right, since JAX cannot compute it.
    """
    for columns in islice(case.slices(), tally["slices"], None):
        _, right_NKC, logits_NKCV, computed_NKC = query_logits(case, model, columns)
        margin_NKC = np.where(right_NKC < case.cfg["vocab_size"], np.float32(-check.LEAST), np.float32(np.inf))
        margin_NKC[computed_NKC] = check.margins(logits_NKCV[computed_NKC], right_NKC[computed_NKC])
        counts = {"strings": int(computed_NKC.sum()), "wrong": int((margin_NKC <= 0).sum())}
        tally = check.merge(tally, check.tally_contexts(case, columns, margin_NKC, logits_NKCV.argmax(-1)) | counts)
        yield tally


def compare(case: Case, model: Model) -> Iterator[tuple[int, float]]:
    """Yield (number of strings, largest difference between the logits of JAX and of numpy) for each slice."""
    logits = getattr(case.contexts, "logits", network.logits)
    for columns in case.slices():
        codes_NKC, _, jax_NKCV, computed_NKC = query_logits(case, model, columns)
        codes_M, place_M = np.unique(codes_NKC[computed_NKC], return_inverse=True)
        numpy_MV = logits(codes_M, case.weights, case.cfg, case.contexts)[place_M]
        with np.errstate(invalid="ignore"):
            gap_MV = np.abs(jax_NKCV[computed_NKC] - numpy_MV)
        yield len(place_M), float(np.where(np.isnan(gap_MV), np.inf, gap_MV).max(initial=0.0))


def query_logits(case: Case, model: Model, columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (codes_NKC, right_NKC, logits_NKCV, computed_NKC) of a slice: N rows of K contexts, each of C strings.

    computed_NKC is False where JAX has no logits: for padding, and for strings that are in no text.
    """
    (codes_NKC, right_NKC), V = case.contexts.strings(columns, case.data, case.cfg), case.cfg["vocab_size"]
    used_NKC, (N, K, C) = right_NKC < V, right_NKC.shape
    if hasattr(case.contexts, "whole_rows"):
        logits_NTV = last_logits(model, case.contexts.whole_rows(columns, case.data), K * C)
        return codes_NKC, right_NKC, logits_NTV.reshape(N, K, C, V), used_NKC
    filled_NKC = np.where(used_NKC, codes_NKC, codes_NKC[used_NKC].max(initial=0))  # so that padding adds no string
    codes_M, place_NKC = np.unique(filled_NKC, return_inverse=True)
    logits_MV, computed_M = np.zeros((len(codes_M), V), np.float32), np.zeros(len(codes_M), bool)
    for index_B, text_BT in case.contexts.rows(codes_M, case.cfg, case.weights):
        logits_MV[index_B] = last_logits(model, np.pad(text_BT, ((0, 0), (0, 1))), 1)[:, 0]
        computed_M[index_B] = True
    return codes_NKC, right_NKC, logits_MV[place_NKC], computed_M[place_NKC] & used_NKC


def last_logits(model: Model, text_NT: np.ndarray, count: int) -> np.ndarray:
    """Return the logits that predict the last `count` tokens of texts, (N, count, V); ids of no token are padding."""
    (N, T), n_devices = text_NT.shape, len(devices.taken())
    tokens = BATCH_TOKENS.get(jax.default_backend(), 2**20)
    size = n_devices * max(1, min(tokens // (T * n_devices), -(-N // n_devices)))
    text_NT = np.where(text_NT < model.cfg.vocab_size, text_NT, 0).astype(np.int32)
    batches = [  # the last one repeats its last row
        _last_logits(model, text_NT[np.minimum(np.arange(first, first + size), N - 1)], count)
        for first in range(0, N, size)
    ]
    return np.concatenate(jax.device_get(batches))[:N]


@partial(jax.jit, static_argnums=2)
def _last_logits(model: Model, text_BT: jax.Array, count: int) -> jax.Array:
    return model.apply(text_BT[:, :-1])[:, -count:].astype(jnp.float32)


# The certificate of a tally


def conclude(case: Case, tally: dict, proof: bool) -> dict:
    """Return the certificate of a finished tally, as JSON can hold it; proof: whether `prove` computed the tally."""
    theorem, rounding, faults = check.verdict(tally, case.total, proof and case.bounded)
    claim = "screened, and not proven: " * (not proof)
    claim += f"greedy decoding rightly continues {case.contexts.claim(case.data, case.cfg)}"
    witness = f"numpy {np.__version__}, float64" if proof else XLA
    depends = case.contexts.depends(case.data, case.cfg) if hasattr(case.contexts, "depends") else ""
    names = ("contexts", "errors", "smallest_margin", "strings", "least_ratio", "largest", "parts", "worst")
    return {
        "format": FORMAT,
        "certified": proof and not faults,
        "theorem": proof and theorem,
        "rounding": (proof and rounding) if case.bounded else None,
        "screened": not proof and not faults,
        "claim": "; ".join(faults) or claim,
        "depends": depends,
        "witnesses": [{"witness": witness}],
    } | {name: tally[name] for name in names}
