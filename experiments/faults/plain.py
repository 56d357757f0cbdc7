"""Damage checkpoints of other libraries like ours, and count how often they load wrong numbers silently.

Each library saves the parameters and the optimizer's state of a small run at two steps, as its documentation says. Then
the newest checkpoint is damaged as in corruption.py, and loaded. An array that differs in one bit is wrong.
"""

import logging
import shutil
import warnings

import jax
import numpy as np
from faults import _damage

from apformer.report import progress
from apformer.runs import checkpoint, fit, restore, selection

QUESTION = "What do other libraries make of the same damage?"
CLAIM = (
    "wrong numbers without an error from {orbax:,} of {orbax cases:,} damaged checkpoints of orbax, {safetensors:,} "
    "of {safetensors cases:,} of safetensors, {torch:,} of {torch cases:,} of torch.save, {numpy:,} of {numpy "
    "cases:,} of np.savez and {apformer:,} of {apformer cases:,} of apformer, which alone loads the checkpoint before"
    " instead; {cases:,} in all"
)
CASES = 4_000
SEED = 16
STEPS = (50, 60)


def measure(cases, folder):
    """Return figures for `cases` damaged checkpoints, equally many of each library, and a table of outcomes."""
    run = _damage.run(folder / "run")
    abstract = fit.abstract_state(restore.load_settings(run))
    states = {step: _numbers(checkpoint.load(run / "checkpoints", abstract, step)[1]) for step in STEPS}
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    figures, table = {"cases": 0}, [["library", "cases", "wrong, without a word", "refused", "harmless", "one before"]]
    for name, keep in LIBRARIES.items():
        each = cases // len(LIBRARIES)
        try:
            count = _count_outcomes(name, keep, each, folder / name, states)
            table.append([name, *(f"{number:,}" for number in (each, *count.values()))])
        except ImportError:
            each, count = 0, {"wrong": 0}
            table.append([name, "not installed", "", "", "", ""])
        figures |= {name.split(" ")[0]: count["wrong"], f"{name.split(' ')[0]} cases": each}
        figures["cases"] += each
    return figures | {"table": table}


def _count_outcomes(name, keep, cases, folder, states):
    """Count the outcomes of loading a damaged newest checkpoint: {"wrong", "refused", "harmless", "one before"}."""
    save, load, manifest_name = keep()
    for step, arrays in states.items():
        save(folder / "whole", step, arrays)
    copy, count = folder / "copy", dict.fromkeys(("wrong", "refused", "harmless", "one before"), 0)
    kinds = [kind for kind in _damage.KINDS if manifest_name or kind not in _damage.NEED_SEVERAL_FILES]
    for case in progress.bar(range(cases), unit="case", desc=name):
        rng = np.random.default_rng([SEED, case])
        shutil.copytree(folder / "whole", copy)
        older, newest = (copy / str(step) for step in STEPS)
        _damage.inflict(rng, kinds[case % len(kinds)], newest, older, manifest_name)
        try:
            with _damage.quiet(), warnings.catch_warnings(action="ignore"):
                step, found = load(copy, states[STEPS[1]])
            right = "harmless" if step == STEPS[1] else "one before"
            count[right if _same(found, states[step]) else "wrong"] += 1
        except Exception:  # any error, since it is not silent
            count["refused"] += 1
        shutil.rmtree(copy)
    return count


def _numbers(state):
    """Return {name: array} of the parameters and the optimizer's state, without scalars, for which libraries differ."""
    leaves, _ = jax.tree_util.tree_flatten_with_path((state.params, state.opt_state))
    arrays = {jax.tree_util.keystr(path, simple=True, separator="."): np.array(leaf) for path, leaf in leaves}
    return {name: array for name, array in arrays.items() if array.ndim}


def _same(found, arrays):
    return found.keys() == arrays.keys() and all(
        found[name].dtype == array.dtype and np.asarray(found[name]).tobytes() == array.tobytes()
        for name, array in arrays.items()
    )


def _apformer():
    def save(folder, step, arrays):
        with checkpoint.Checkpoints(folder) as checkpoints:
            checkpoints.save(step, arrays)

    return save, checkpoint.load, selection.FILE.name


def _orbax():
    import orbax.checkpoint as orbax

    def save(folder, step, arrays):
        with orbax.CheckpointManager(folder) as manager:
            manager.save(step, args=orbax.args.StandardSave(arrays))

    def load(folder, like):
        with orbax.CheckpointManager(folder) as manager:
            step = manager.latest_step()
            return step, manager.restore(step, args=orbax.args.StandardRestore(like))

    return save, load, "manifest.ocdbt"


def _safetensors():
    from safetensors import numpy

    def save(folder, step, arrays):
        (folder / str(step)).mkdir(parents=True)
        numpy.save_file(arrays, folder / str(step) / "model.safetensors")

    return save, lambda folder, like: (STEPS[1], numpy.load_file(folder / str(STEPS[1]) / "model.safetensors")), None


def _torch():
    import torch

    def save(folder, step, arrays):
        (folder / str(step)).mkdir(parents=True)
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / str(step) / "model.pt")

    def load(folder, like):
        found = torch.load(folder / str(STEPS[1]) / "model.pt", weights_only=True)
        return STEPS[1], {name: tensor.numpy() for name, tensor in found.items()}

    return save, load, None


def _numpy():
    def save(folder, step, arrays):
        (folder / str(step)).mkdir(parents=True)
        np.savez(folder / str(step) / "model.npz", **arrays)

    def load(folder, like):
        with np.load(folder / str(STEPS[1]) / "model.npz", allow_pickle=False) as file:
            return STEPS[1], dict(file)

    return save, load, None


LIBRARIES = {
    "apformer": _apformer,
    "orbax CheckpointManager": _orbax,
    "safetensors": _safetensors,
    "torch save, weights_only": _torch,
    "numpy savez": _numpy,
}
