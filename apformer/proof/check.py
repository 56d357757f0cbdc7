"""Proof that a trained model makes no error: `python check.py [--theorem]` in the folder that holds the model.

It needs Python and numpy: no compiler, no JAX, and nothing of apformer. Here is the proof itself:

1. read the weights, which must be those of the certificate
2. compute the logits after every string of tokens that a prediction depends on, which contexts.py lists (network.py)
3. demand that the right character has the largest

It prints two lines.

    Theorem     The network, computed exactly, is right everywhere. The script computes in float64, which rounds at
                1e-16. It asks that the smallest margin is above SAFE times the largest logit. SAFE is not a bound that
                we have proven, but far more than the rounding that we have seen.
    Rounding    The network is also right in IEEE float32, in any order of sums, if no number underflows. The bounds of
                bounds.py show it. float64 rounds 2^29 times as finely as float32. So where these bounds hold, the
                rounding of float64 has not changed the sign of a margin either. --theorem leaves this line out.

A tally is kept beside this file, so that a proof that was stopped goes on. Exit codes: 0 the theorem is proven, 1 it is
not, 2 a file is at fault.
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
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread has a batch of its own, and they would wait
import numpy as np

from apformer.proof import network, rounding

SAFE = 1e-6
LEAST = float(np.finfo(np.float32).min)  # the margin where a logit is not finite
WORST = 20  # contexts that are named
KEEP_EVERY = 30  # seconds
TALLY = {"slices": 0, "strings": 0, "wrong": 0, "covered": 0, "largest": 0.0, "least_ratio": None}
TALLY |= {"parts": {}, "worst": [], "contexts": 0, "errors": 0, "smallest_margin": None}


def demand(holds: bool, fault: str | None) -> None:
    """End with exit code 2 and the fault, unless something holds."""
    if not holds:
        said = "".join(letter if letter.isprintable() else "?" for letter in str(fault)[:1000])  # it may quote a file
        print(f"check.py: {said}", file=sys.stderr)
        sys.exit(2)


# 1. The weights


class Case(NamedTuple):
    """A model, and the module that lists the contexts to ask it."""

    contexts: ModuleType
    data: dict
    cfg: dict
    weights: dict  # of network.complete; none of a model that numpy does not compute
    why: str | None = None  # it does not compute it

    @property
    def total(self) -> int | None:
        """The number of contexts, where the module says it."""
        return self.contexts.count(self.data, self.cfg) if hasattr(self.contexts, "count") else None

    @property
    def bounded(self) -> bool:
        """True where rounding is bounded: a module with `logits` of its own needs `judge`, too."""
        return hasattr(self.contexts, "judge") or not hasattr(self.contexts, "logits")

    def slices(self) -> Iterator[np.ndarray]:
        """Yield the contexts, a column each, many at a time."""
        return self.contexts.slices(self.data, self.cfg, self.weights)

    def strings(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the strings of contexts and the right characters, (rows, contexts, characters) each."""
        codes, truth = self.contexts.strings(columns, self.data, self.cfg)
        shape = len(codes), -1, codes.shape[-1]
        return codes.reshape(shape), truth.reshape(shape)


def read(folder: Path, contexts: ModuleType) -> tuple[Case, dict]:
    """Return the model and the certificate of a folder, whose files must belong together."""
    cfg, data = (json.loads((folder / "config.json").read_text())[part] for part in ("model", "data"))
    certificate = json.loads((folder / "certificate.json").read_text())
    wrong = contexts.fault(data, cfg) or network.beyond(cfg, contexts)
    demand(wrong is None, wrong)
    weights = read_safetensors(folder / "model.safetensors")
    shapes = {name: array.shape for name, array in weights.items()}
    demand(shapes == network.shapes(cfg, contexts), "model.safetensors has other names or shapes than config.json says")
    names = sorted(weights, key=lambda name: name.split("."))
    digest = hashlib.sha256(b"".join(weights[name].tobytes() for name in names))
    demand(digest.hexdigest() == certificate["parameters_sha256"], "the certificate is of other weights")
    demand((certificate["model"], certificate["data"]) == (cfg, data), "the certificate is of another config.json")
    demand(type(certificate["contexts"]) is int and certificate["contexts"] > 0, "the certificate is of no contexts")
    for name, value in data.items():  # True is 1 to Python, and 2.0 is 2
        demand(type(value) not in (bool, float), f"{name} {value} in config.json is no whole number")
    return Case(contexts, data, cfg, network.complete(weights, cfg, contexts)), certificate


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return {name: float32 array} of a file (https://huggingface.co/docs/safetensors)."""
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


# 2. The judge of some contexts


def judged(case: Case, columns: np.ndarray, exact: bool = False) -> dict:
    """Return the tally of the contexts of a slice; exact: without the bounds of rounding."""
    contexts, _, cfg, weights, _ = case
    codes_NKC, truth_NKC = case.strings(columns)
    pair_NKC, asked_NKC = truth_NKC * (size := codes_NKC.max() + 1) + codes_NKC, truth_NKC < cfg["vocab_size"]
    pairs = network.distinct(pair_NKC[asked_NKC])  # a string with two right characters is wrong in one of them
    right, codes = np.divmod(pairs, size)
    if exact := exact or not case.bounded:
        found, ratio = getattr(contexts, "logits", network.logits)(codes, weights, cfg, contexts), np.zeros(len(codes))
    else:
        found, ratio = getattr(contexts, "judge", rounding.judge)(codes, right, weights, cfg, contexts)
    margin = margins(found, right)
    place = np.where(asked_NKC, np.searchsorted(pairs, pair_NKC), 0)
    told = tallied(case, columns, np.where(asked_NKC, margin[place], np.inf), found.argmax(1)[place])
    told |= {"strings": len(margin), "wrong": int((margin <= 0).sum()), "covered": int((ratio > 1).sum())}
    return told | {"largest": float(np.abs(found).max()), "least_ratio": None if exact else float(ratio.min())}


def margins(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the logit of the right token - the largest other one, (...), of numpy or JAX arrays (..., V) and (...).

    It is LEAST where not all logits are finite: reductions of XLA may drop NaN, and here it must count as wrong.
    """
    xp = logits.__array_namespace__()
    token = xp.broadcast_to(xp.arange(logits.shape[-1]), logits.shape)
    others = xp.where(token == right[..., None], -xp.inf, logits).max(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        margin = xp.take_along_axis(logits, right[..., None], -1)[..., 0] - others
    return xp.where(xp.isfinite(logits).all(-1), margin, LEAST)


def tallied(case: Case, columns: np.ndarray, margin_NKC: np.ndarray, said_NKC: np.ndarray) -> dict:
    """Return the tally of contexts, of the margin of each character, inf for none, and the most likely character."""
    contexts, data, margin_NK, (N, K, C) = case.contexts, case.data, margin_NKC.min(2), margin_NKC.shape
    parts = {name: part(margin_NK[rows]) for name, rows in contexts.parts(columns, data).items()}
    worst = np.argpartition(margin_NK, min(WORST, N * K) - 1, axis=None)[:WORST]
    worst = worst[np.argsort(margin_NK.flat[worst], kind="stable")]
    characters = contexts.characters(data) if hasattr(contexts, "characters") else "0123456789 "
    named = []
    for n, k in (divmod(int(number), K) for number in worst):
        if margin_NK[n, k] < np.inf:
            column, place = columns[:, n].tolist(), k * C + int(margin_NKC[n, k].argmin())
            given, right = contexts.text(column, place, data)
            said = characters[said_NKC[n, k, place % C]]
            what = {"given": given, "expected": right, "predicted": said, "margin": float(margin_NK[n, k])}
            named.append(what | {"column": column, "place": place})
    return TALLY | part(margin_NK) | {"slices": 1, "parts": parts, "worst": named}


def part(margin_NK: np.ndarray) -> dict:
    """Return the number of contexts and of errors, and the smallest margin; inf stands for no context."""
    margin_M = margin_NK[margin_NK < np.inf]
    least = float(margin_M.min()) if len(margin_M) else None
    return {"contexts": len(margin_M), "errors": int((margin_M <= 0).sum()), "smallest_margin": least}


def added(tally: dict, other: dict) -> dict:
    """Return one tally of two."""
    return {name: ADDED.get(name, add)(number, other[name]) for name, number in tally.items()}


def least(*numbers: float | None) -> float | None:
    """Return the smallest of the numbers that there are."""
    return min((number for number in numbers if number is not None), default=None)


ADDED = {  # how two tallies become one; all else is a count
    "largest": max,
    "least_ratio": least,
    "smallest_margin": least,
    "worst": lambda one, other: sorted(one + other, key=lambda context: context["margin"])[:WORST],
    "parts": lambda one, other: {
        name: added(one[name], other[name]) if name in one and name in other else part
        for name, part in (one | other).items()
    },
}


# 3. The proof


def prove(case: Case, tally: dict = TALLY, exact: bool = False) -> Iterator[dict]:
    """Yield the tally after each slice that it does not hold yet; exact: without the bounds of rounding."""
    for columns in islice(case.slices(), tally["slices"], None):
        tally = added(tally, judged(case, columns, exact))
        yield tally


def verdict(tally: dict, total: int | None, bounded: bool = True) -> tuple[bool, bool, list[str]]:
    """Return (whether the theorem is proven, whether rounding is, what speaks against what can be proven)."""
    contexts, least, faults = tally["contexts"], tally["smallest_margin"], []
    if not contexts or total not in (None, contexts):
        faults.append(f"{contexts:,} contexts were asked where there are {total or 0:,}")
    if tally["errors"]:
        faults.append(f"{tally['errors']:,} of {contexts:,} contexts are continued wrongly")
    elif contexts and not least > SAFE * tally["largest"]:
        faults.append(f"the smallest margin, {least:.3g}, is of the size of the rounding of float64")
    theorem, covered = not faults, tally["covered"] == tally["strings"]
    if theorem and bounded and not covered:
        left, ratio = tally["strings"] - tally["covered"], tally["least_ratio"]
        characters = f"{left:,} of {tally['strings']:,} characters"
        faults.append(f"rounding may change {characters}: a margin is {ratio:.3g} times its bound")
    return theorem, theorem and covered, faults


def main(folder: Path, contexts: ModuleType, exact: bool = False) -> int:
    """Prove the model of a folder, print what is proven or what speaks against it, and return the exit code."""
    try:
        case, certificate = read(folder, contexts)
        total, place, kept = certificate["contexts"], folder / "check.tally.json", time.monotonic()
        identity = [certificate["parameters_sha256"], exact]
        tally = resumed(place, identity).get("tally", TALLY)
        for tally in prove(case, tally, exact):  # noqa: B020
            print(f"\r{tally['contexts'] / total:4.0%} of {total:,} contexts", end="", file=sys.stderr, flush=True)
            if time.monotonic() - kept > KEEP_EVERY:
                kept = time.monotonic()
                with suppress(OSError):  # a folder that cannot be written is proven, too
                    place.write_text(json.dumps(sealed({"identity": identity, "tally": tally})))
        with suppress(OSError):
            place.unlink(missing_ok=True)
        print(f"\r{' ' * 50}\r", end="", file=sys.stderr)
        code = say(tally, contexts.claim(case.data, case.cfg), total, exact or not case.bounded)
        print(f"sha256 of the weights: {certificate['parameters_sha256']}")
        return code
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        demand(False, f"the files in {folder} cannot be read ({error!r}): export them again")
        raise


def say(tally: dict, claim: str, total: int, exact: bool) -> int:
    """Print both lines, and return the exit code."""
    strings, least = f"distinct strings {tally['strings']:,}, wrong {tally['wrong']:,}", tally["smallest_margin"]
    print(f"contexts {tally['contexts']:,}, {strings}, smallest margin {'-' if least is None else f'{least:.6g}'}")
    demand(tally["contexts"] == total, f"the certificate is of {total:,} contexts")
    theorem, rounded, faults = verdict(tally, total)
    if not theorem:
        worst = tally["worst"][0]
        print(f"NOT PROVEN: {faults[0]}; after {worst['given']!r} {worst['expected']!r} has to follow")
        return 1
    print(f"PROVEN, the theorem: in exact arithmetic these weights rightly continue {claim}")
    if not exact:
        ratio = f"the least margin is {tally['least_ratio']:.3g} times its bound"
        word = "PROVEN" if rounded else "NOT PROVEN"
        print(f"{word}, rounding: so does any float32 computation, after {tally['covered']:,} of the strings; {ratio}")
    return 0


def sealed(kept: dict) -> dict:
    """Return what a file keeps of a proof that goes on later, with its sha256."""
    return kept | {"sha256": hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()}


def resumed(path: Path, identity: object) -> dict:
    """Return what a file keeps of the very same proof; nothing if there is no such file, or it is damaged."""
    try:
        kept = json.loads(path.read_bytes())
        said = kept.pop("sha256")
        return kept if (kept["identity"], said) == (identity, sealed(kept)["sha256"]) else {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


if __name__ == "__main__":
    import contexts  # pyright: ignore[reportMissingImports], which stands beside an exported check.py

    demand(sys.argv[1:] in ([], ["--theorem"]), f"unknown flags {sys.argv[1:]}: python check.py [--theorem]")
    sys.exit(main(Path(__file__).parent, contexts, "--theorem" in sys.argv[1:]))
