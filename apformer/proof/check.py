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
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from itertools import islice
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread has a slice of its own, and they would wait
import numpy as np

from apformer.proof import network, rounding

SAFE = 1e-6
KEEP_EVERY = 30  # seconds
THREADS = min(os.cpu_count() or 1, 4)  # each holds a slice, which may be a gigabyte
TALLY = {"slices": 0, "asked": 0, "strings": 0, "wrong": 0, "covered": 0, "largest": 0.0, "least": float("inf")}
TALLY |= {"ratio": float("inf"), "after": None}


def demand(holds, fault):
    """End with exit code 2 and the fault, unless something holds."""
    if not holds:
        said = "".join(letter if letter.isprintable() else "?" for letter in fault[:1000])  # it may quote a file
        print(f"check.py: {said}", file=sys.stderr)
        sys.exit(2)


# 1. The weights


def read(folder, contexts):
    """(weights, Config, data, certificate) of the files of a folder, which must belong together."""
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


def read_safetensors(path):
    """{name: float64 array} and {name: its bytes} of a file (https://huggingface.co/docs/safetensors)."""
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


# 2. The logits after every string


def ask(codes, truth, weights, cfg, contexts):
    """(strings, right characters, logits, margins) of the distinct strings among these; all but the first for each."""
    base = network.radix(cfg)
    pairs = network.distinct(codes * base + truth)  # a string with two truths is wrong in one of them
    distinct, place_of = np.unique(pairs // base, return_inverse=True)
    logits = getattr(contexts, "logits", network.logits)
    found, right = logits(distinct, weights, cfg, contexts)[place_of], pairs % base
    return pairs // base, right, found, margins(found, right)


def margins(found, right):
    """The logit of the right character - the largest other one, for each row of logits; -inf if one is not finite."""
    logit = np.take_along_axis(found, right[:, None], 1)[:, 0]
    others = found.copy()
    np.put_along_axis(others, right[:, None], -np.inf, 1)
    return np.where(np.isfinite(found).all(1), logit - others.max(1), -np.inf)


# 3. The proof


def main(folder, contexts, theorem_alone=False):
    """Print PROVEN, or what speaks against it; the exit code. contexts: the module that lists them."""
    try:
        return prove(folder, contexts, theorem_alone)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        demand(False, f"the files in {folder} cannot be read ({error!r}): export them again")


def prove(folder, contexts, theorem_alone):
    """The same, for files that can be read."""
    weights, cfg, data, certificate = read(folder, contexts)
    slices = contexts.slices(data, cfg, weights)
    identity, kept = [certificate["parameters_sha256"], theorem_alone], time.monotonic()
    tally, judge = resumed(folder / "check.tally.json", identity), partial(judged, contexts, weights, cfg, data)
    slices = islice(slices, tally["slices"], None)
    with ThreadPoolExecutor(THREADS) as pool:
        while some := list(islice(slices, THREADS)):
            tally = reduce(added, pool.map(partial(judge, theorem_alone), some), tally)
            share = tally["asked"] / certificate["contexts"]
            print(f"\r{share:4.0%} of {certificate['contexts']:,} contexts", end="", file=sys.stderr, flush=True)
            if time.monotonic() - kept > KEEP_EVERY:
                kept = time.monotonic()
                keep(folder / "check.tally.json", identity, tally)
    keep(folder / "check.tally.json", identity, None)
    print(f"\r{' ' * 50}\r", end="", file=sys.stderr)
    return say(tally, contexts.claim(data), certificate, theorem_alone)


def judged(contexts, weights, cfg, data, theorem_alone, columns):
    """The tally of one slice of the contexts."""
    codes, truth = contexts.strings(columns, data, cfg)
    strings, right, found, margin = ask(codes, truth, weights, cfg, contexts)
    ratios = getattr(contexts, "ratios", rounding.ratios)
    ratio = np.zeros(len(margin)) if theorem_alone else ratios(strings, right, weights, cfg, contexts)
    row, place = np.argwhere((codes == strings[margin.argmin()]) & (truth == right[margin.argmin()]))[0]
    return {
        "slices": 1,
        "asked": columns.shape[1],
        "strings": len(margin),
        "wrong": int((margin <= 0).sum()),
        "covered": int((ratio > 1).sum()),
        "largest": float(np.abs(found).max()),
        "ratio": float(ratio.min()),
        "least": float(margin.min()),
        "after": contexts.text(columns[:, row], int(place), data),
    }


def added(tally, other):
    """The tally of what two are of."""
    counts = {name: tally[name] + other[name] for name in ("slices", "asked", "strings", "wrong", "covered")}
    worst = min(tally, other, key=lambda tally: tally["least"])
    return counts | {
        "largest": max(tally["largest"], other["largest"]),
        "ratio": min(tally["ratio"], other["ratio"]),
        "least": worst["least"],
        "after": worst["after"],
    }


def say(tally, claim, certificate, theorem_alone):
    """Print both lines; the exit code."""
    asked, strings, least = tally["asked"], tally["strings"], tally["least"]
    print(f"contexts {asked:,}, distinct strings {strings:,}, wrong {tally['wrong']:,}, smallest margin {least:.6g}")
    demand(asked == certificate["contexts"], f"the certificate is of {certificate['contexts']:,} contexts")
    if not least > SAFE * tally["largest"]:
        given, right = tally["after"]
        print(f"NOT PROVEN: the margin is {least:.3g} after {given!r}, where {right!r} has to follow")
        return 1
    print(f"PROVEN, the theorem: in exact arithmetic these weights continue {claim}, rightly")
    if not theorem_alone:
        proven = "PROVEN, rounding" if tally["covered"] == strings else "NOT PROVEN, rounding"
        ratio = f"the least margin is {tally['ratio']:.3g} times its bound"
        print(f"{proven}: so does any float32 computation, after {tally['covered']:,} of the strings; {ratio}")
    return 0


def keep(path, identity, tally):
    """Write the tally, whole or not at all, or remove it; nothing where the folder cannot be written."""
    try:
        if tally is None:
            return path.unlink(missing_ok=True)
        path.with_suffix(".tmp").write_text(json.dumps([identity, tally]))
        path.with_suffix(".tmp").replace(path)
    except OSError:
        pass


def resumed(path, identity):
    """The tally of a proof of the same weights that was stopped; an empty one if there is none."""
    try:
        found, tally = json.loads(path.read_text())
        return tally if found == identity and tally.keys() == TALLY.keys() else TALLY
    except (OSError, ValueError, TypeError, AttributeError):
        return TALLY


if __name__ == "__main__":
    import contexts

    demand(sys.argv[1:] in ([], ["--theorem"]), f"unknown flags {sys.argv[1:]}: python check.py [--theorem]")
    sys.exit(main(Path(__file__).parent, contexts, "--theorem" in sys.argv[1:]))
