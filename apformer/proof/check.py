"""Prove that a trained model makes no error: `python check.py [--theorem]` in the folder of the model.

It needs Python and numpy: no compiler, no JAX, and in a folder that `apformer export --to proof` wrote, nothing of
apformer. The proof has three steps:

1. Read the weights, and compare their SHA-256 with that of the certificate.
2. Compute the logits after every string of tokens that a prediction depends on. contexts.py lists these strings, some
   for each context; network.py computes the logits.
3. Require that the right token has the largest logit.

It prints two verdicts:

    Theorem     The network, in exact arithmetic, is right in every context. The script computes in float64, with a
                relative rounding of 1e-16, and requires that the smallest margin is above SAFE times the largest logit.
                SAFE is not a proven bound, but far more than any rounding that we have seen.
    Rounding    The network is also right in IEEE float32, in any order of sums: each margin is above a bound of its
                rounding (bounds.py). float64 rounds 2^29 times as finely as float32. So where these bounds hold, the
                rounding of float64 has not changed the sign of a margin either. --theorem leaves this line out.

The tally is saved beside this file, so that a stopped proof can continue. Exit codes: 0 the theorem is proven,
1 it is not, 2 a file is at fault.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from operator import add
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # network.map_batches has its own threads
import numpy as np

from apformer.proof import network, rounding

SAFE = 1e-6  # smallest margin of a theorem, as a share of the largest logit
NORMAL = 1e-30  # smallest margin of a theorem: far above the underflow of float32
LEAST = float(np.finfo(np.float32).min)  # margin of a string whose logits are not all finite
WORST = 20  # contexts with the smallest margins that a tally lists
SAVE_EVERY = 30  # seconds
# wrong: strings that are continued wrongly; covered: strings whose margin is above its bound; largest: size of a logit.
TALLY = {"slices": 0, "strings": 0, "wrong": 0, "covered": 0, "largest": 0.0, "least_ratio": None}
TALLY |= {"parts": {}, "worst": [], "contexts": 0, "errors": 0, "smallest_margin": None}


def demand(condition: bool, fault: str | None) -> None:
    """Print the fault and end with exit code 2 unless the condition is true."""
    if not condition:
        line = "".join(letter if letter.isprintable() else "?" for letter in str(fault)[:1000])  # it may quote a file
        print(f"check.py: {line}", file=sys.stderr)
        sys.exit(2)


# 1. The weights


class Case(NamedTuple):
    """A model, and the module that lists its contexts."""

    contexts: ModuleType
    data: dict
    cfg: dict
    weights: dict  # result of network.complete; empty for a model that numpy does not compute
    fault: str | None = None  # why numpy does not compute the model
    exact: bool = False  # whether to leave out the bounds of rounding

    @property
    def total(self) -> int | None:
        """Return the number of contexts; None if the module has no `count`."""
        return self.contexts.count(self.data, self.cfg) if hasattr(self.contexts, "count") else None

    @property
    def bounded(self) -> bool:
        """Return whether rounding is bounded. A module with its own `logits` needs its own `bounded_logits`."""
        return not self.exact and (hasattr(self.contexts, "bounded_logits") or not hasattr(self.contexts, "logits"))

    def slices(self) -> Iterator[np.ndarray]:
        """Yield slices of the contexts: arrays with a column for each row of contexts."""
        return self.contexts.slices(self.data, self.cfg, self.weights)


def read(folder: Path, contexts: ModuleType) -> tuple[Case, dict]:
    """Return the model and the certificate of a folder; end with exit code 2 if its files do not belong together."""
    cfg, data = (json.loads((folder / "config.json").read_text())[part] for part in ("model", "data"))
    certificate = json.loads((folder / "certificate.json").read_text())
    fault = contexts.fault(data, cfg) or network.unsupported(cfg, contexts)
    demand(fault is None, fault)
    weights = read_safetensors(folder / "model.safetensors")
    shapes = {name: array.shape for name, array in weights.items()}
    demand(shapes == network.shapes(cfg, contexts), "model.safetensors has other names or shapes than config.json says")
    names = sorted(weights, key=lambda name: name.split("."))
    digest = hashlib.sha256(b"".join(weights[name].tobytes() for name in names))
    demand(digest.hexdigest() == certificate["parameters_sha256"], "the certificate is of other weights")
    demand((certificate["model"], certificate["data"]) == (cfg, data), "the certificate is of another config.json")
    demand(type(certificate["contexts"]) is int and certificate["contexts"] > 0, "the certificate is of no contexts")
    for name, value in data.items():  # True == 1 and 2.0 == 2
        demand(type(value) not in (bool, float), f"{name} {value} in config.json is not a whole number")
    return Case(contexts, data, cfg, network.complete(weights, cfg, contexts)), certificate


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return {name: float32 array} of a file of safetensors (https://huggingface.co/docs/safetensors)."""
    file = path.read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header, arrays, at = json.loads(file[8:begin]), {}, begin
    header.pop("__metadata__", None)
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, end = (begin + offset for offset in facts["data_offsets"])
        demand(facts["dtype"] == "F32" and first == at, f"{name} is not float32, or does not follow what is before it")
        arrays[name], at = np.frombuffer(file[first:end], "<f4").reshape(facts["shape"]), end
        demand(np.isfinite(arrays[name]).all(), f"{name} has numbers that are not finite")
    demand(len(file) == at, f"{path.name} ends too early or too late")
    return arrays


# 2. The tally of a slice of contexts


def prove_slice(case: Case, columns: np.ndarray) -> dict:
    """Compute the tally of the contexts of a slice."""
    contexts, data, cfg, weights, *_ = case
    codes_NKC, right_NKC = contexts.strings(columns, data, cfg)
    size, used_NKC = codes_NKC.max() + 1, right_NKC < cfg["vocab_size"]  # rows of fewer contexts are padded
    pair_NKC = right_NKC * size + codes_NKC
    pairs = network.distinct(pair_NKC[used_NKC])  # a string with two right tokens is wrong for one of them
    right, codes = np.divmod(pairs, size)
    if case.bounded:
        bounded_logits = getattr(contexts, "bounded_logits", rounding.bounded_logits)
        logits, ratio = bounded_logits(codes, right, weights, cfg, contexts)
    else:
        logits, ratio = getattr(contexts, "logits", network.logits)(codes, weights, cfg, contexts), np.zeros(len(codes))
    margin = margins(logits, right)
    place = np.where(used_NKC, np.searchsorted(pairs, pair_NKC), 0)
    tally = tally_contexts(case, columns, np.where(used_NKC, margin[place], np.inf), logits.argmax(1)[place])
    tally |= {"strings": len(margin), "wrong": int((margin <= 0).sum()), "covered": int((ratio > 1).sum())}
    return tally | {"largest": float(np.abs(logits).max()), "least_ratio": float(ratio.min()) if case.bounded else None}


def margins(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the logit of the right token minus the largest other one, of numpy or JAX arrays (..., V) and (...).

    It is LEAST where a logit is not finite, so that NaN counts as wrong: reductions of XLA may drop it.
    """
    xp = logits.__array_namespace__()
    token = xp.broadcast_to(xp.arange(logits.shape[-1]), logits.shape)
    others = xp.where(token == right[..., None], -xp.inf, logits).max(-1)
    with np.errstate(all="ignore"):
        margin = xp.take_along_axis(logits, right[..., None], -1)[..., 0] - others
    return xp.where(xp.isfinite(logits).all(-1), margin, LEAST)


def tally_contexts(case: Case, columns: np.ndarray, margin_NKC: np.ndarray, predicted_NKC: np.ndarray) -> dict:
    """Return the tally of a slice, from the margin of each token (inf for padding) and the most likely token."""
    contexts, data, margin_NK, (N, K, C) = case.contexts, case.data, margin_NKC.min(2), margin_NKC.shape
    parts = {name: summarize(margin_NK[rows]) for name, rows in contexts.parts(columns, data).items()}
    worst = sorted(np.argpartition(margin_NK, min(WORST, N * K) - 1, axis=None)[:WORST], key=margin_NK.item)
    characters = contexts.characters(data) if hasattr(contexts, "characters") else "0123456789 "
    named = []
    for n, k in (divmod(int(number), K) for number in worst):
        if margin_NK[n, k] < np.inf:
            column, place = columns[:, n].tolist(), k * C + int(margin_NKC[n, k].argmin())
            given, expected = contexts.text(column, place, data)
            context = {"given": given, "expected": expected, "predicted": characters[predicted_NKC[n, k, place % C]]}
            named.append(context | {"margin": float(margin_NK[n, k]), "column": column, "place": place})
    return TALLY | summarize(margin_NK) | {"slices": 1, "parts": parts, "worst": named}


def summarize(margin_NK: np.ndarray) -> dict:
    """Return the numbers of contexts and errors, and the smallest margin; a margin of inf stands for padding."""
    margin_M = margin_NK[margin_NK < np.inf]
    least = float(margin_M.min()) if len(margin_M) else None
    return {"contexts": len(margin_M), "errors": int((margin_M <= 0).sum()), "smallest_margin": least}


def merge(tally: dict, other: dict) -> dict:
    """Merge two tallies."""
    return {name: MERGE.get(name, add)(number, other[name]) for name, number in tally.items()}


def least(*numbers: float | None) -> float | None:
    """Return the smallest number; None if there is none."""
    return min((number for number in numbers if number is not None), default=None)


MERGE = {  # how each entry of two tallies is merged; all others are counts, and added
    "largest": max,
    "least_ratio": least,
    "smallest_margin": least,
    "worst": lambda a, b: sorted(a + b, key=lambda context: context["margin"])[:WORST],
    "parts": lambda a, b: a | b | {name: merge(a[name], b[name]) for name in a if name in b},
}


# 3. The proof


def prove(case: Case, tally: dict = TALLY) -> Iterator[dict]:
    """Yield the tally after each slice that `tally` lacks."""
    for columns in islice(case.slices(), tally["slices"], None):
        tally = merge(tally, prove_slice(case, columns))
        yield tally


def verdict(tally: dict, total: int | None, bounded: bool) -> tuple[bool, bool, list[str]]:
    """Return (whether the theorem is proven, whether rounding is, sentences on what is not) of a finished tally.

    total: the number of contexts; None if it is unknown. bounded: whether the tally has bounds of rounding.
    """
    contexts, least, faults = tally["contexts"], tally["smallest_margin"], []
    if not contexts or total not in (None, contexts):
        faults.append(f"{contexts:,} of {total or 0:,} contexts were computed")
    if tally["errors"]:
        faults.append(f"{tally['errors']:,} of {contexts:,} contexts are continued wrongly")
    elif contexts and not least > max(SAFE * tally["largest"], NORMAL):
        faults.append(f"the smallest margin, {least:.3g}, is of the size of rounding")
    theorem, unbounded = not faults, tally["strings"] - tally["covered"]
    if theorem and bounded and unbounded:
        characters = f"{unbounded:,} of {tally['strings']:,} characters"
        faults.append(f"rounding may change {characters}: a margin is {tally['least_ratio']:.3g} times its bound")
    return theorem, theorem and not unbounded, faults


def main(folder: Path, contexts: ModuleType, exact: bool = False) -> int:
    """Prove the model of a folder, print the verdict, and return the exit code."""
    try:
        case, certificate = read(folder, contexts)
        case = case._replace(exact=exact)
        total, path, saved = certificate["contexts"], folder / "check.tally.json", time.monotonic()
        identity = [certificate, exact]
        tally = load_partial(path, identity).get("tally", TALLY)
        for tally in prove(case, tally):  # noqa: B020
            print(f"\r{tally['contexts'] / total:4.0%} of {total:,} contexts", end="", file=sys.stderr, flush=True)
            if time.monotonic() - saved > SAVE_EVERY:
                saved, new = time.monotonic(), path.with_suffix(".new")
                with suppress(OSError):  # the folder may be read-only
                    new.write_text(json.dumps(with_digest({"identity": identity, "tally": tally})))
                    new.replace(path)
        with suppress(OSError):
            path.unlink()
        print(f"\r{' ' * 50}\r", end="", file=sys.stderr)
        code = print_verdict(tally, contexts.claim(case.data, case.cfg), total, case.bounded)
        print(f"sha256 of the weights: {certificate['parameters_sha256']}")
        return code
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        demand(False, f"the files in {folder} cannot be read ({error!r}): export them again")
        raise


def print_verdict(tally: dict, claim: str, total: int, bounded: bool) -> int:
    """Print the counts and both lines of the verdict, and return the exit code."""
    strings, least = f"distinct strings {tally['strings']:,}, wrong {tally['wrong']:,}", tally["smallest_margin"]
    print(f"contexts {tally['contexts']:,}, {strings}, smallest margin {'-' if least is None else f'{least:.6g}'}")
    demand(tally["contexts"] == total, f"the certificate is of {total:,} contexts")
    theorem, rounded, faults = verdict(tally, total, bounded)
    if not theorem:
        worst = tally["worst"][0]
        print(f"NOT PROVEN: {faults[0]}; after {worst['given']!r} {worst['expected']!r} has to follow")
        return 1
    print(f"PROVEN, the theorem: in exact arithmetic these weights rightly continue {claim}")
    if bounded:
        ratio = f"the least margin is {tally['least_ratio']:.3g} times its bound"
        verb = "PROVEN" if rounded else "NOT PROVEN"
        print(f"{verb}, rounding: so does any float32 computation, after {tally['covered']:,} of the strings; {ratio}")
    return 0


def with_digest(content: dict) -> dict:
    """Return the content of a JSON file with its sha256."""
    return content | {"sha256": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def load_partial(path: Path, identity: object) -> dict:
    """Load the file of an unfinished proof; {} if there is none, it is of another proof, or it is damaged."""
    try:
        partial = json.loads(path.read_bytes())
        digest = partial.pop("sha256")
        return partial if (partial["identity"], digest) == (identity, with_digest(partial)["sha256"]) else {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


if __name__ == "__main__":
    import contexts  # pyright: ignore[reportMissingImports], which stands beside an exported check.py

    demand(sys.argv[1:] in ([], ["--theorem"]), f"unknown flags {sys.argv[1:]}: python check.py [--theorem]")
    sys.exit(main(Path(__file__).parent, contexts, "--theorem" in sys.argv[1:]))
