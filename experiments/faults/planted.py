"""Plant faults in the folder of a proof: check.py must never print PROVEN for a model with an error.

A small model of two digits is trained, certified and exported. Then, half of the cases each:

- one weight is moved until XLA continues a context wrongly, and the certificate is changed to name these weights.
  check.py has to find the error.
- one bit of model.safetensors, config.json or certificate.json is flipped. check.py has to refuse the file, unless the
  bit means nothing to the proof: then the weights and the claim have to be the same.
"""

import contextlib
import hashlib
import io
import json
from types import SimpleNamespace

import jax
import numpy as np

from apformer import cli, model, runs
from apformer.formats import weights as formats
from apformer.proof import check
from apformer.report import progress
from apformer.runs.provenance import digest
from apformer.tasks.progressions.proof import contexts, rows

QUESTION = "Does check.py find every fault that is planted in a model or in its files?"
CLAIM = (
    "of {cases:,} faults {missed:,} are missed: {weights:,} single weights moved until a context is wrong, and "
    "{bits:,} single bits flipped, {refused:,} of them refused and {harmless:,} without meaning for the proof"
)
CASES = 2000
FLAGS = "--digits 2 --d_model 32 --d_ff 64 --test_sequences 100"
FILES = ("model.safetensors", "config.json", "certificate.json")


def measure(cases, folder):
    """Return the figures of CLAIM."""
    return tried(cases, *trained(folder))


def trained(folder, flags=FLAGS):
    """Train, certify and export a model: return (run, folder of its proof)."""
    run, proof, silent = folder / "run", folder / "proof", io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        train = ["train", *flags.split(), "--run_dir", str(run)]
        if cli.main(train) or cli.main(["export", str(run), "--to", "proof", "--out", str(proof)]):
            raise RuntimeError(silent.getvalue())
    return runs.load(run), proof


def tried(cases, run, proof):
    """Return the figures of CLAIM for a run and the folder of its proof."""
    whole, rng = {name: (proof / name).read_bytes() for name in FILES}, np.random.default_rng(16)
    right, found = Asked(run), dict.fromkeys(("missed", "weights", "bits", "refused", "harmless"), 0)
    with progress.bar(total=cases, unit="fault", desc="planted") as bar:
        while found["weights"] < cases // 2:
            if (params := moved(run.params, right, rng)) is not None:
                found["weights"] += 1
                found["missed"] += checked(planted(proof, params, run.settings.model, whole)) != 1
                bar.update()
        for _ in range(cases - cases // 2):
            found["bits"] += 1
            found[flipped(proof, whole, rng)] += 1
            bar.update()
    for name, content in whole.items():
        (proof / name).write_bytes(content)
    return {"cases": cases} | found


class Asked:
    """All rows of the domain, to test whether XLA continues every one of them correctly."""

    def __init__(self, run):
        data, cfg = vars(run.settings.data), run.settings.model
        self.texts = [contexts.whole_rows(columns, data) for columns in contexts.slices(data, vars(cfg))]
        self.given = 2 * data["digits"] + 1  # characters of the first two terms
        self.apply = jax.jit(lambda params, tokens_BT: model.apply(params, tokens_BT, cfg).argmax(-1))

    def right(self, params):
        for text_BT in self.texts:
            said_BT = np.asarray(self.apply(params, np.minimum(text_BT[:, :-1], rows.SPACE).astype(np.int32)))
            truth_BT = text_BT[:, self.given :]
            if ((said_BT[:, self.given - 1 :] != truth_BT) & (truth_BT < contexts.START)).any():
                return False
        return True


def moved(params, asked, rng):
    """Move one weight, each time four times as far, until a context is wrong: return the parameters, or None."""
    leaves, tree = jax.tree.flatten(params)
    which = rng.choice(len(leaves), p=np.array([leaf.size for leaf in leaves]) / sum(leaf.size for leaf in leaves))
    place, sign = rng.integers(leaves[which].size), rng.choice([-1.0, 1.0])
    for power in range(0, 12, 2):
        leaf = np.array(leaves[which])
        leaf.flat[place] += sign * 2.0**power
        changed = jax.tree.unflatten(tree, [*leaves[:which], leaf, *leaves[which + 1 :]])
        if not asked.right(changed):
            return changed
    return None


def planted(proof, params, cfg, whole):
    """Write these parameters and a certificate that names them into the folder, and return it."""
    for name, content in whole.items():
        (proof / name).write_bytes(content)
    (proof / "model.safetensors").unlink()
    formats.write_safetensors(proof / "model.safetensors", "model", params, cfg)
    certificate = json.loads(whole["certificate.json"]) | {"parameters_sha256": digest(params)}
    (proof / "certificate.json").write_text(json.dumps(certificate))
    return proof


def flipped(proof, whole, rng):
    """Flip one bit of a file, and return "refused", "harmless" or "missed"."""
    name = FILES[rng.integers(len(FILES))]
    content, place = bytearray(whole[name]), rng.integers(len(whole[name]))
    content[place] ^= 1 << rng.integers(8)
    for other, kept in whole.items():
        (proof / other).write_bytes(content if other == name else kept)
    if checked(proof, READ_ALONE) == 2 or checked(proof) == 2:
        return "refused"
    for other, kept in whole.items():
        (proof / other).write_bytes(kept)
    before = claimed(proof)
    (proof / name).write_bytes(content)
    return "harmless" if claimed(proof) == before else "missed"


def claimed(proof):
    """Return a hash of all that a proof depends on: weights, Config and claim. None if the files are refused."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            case, certificate = check.read(proof, contexts)
    except (Exception, SystemExit):
        return None
    told = [case.cfg, case.data, certificate["contexts"], certificate["parameters_sha256"]]
    weights = b"".join(case.weights[name].tobytes() for name in sorted(case.weights))
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode() + weights).hexdigest()


class Accepted(BaseException):
    """Raised once all files are read without an error."""


def accept(data, cfg, weights):
    """Stand in for `contexts.slices` where only the reading of files is tested: most flipped bits are refused there."""
    raise Accepted


READ_ALONE = SimpleNamespace(**vars(contexts) | {"slices": accept})


def checked(proof, asked=contexts):
    """Return the exit code of `check.py --theorem`."""
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        try:
            return check.main(proof, asked, exact=True)
        except SystemExit as stop:
            return stop.code
        except Accepted:
            return 0
