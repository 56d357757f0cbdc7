"""Hash 100 steps of the main recipes, to compare two versions of apformer on one machine.

    python experiments/bench/fingerprint.py before.json                 in one version
    python experiments/bench/fingerprint.py after.json before.json      in the other: prints the differences

The recipe `digits` needs the laboratory: `pip install -e experiments/lab`. A change that only moves code changes no
hash. Hashes depend on the processor and on the version of jaxlib, so compare only those of one machine.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tyro.conf import Positional

from apformer import flags

COMMON = "--steps 100 --save_every 100 --log_every 50 --seed 3"
ROWS = f"{COMMON} --test_sequences 20"
TEXT = f"{COMMON} --recipe baby_gpt_cpu --text"
RUNS = {
    "exact, 3 digits": ROWS,
    "exact, 4 digits": f"{ROWS} --digits 4",
    "bayes": f"{ROWS} --recipe bayes",
    "sketch": f"{ROWS} --recipe sketch",
    **{cell: f"{ROWS} --recipe recurrent --cell {cell}" for cell in ("rnn", "gru", "lstm")},
    **{f"digits {order}": f"{ROWS} --recipe digits --order {order}" for order in ("msb", "lsb")},
    "characters": f"{TEXT} FILE",
    "byte pairs": f"{TEXT} FILE --tokenizer byte_pairs --vocab_size 400",
    "translate": f"{COMMON} --recipe translate --numbers 500 --largest 999 --test_sentences 20 --byte_pairs 400",
}
CORPUS = Path(__file__).parents[2] / "LICENSE"  # a text that does not change


@dataclass(frozen=True)
class Fingerprint:
    """Hash the parameters, the optimizer's state and the metrics of 100 steps of the main recipes."""

    out: Positional[str]
    """A new JSON file for the hashes."""
    before: Positional[str | None] = None
    """A file of hashes to compare with."""


def hash_run(words, folder):
    """Train with these flags of `apformer train`; return {"params", "opt_state", "metrics": hash}."""
    from apformer.runs import checkpoint, fit, restore

    words = [str(CORPUS) if word == "FILE" else word for word in words.split()]
    command = [sys.executable, "-m", "apformer", "train", *words, "--run_dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    abstract = fit.abstract_state(restore.load_settings(folder))
    _, arrays = checkpoint.describe(*checkpoint.load(folder / "checkpoints", abstract, 100))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    metrics = [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]
    hashes = {part: hashlib.sha256() for part in ("params", "opt_state")}
    for name in sorted(arrays):
        if name.split("/")[0] in hashes and arrays[name].size:
            hashes[name.split("/")[0]].update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    found = {part: digest.hexdigest()[:16] for part, digest in hashes.items()}
    return found | {"metrics": hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()[:16]}


def run(args):
    """Hash each run, write the file, and print the differences from the earlier file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, words) in enumerate(RUNS.items()):
            found[name] = hash_run(words, Path(folder) / str(number))
            print(f"{name:18}", *found[name].values(), flush=True)
    Path(args.out).write_text(json.dumps(found, indent=1) + "\n")
    if args.before is not None:
        before = json.loads(Path(args.before).read_text())
        differences = [
            f"{name}: {part}" for name in found for part in found[name] if before[name][part] != found[name][part]
        ]
        print("\n".join(["", "differing:", *differences] if differences else ["", "all equal"]))


if __name__ == "__main__":
    sys.exit(flags.script("fingerprint.py", Fingerprint, run))
