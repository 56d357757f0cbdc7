"""Checkpoints: the whole state of a run at a step, written by orbax, sealed by a manifest.

    checkpoints/400/
        MANIFEST.json    step, scores, names with shapes and dtypes, sha256 of the arrays and of every file, versions
        state/ ...       orbax's files: a flat dict {name: array}

A checkpoint is used only if its manifest is as it was written. Orbax reads a flipped bit as a number like any other and
casts a dtype that differs without a word; so here every file is hashed, and every name, shape and dtype compared,
before orbax reads. A directory is written under another name and renamed when complete, and older ones are removed only
after that: a crash at any moment costs the save in progress and nothing else. (orbax: https://orbax.readthedocs.io)
"""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import CHECKPOINT, NON_FINITE, UserError
from apformer.files import disk_errors, fsync, preflight
from apformer.formats import arrays as arrays_on_disk
from apformer.runs import manifest
from apformer.runs.provenance import versions
from apformer.runs.selection import best, facts_of, refusal, remove, scheduled, set_aside, steps, tidy


class Checkpoints:
    """Saves states into `folder`, in the background; keeps the last `keep` and the one of the lowest score.

    A context manager: leaving it waits for the save in progress. What an interrupted save left behind is removed, and a
    checkpoint without a sound manifest is renamed to `<step>.corrupt`, with a line on standard error.
    """

    def __init__(self, folder, keep=3):
        self.folder, self.keep = Path(folder).absolute(), keep
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            tidy(self.folder)
            self._retain()
        self._worker, self._pending = ThreadPoolExecutor(1), None
        arrays_on_disk.orbax()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def save(self, step, state, scores=(), temporary=False):
        """Start to save `state`; returns once it is copied, so the caller may donate it at once.

        state: tree of arrays and typed keys; with several scores, each leaf has a leading axis of members.
        scores: a number, or one for each member; lower is better. temporary: saved because the run was stopped. Such a
        checkpoint is never the best, does not count towards `keep`, and is removed once a later one is saved.
        Raises UserError: NON_FINITE, and saves nothing, if every member has a number in `params` that is not finite or
        a NaN in `opt_state`; DISK if the disk is too full, or if the save before this one failed.
        """
        self.wait()
        facts, arrays = describe(step, state, scores, temporary)
        preflight(self.folder, needs=sum(array.nbytes for array in arrays.values()) * 1.1 + 1e6)
        several = jax.process_count() > 1  # asked before the save, which hides it (formats/arrays.py)
        self._pending = self._worker.submit(self._write, facts, arrays)
        if several:
            self.wait()

    def wait(self):
        """Return when the save in progress is complete. Raises UserError(DISK) if it failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self):
        """Wait, then let go of the background thread."""
        try:
            self.wait()
        finally:
            self._worker.shutdown()

    def _write(self, facts, arrays):
        write(self.folder, facts, arrays)
        with disk_errors(self.folder):
            self._retain()

    def _retain(self):
        """Remove all checkpoints but the newest of all, the newest scheduled ones and the best."""
        kept = {*scheduled(self.folder)[-self.keep :], best(self.folder), *steps(self.folder)[-1:]}
        for step in {*steps(self.folder)} - kept:
            remove(self.folder, step)


def describe(step, state, scores=(), temporary=False):
    """(facts, arrays) for `write`, copied from the state. See `Checkpoints.save`, which raises the same."""
    leaves, _ = _named(state)
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if _is_key(leaf)}
    data = {name: jax.random.key_data(leaf) if name in keys else leaf for name, leaf in leaves.items()}
    # On CPU device_get returns a view of the buffer that the caller may donate: copy.
    arrays = {name: np.array(array) for name, array in jax.device_get(data).items()}
    scores_M = np.ravel(np.asarray(scores, np.float64))
    finite_M = _finite(arrays, max(1, len(scores_M)), step)
    scores_M = np.where(finite_M, scores_M, np.nan) if len(scores_M) else scores_M
    facts = {
        "step": int(step),
        "scores": [float(score) if np.isfinite(score) else None for score in scores_M],
        "temporary": temporary,
        "tree": _signature(leaves),
        "keys": keys,
    }
    return facts, arrays


def write(folder, facts, arrays):
    """Write the checkpoint of facts["step"], whole or not at all, in place of one that is there. Raises UserError."""
    folder = folder.absolute()  # orbax takes no other
    final = folder / str(facts["step"])
    temporary = final.with_suffix(".tmp")
    with disk_errors(final):
        try:
            arrays_on_disk.write(temporary, arrays)
            arrays_on_disk.require_written(temporary, arrays)
            manifest.seal(temporary, facts | {"arrays_sha256": digest(arrays), "versions": versions()})
            remove(folder, facts["step"])
            os.replace(temporary, final)
            fsync(folder)
        except OSError:
            # The writes that orbax began beside the one that failed end on their own, and leave files.
            time.sleep(0.5)
            raise
        finally:
            tidy(folder)


def digest(arrays):
    """The sha256 of the names, types, shapes and bytes of arrays by their names; those of no elements do not count."""
    found = hashlib.sha256()
    for name, array in sorted((name, array) for name, array in arrays.items() if array.size):
        found.update(f"{name} {array.dtype}{list(array.shape)}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return found.hexdigest()


def load(folder, abstract_state, step=None):
    """Load the newest valid checkpoint of `folder`, or that of `step`: (step, state), bit for bit as saved.

    abstract_state: tree of arrays or jax.ShapeDtypeStruct, such as `jax.eval_shape` of the function that makes the
    state; an array goes where the sharding of its leaf says, if there is one.
    A damaged checkpoint is renamed to `<step>.corrupt`, with a line on standard error, and the one before it tried.
    Raises UserError: CHECKPOINT if none is valid, if the `step` asked for is not, or if names, shapes or dtypes differ;
    DISK if the disk fails while a valid one is read.
    """
    folder, saved = Path(folder).absolute(), steps(folder)
    if step is not None and step not in saved:
        raise UserError(f"{folder} holds no checkpoint of step {step}: it holds {saved or 'none'}", CHECKPOINT)
    for candidate in reversed(saved) if step is None else [step]:
        path = folder / str(candidate)
        try:
            facts = facts_of(path, manifest.verify)
        except manifest.Corrupt as damage:
            if not path.exists():  # the process that trains has removed it just now: see what there is
                return load(folder, abstract_state, step)
            if step is not None:
                raise refusal(path, damage) from None
            set_aside(path, damage)
            continue
        leaves, treedef = _named(abstract_state)
        _require_same(facts["tree"], _signature(leaves), path)
        with disk_errors(path, "read"):
            arrays = arrays_on_disk.read(path)
        _require_bits(facts, arrays, path)
        return candidate, treedef.unflatten(
            _placed(arrays.get(name), leaf, facts["keys"].get(name)) for name, leaf in leaves.items()
        )
    raise UserError(f"{folder} holds no valid checkpoint: restore one from a copy, or train anew", CHECKPOINT)


def _is_key(leaf):
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _named(state):
    """({"params/w": leaf}, treedef). Raises TypeError for a leaf that a jitted step would silently change."""
    flat, treedef = jax.tree_util.tree_flatten_with_path(state)
    leaves = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
    if len(leaves) != len(flat):
        raise TypeError("two leaves of the state have the same name: keep '/' out of its dict keys")
    for name, leaf in leaves.items():
        if not hasattr(leaf, "dtype"):
            raise TypeError(f"{name} is a {type(leaf).__name__}: make it an array")
        if not _is_key(leaf) and jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
            raise TypeError(f"{name} is {leaf.dtype}, which jax holds only with 64-bit numbers on")
    return leaves, treedef


def _signature(leaves):
    """{"params/w": "float32[3, 4]"}"""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _finite(arrays, members, step):
    """Whether each member has finite numbers, (M,). Raises UserError(NON_FINITE) that names an array if none has."""
    finite_M = np.ones(members, bool)
    for name, array in arrays.items():
        part = name.split("/")[0]
        if part not in ("params", "opt_state") or not jax.dtypes.issubdtype(array.dtype, np.inexact):
            continue
        array_MN = array.reshape(members, -1)
        finite_M &= np.isfinite(array_MN).all(1) if part == "params" else ~np.isnan(array_MN).any(1)
        if not finite_M.any():
            remedy = "nothing was saved: lower --learning_rate, and go on from the checkpoint before"
            raise UserError(f"step {step}: {name} holds numbers that are not finite; {remedy}", NON_FINITE)
    return finite_M


def _require_same(saved, asked, path):
    differing = [name for name in {**saved, **asked} if saved.get(name) != asked.get(name)]
    if differing:
        diff = [f"{name} is {saved.get(name, 'absent')}, not {asked.get(name, 'absent')}" for name in differing]
        diff = "; ".join(diff[:3] + [f"{len(diff) - 3} more"] * (len(diff) > 3))
        raise UserError(f"{path} is of another model: {diff}: give the flags the run was trained with", CHECKPOINT)


def _require_bits(facts, arrays, path):
    """Raises UserError(CHECKPOINT) if orbax reads other arrays from sound files than those that it was given."""
    if facts.get("arrays_sha256", found := digest(jax.device_get(arrays))) != found:
        raise UserError(
            f"{path} is sound, but orbax reads other numbers from it: use the orbax it was saved with", CHECKPOINT
        )


def _placed(array, leaf, key_impl):
    array = jnp.zeros(leaf.shape, leaf.dtype) if array is None else jax.device_put(array, may_alias=False)
    array = array if key_impl is None else jax.random.wrap_key_data(array, impl=key_impl)
    sharding = getattr(leaf, "sharding", None)
    return array if sharding is None else jax.device_put(array, sharding)
