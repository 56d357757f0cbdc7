"""Plant faults in the folder of a proof: check.py must never print PROVEN for a model with an error.

A small model of two digits is trained, certified and exported. Then each half of the cases plants one kind of fault:

- one weight is moved until XLA continues a context wrongly, and the certificate is changed to name these weights.
  check.py has to find this error.
- one bit of model.safetensors, config.json or certificate.json is flipped. check.py has to refuse the file, unless the
  bit means nothing to the proof, so that the weights and the claim stay the same.
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
    "{missed:,} of {cases:,} faults are missed: {weights:,} single weights, moved until a context is wrong, and "
    "{bits:,} single flipped bits, of which {refused:,} are refused and {harmless:,} mean nothing for the proof"
)
CASES = 2000
FLAGS = "--digits 2 --d_model 32 --d_ff 64 --test_sequences 100"
FILES = ("model.safetensors", "config.json", "certificate.json")


def measure(cases, folder):
    """Return the figures of CLAIM."""
    return count_outcomes(cases, *train_and_export(folder))


def train_and_export(folder):
    """Train, certify and export a model: return (run, folder of its proof)."""
    run, proof, printed = folder / "run", folder / "proof", io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        train = ["train", *FLAGS.split(), "--run_dir", str(run)]
        if cli.main(train) or cli.main(["export", str(run), "--to", "proof", "--out", str(proof)]):
            raise RuntimeError(printed.getvalue())
    return runs.load(run), proof


def count_outcomes(cases, run, proof):
    """Return the figures of CLAIM for a run and the folder of its proof."""
    originals, rng = {name: (proof / name).read_bytes() for name in FILES}, np.random.default_rng(16)
    domain, found = Domain(run), dict.fromkeys(("missed", "weights", "bits", "refused", "harmless"), 0)
    with progress.bar(total=cases, unit="fault", desc="planted") as bar:
        while found["weights"] < cases // 2:
            if (params := move_weight(run.params, domain, rng)) is not None:
                found["weights"] += 1
                found["missed"] += run_check(write_planted(proof, params, run.settings.model, originals)) != 1
                bar.update()
        for _ in range(cases - cases // 2):
            found["bits"] += 1
            found[flip_bit(proof, originals, rng)] += 1
            bar.update()
    for name, content in originals.items():
        (proof / name).write_bytes(content)
    return {"cases": cases} | found


class Domain:
    """All rows of the domain, to test whether XLA continues every one of them correctly."""

    def __init__(self, run):
        data, cfg = vars(run.settings.data), run.settings.model
        self.texts = [contexts.whole_rows(columns, data) for columns in contexts.slices(data, vars(cfg))]
        self.given = 2 * data["digits"] + 1  # characters of the first two terms
        self.apply = jax.jit(lambda params, tokens_BT: model.apply(params, tokens_BT, cfg).argmax(-1))

    def is_right(self, params):
        for text_BT in self.texts:
            predicted_BT = np.asarray(self.apply(params, np.minimum(text_BT[:, :-1], rows.SPACE).astype(np.int32)))
            truth_BT = text_BT[:, self.given :]
            if ((predicted_BT[:, self.given - 1 :] != truth_BT) & (truth_BT < contexts.START)).any():
                return False
        return True


def move_weight(params, domain, rng):
    """Move one weight, each time four times as far, until a context is wrong: return the parameters, or None."""
    leaves, tree = jax.tree.flatten(params)
    leaf_index = rng.choice(len(leaves), p=np.array([leaf.size for leaf in leaves]) / sum(leaf.size for leaf in leaves))
    place, sign = rng.integers(leaves[leaf_index].size), rng.choice([-1.0, 1.0])
    for power in range(0, 12, 2):
        leaf = np.array(leaves[leaf_index])
        leaf.flat[place] += sign * 2.0**power
        moved_params = jax.tree.unflatten(tree, [*leaves[:leaf_index], leaf, *leaves[leaf_index + 1 :]])
        if not domain.is_right(moved_params):
            return moved_params
    return None


def write_planted(proof, params, cfg, originals):
    """Write these parameters and a certificate that names them into the folder, and return it."""
    for name, content in originals.items():
        (proof / name).write_bytes(content)
    (proof / "model.safetensors").unlink()
    formats.write_safetensors(proof / "model.safetensors", "model", params, cfg)
    certificate = json.loads(originals["certificate.json"]) | {"parameters_sha256": digest(params)}
    (proof / "certificate.json").write_text(json.dumps(certificate))
    return proof


def flip_bit(proof, originals, rng):
    """Flip one bit of a file, and return "refused", "harmless" or "missed"."""
    name = FILES[rng.integers(len(FILES))]
    content, place = bytearray(originals[name]), rng.integers(len(originals[name]))
    content[place] ^= 1 << rng.integers(8)
    for other, original in originals.items():
        (proof / other).write_bytes(content if other == name else original)
    if run_check(proof, READ_ALONE) == 2 or run_check(proof) == 2:
        return "refused"
    for other, original in originals.items():
        (proof / other).write_bytes(original)
    before = claim_digest(proof)
    (proof / name).write_bytes(content)
    return "harmless" if claim_digest(proof) == before else "missed"


def claim_digest(proof):
    """Return a hash of all that a proof depends on: weights, Config and claim. None if the files are refused."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            case, certificate = check.read(proof, contexts)
    except (Exception, SystemExit):
        return None
    claims = [case.cfg, case.data, certificate["contexts"], certificate["parameters_sha256"]]
    weights = b"".join(case.weights[name].tobytes() for name in sorted(case.weights))
    return hashlib.sha256(json.dumps(claims, sort_keys=True).encode() + weights).hexdigest()


class Accepted(BaseException):
    """Raised once all files are read without an error."""


def accept(data, cfg, weights):
    """Stand in for `contexts.slices` where only the reading of files is tested: most flipped bits are refused there."""
    raise Accepted


READ_ALONE = SimpleNamespace(**vars(contexts) | {"slices": accept})


def run_check(proof, contexts_module=contexts):
    """Return the exit code of `check.py --theorem`."""
    discarded = io.StringIO()
    with contextlib.redirect_stdout(discarded), contextlib.redirect_stderr(discarded):
        try:
            return check.main(proof, contexts_module, exact=True)
        except SystemExit as stop:
            return stop.code
        except Accepted:
            return 0
