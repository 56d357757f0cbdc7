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
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

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


def read(folder: Path, contexts: ModuleType) -> tuple[dict, dict, dict, dict]:
    """Return (weights, Config, data, certificate) of the files of a folder, which must belong together."""
    cfg, data = (json.loads((folder / "config.json").read_text())[part] for part in ("model", "data"))
    certificate = json.loads((folder / "certificate.json").read_text())
    wrong = contexts.fault(data, cfg) or network.beyond(cfg, contexts)
    demand(wrong is None, wrong)
    weights, raw = read_safetensors(folder / "model.safetensors")
    shapes = {name: array.shape for name, array in weights.items()}
    demand(shapes == network.shapes(cfg, contexts), "model.safetensors has other names or shapes than config.json says")
    digest = hashlib.sha256(b"".join(raw[name] for name in sorted(raw, key=lambda name: name.split("."))))
    demand(digest.hexdigest() == certificate["parameters_sha256"], "the certificate is of other weights")
    demand((certificate["model"], certificate["data"]) == (cfg, data), "the certificate is of another config.json")
    demand(type(certificate["contexts"]) is int and certificate["contexts"] > 0, "the certificate is of no contexts")
    for name, value in data.items():  # True is 1 to Python, and 2.0 is 2
        demand(type(value) not in (bool, float), f"{name} {value} in config.json is no whole number")
    return network.complete(weights, cfg, contexts), cfg, data, certificate


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
    """Return {name: float64 array} and {name: its bytes} of a file (https://huggingface.co/docs/safetensors)."""
    file = path.read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header, arrays, raw, at = json.loads(file[8:begin]), {}, {}, 0
    header.pop("__metadata__", None)
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, at_next = facts["data_offsets"]
        demand(facts["dtype"] == "F32" and first == at, f"{name} is not float32, or does not follow what is before it")
        raw[name], at = file[begin + first : begin + at_next], at_next
        numbers = np.frombuffer(raw[name], "<f4")
        demand(np.isfinite(numbers).all(), f"{name} has numbers that are not finite")
        arrays[name] = numbers.astype(np.float64).reshape(facts["shape"])
    demand(begin + at == len(file), f"{path.name} ends too early or too late")
    return arrays, raw


# 2. The judge of some contexts


def judged(
    contexts: ModuleType, weights: dict, cfg: dict, data: dict, columns: np.ndarray, exact: bool = False
) -> dict:
    """Return the tally of the contexts of a slice; exact: without the bounds of rounding."""
    codes_NKC, truth_NKC = strings(contexts, data, cfg, columns)
    pair_NKC, asked_NKC = truth_NKC * (size := codes_NKC.max() + 1) + codes_NKC, truth_NKC < cfg["vocab_size"]
    pairs = network.distinct(pair_NKC[asked_NKC])  # a string with two right characters is wrong in one of them
    right, codes = np.divmod(pairs, size)
    if exact:
        found, ratio = getattr(contexts, "logits", network.logits)(codes, weights, cfg, contexts), np.zeros(len(codes))
    else:
        found, ratio = getattr(contexts, "judge", rounding.judge)(codes, right, weights, cfg, contexts)
    margin = margins(found, right)
    place = np.where(asked_NKC, np.searchsorted(pairs, pair_NKC), 0)
    told = tallied(contexts, data, columns, np.where(asked_NKC, margin[place], np.inf), found.argmax(1)[place])
    wrong, covered, largest = int((margin <= 0).sum()), int((ratio > 1).sum()), float(np.abs(found).max(initial=0.0))
    numbers = {"strings": len(margin), "wrong": wrong, "covered": covered, "largest": largest}
    return told | numbers | {"least_ratio": float(ratio.min(initial=np.inf))}


def strings(contexts: ModuleType, data: dict, cfg: dict, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the strings of contexts and the right characters, (rows, contexts, characters) each."""
    codes, truth = contexts.strings(columns, data, cfg)
    shape = len(codes), -1, codes.shape[-1]
    return codes.reshape(shape), truth.reshape(shape)


def margins(found: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the logit of the right character - the largest other one of each row; LEAST if not all are finite."""
    logit = np.take_along_axis(found, right[:, None], 1)[:, 0]
    others = found.copy()
    np.put_along_axis(others, right[:, None], -np.inf, 1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(found).all(1), logit - others.max(1), LEAST)


def tallied(
    contexts: ModuleType, data: dict, columns: np.ndarray, margin_NKC: np.ndarray, said_NKC: np.ndarray
) -> dict:
    """Return the tally of contexts, of the margin of each character, inf for none, and the most likely character."""
    margin_NK, (N, K, C) = margin_NKC.min(2), margin_NKC.shape
    parts = contexts.parts(columns, data) if hasattr(contexts, "parts") else {"all": np.ones(N, bool)}
    found = {name: margin_NK[rows] for name, rows in parts.items()}
    found = {name: part(margins[margins < np.inf]) for name, margins in found.items()}
    worst = np.argpartition(margin_NK, min(WORST, N * K) - 1, axis=None)[:WORST]
    worst = worst[np.argsort(margin_NK.flat[worst], kind="stable")]
    characters = contexts.characters(data) if hasattr(contexts, "characters") else "0123456789 "
    named = []
    for n, k in zip(*np.unravel_index(worst, (N, K)), strict=True):
        if margin_NK[n, k] < np.inf:
            column, place = [int(number) for number in columns[:, n]], int(k * C + margin_NKC[n, k].argmin())
            given, right = contexts.text(column, place, data)
            said = characters[said_NKC[n, k, place % C]]
            what = {"given": given, "expected": right, "predicted": said, "margin": float(margin_NK[n, k])}
            named.append(what | {"column": column, "place": place})
    return {"slices": 1, "parts": found, "worst": named} | together(found.values())


def part(margins: np.ndarray) -> dict:
    """Return the counts of contexts and errors, and the smallest of these margins."""
    least = float(margins.min()) if len(margins) else None
    return {"contexts": len(margins), "errors": int((margins <= 0).sum()), "smallest_margin": least}


def together(parts: Iterable[dict]) -> dict:
    """Return the counts of several parts, and the smallest margin of all."""
    parts = [part for part in parts if part["contexts"]]
    least = min((part["smallest_margin"] for part in parts), default=None)
    return {name: sum(part[name] for part in parts) for name in ("contexts", "errors")} | {"smallest_margin": least}


def added(tally: dict, other: dict) -> dict:
    """Return one tally of two."""
    none = part(np.empty(0))
    parts = {
        name: together([tally["parts"].get(name, none), other["parts"].get(name, none)])
        for name in {**tally["parts"], **other["parts"]}
    }
    worst = sorted(tally["worst"] + other["worst"], key=lambda context: context["margin"])[:WORST]
    sums = {name: tally[name] + other.get(name, 0) for name in ("slices", "strings", "wrong", "covered")}
    bounds = {"largest": max(tally["largest"], other.get("largest", 0.0))}
    ratios = [each for each in (tally["least_ratio"], other.get("least_ratio")) if each is not None]
    bounds["least_ratio"] = min(ratios, default=None)
    return sums | bounds | {"parts": parts, "worst": worst} | together(parts.values())


# 3. The proof


def prove(
    contexts: ModuleType, weights: dict, cfg: dict, data: dict, tally: dict = TALLY, exact: bool = False
) -> Iterator[dict]:
    """Yield the tally after each slice that it does not hold yet; exact: without the bounds of rounding."""
    for columns in islice(contexts.slices(data, cfg, weights), tally["slices"], None):
        tally = added(tally, judged(contexts, weights, cfg, data, columns, exact))
        yield tally


def verdict(tally: dict, total: int | None) -> tuple[bool, bool, list[str]]:
    """Return (whether the theorem is proven, whether rounding is, what speaks against either)."""
    contexts, least, faults = tally["contexts"], tally["smallest_margin"], []
    if contexts != (contexts if total is None else total) or not contexts:
        faults.append(f"{contexts:,} contexts were asked where there are {total or 0:,}")
    if tally["errors"]:
        faults.append(f"{tally['errors']:,} of {contexts:,} contexts are continued wrongly")
    elif contexts and not least > SAFE * tally["largest"]:
        faults.append(f"the smallest margin, {least:.3g}, is of the size of the rounding of float64")
    theorem, covered = not faults, tally["covered"] == tally["strings"]
    if theorem and not covered:
        left, ratio = tally["strings"] - tally["covered"], tally["least_ratio"]
        characters = f"{left:,} of {tally['strings']:,} characters"
        faults.append(f"rounding may change {characters}: a margin is {ratio:.3g} times its bound")
    return theorem, theorem and covered, faults


def main(folder: Path, contexts: ModuleType, exact: bool = False) -> int:
    """Prove the model of a folder, print what is proven or what speaks against it, and return the exit code."""
    try:
        weights, cfg, data, certificate = read(folder, contexts)
        identity, kept = [certificate["parameters_sha256"], exact], time.monotonic()
        tally, place = resumed(folder / "check.tally.json", identity), folder / "check.tally.json"
        for tally in prove(contexts, weights, cfg, data, tally, exact):  # noqa: B020
            share = tally["contexts"] / certificate["contexts"]
            print(f"\r{share:4.0%} of {certificate['contexts']:,} contexts", end="", file=sys.stderr, flush=True)
            if time.monotonic() - kept > KEEP_EVERY:
                kept = time.monotonic()
                keep(place, identity, tally)
        keep(place, identity, None)
        print(f"\r{' ' * 50}\r", end="", file=sys.stderr)
        return say(tally, contexts.claim(data, cfg), certificate["contexts"], exact)
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


def keep(path: Path, identity: list, tally: dict | None) -> None:
    """Write the tally, whole or not at all, or remove it; nothing where the folder cannot be written."""
    try:
        if tally is None:
            path.unlink(missing_ok=True)
            return
        path.with_suffix(".tmp").write_text(json.dumps([identity, tally]))
        path.with_suffix(".tmp").replace(path)
    except OSError:
        pass


def resumed(path: Path, identity: list) -> dict:
    """Return the tally of a proof of the same weights that was stopped; an empty one if there is none."""
    try:
        found, tally = json.loads(path.read_text())
        return tally if found == identity and tally.keys() == TALLY.keys() else TALLY
    except (OSError, ValueError, TypeError, AttributeError):
        return TALLY


if __name__ == "__main__":
    import contexts

    demand(sys.argv[1:] in ([], ["--theorem"]), f"unknown flags {sys.argv[1:]}: python check.py [--theorem]")
    sys.exit(main(Path(__file__).parent, contexts, "--theorem" in sys.argv[1:]))
