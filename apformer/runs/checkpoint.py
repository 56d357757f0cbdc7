"""Save and load checkpoints: the whole state of a run at a step, in the format of Orbax.

    checkpoints/400/
        state/              the bytes of all arrays, in the order of their names, as one array
        facts/facts.json    step, scores, names with shapes and dtypes, sha256 of the arrays and of the facts

Orbax's CheckpointManager (https://orbax.readthedocs.io) writes in the background under another name, renames it when it
is complete, and then removes older steps: a crash loses only the save in progress. But Orbax does not notice a flipped
bit, and silently casts another dtype. So the facts hold a sha256 of the names, shapes and bytes of all arrays, and a
checkpoint whose arrays have another sha256 is never used.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import CHECKPOINT, NON_FINITE, UserError
from apformer.files import disk_errors, fsync, plain, preflight, write_json
from apformer.layers.leaves import named
from apformer.runs import selection
from apformer.runs.selection import Damaged, Facts

Arrays = dict[str, np.ndarray]  # such as {"params/head/output/weight": ...}


def orbax() -> ModuleType:
    """Return the module of Orbax, imported late, since it takes longer than the rest of apformer's command line."""
    import orbax.checkpoint

    # Orbax and asyncio log tracebacks of failed writes before they raise; the user gets one sentence instead.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return orbax.checkpoint


class Checkpoints:
    """Save states into `folder` in the background; keep the newest, the `keep` newest scheduled ones, and the best.

    A context manager: leaving it waits for the save in progress. Making it removes leftovers of interrupted saves and
    removals, and renames a checkpoint with damaged facts to `<step>.corrupt`, with a line on standard error.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder.absolute(), keep
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        selection.remove_leftovers(self.folder)
        self.facts = selection.read_all(self.folder, selection.set_aside)
        for step in {*self.facts} - self._preserved():  # a crash came between a save and these removals
            selection.remove(self.folder, step)
            del self.facts[step]
        ocp = orbax()
        options = ocp.CheckpointManagerOptions(
            create=False,
            preservation_policy=self,
            todelete_subdir=selection.REMOVED,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._force),
            multiprocessing_options=_this_process(),
        )
        handlers = {
            "state": ocp.ArrayCheckpointHandler(),
            "facts": ocp.JsonCheckpointHandler(selection.FILE.name, multiprocessing_options=_this_process()),
        }
        with disk_errors(self.folder):
            self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        """Wait, then end the background threads and remove the leftovers of a failed save."""
        try:
            self.wait()
        finally:
            with _writing(self.folder):
                self._manager.close()
            selection.remove_leftovers(self.folder)

    def save(self, step: int, state: Any, scores: Any = (), temporary: bool = False) -> None:
        """Start to save `state`, and return once it is copied: then the caller may donate it.

        Args:
            step: Number of training steps that led to the state.
            state: Tree of arrays and typed keys; with several scores, each leaf has a leading axis of members.
            scores: A number, or one for each member; lower is better.
            temporary: Whether it is saved because the run is stopping. Such a checkpoint is never the best, does not
                count towards `keep`, and is removed once a later one is saved.

        Raises:
            UserError: NON_FINITE, and nothing is saved, if every member has a number in `params` that is not finite or
                a NaN in `opt_state`; DISK if the disk is too full, or if the save before this one failed.
        """
        self.wait()
        facts, arrays = describe(step, state, scores, temporary)
        preflight(self.folder, needs=sum(array.nbytes for array in arrays.values()) * 1.1 + 1e6)
        args, self.facts[facts.step] = orbax().args, facts
        # One array for all: if Orbax writes many at once, each failure after the first one ends in a traceback.
        state = args.ArraySave(np.concatenate([*map(_bytes, arrays.values())]))
        with _writing(self.folder / str(step)):
            self._manager.save(step, args=args.Composite(state=state, facts=args.JsonSave(selection.sealed(facts))))

    def set_proven(self, step: int) -> None:
        """Give a saved step the best score."""
        self.facts[step] = replace(self.facts[step], scores=[selection.PROVEN])
        write_json(selection.file_of(self.folder / str(step)), selection.sealed(self.facts[step]))

    def wait(self) -> None:
        """Wait until the save in progress is complete.

        Raises:
            UserError: DISK, if it failed.
        """
        with _writing(self.folder / str(max(self.facts, default=0))):
            self._manager.wait_until_finished()
            fsync(self.folder)
        selection.remove_leftovers(self.folder)

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Return whether Orbax keeps each checkpoint: its PreservationPolicy."""
        preserved = self._preserved()
        return [checkpoint.step in preserved for checkpoint in checkpoints]

    def _preserved(self) -> set[int | None]:
        newest = sorted(self.facts)[-1:]
        return {*newest, selection.best(self.facts), *selection.scheduled(self.facts)[-self.keep :]}

    def _force(self) -> None:
        """Force the files of a save to the disk, before Orbax renames it."""
        for path in self.folder.glob("*.orbax-checkpoint-tmp*"):
            for entry in (path, *path.rglob("*")):
                fsync(entry)


def _this_process() -> Any:
    """Return the options with which Orbax waits for no other process of a run: only the first process saves."""
    index = jax.process_index()
    active = {index} if jax.process_count() > 1 else None
    return orbax().options.MultiprocessingOptions(index, active, f"process {index}")


def describe(step: int, state: Any, scores: Any = (), temporary: bool = False) -> tuple[Facts, Arrays]:
    """Return the facts and the arrays of a state. Arguments and errors are those of `Checkpoints.save`."""
    leaves = named(state, "/")
    arrays = jax.device_get(_data(leaves))
    scores_M = np.ravel(np.asarray(scores, np.float64))
    finite_M = _finite_members(arrays, max(1, scores_M.size), step)
    finite_scores = plain(np.where(finite_M, scores_M, np.nan))
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if is_key(leaf)}
    return Facts(int(step), finite_scores, temporary, _signature(leaves), keys, _digest(arrays)), arrays


def load(folder: Path, abstract_state: Any, step: int | None = None) -> tuple[int, Any]:
    """Load the newest sound checkpoint of a folder, or that of `step`: (step, state), bit for bit as saved.

    Without a step all checkpoints are read, and damaged ones are renamed to `<step>.corrupt`, with a line on standard
    error.

    Args:
        folder: Directory of the checkpoints.
        abstract_state: Tree of arrays or jax.ShapeDtypeStruct, such as `jax.eval_shape` of the function that makes the
            state.
        step: Step of the checkpoint, which is refused if it is damaged.

    Raises:
        UserError: CHECKPOINT if no checkpoint is sound, if that of `step` is not, or if names, shapes or dtypes differ;
            DISK if the disk fails while a checkpoint is read.
    """
    folder, saved = folder.absolute(), selection.steps(folder)
    if step is not None and step not in saved:
        raise UserError(f"{folder} holds no checkpoint of step {step}: it holds {saved or 'none'}", CHECKPOINT)
    steps, on_damage = (saved[::-1], selection.set_aside) if step is None else ([step], selection.refuse)
    leaves = named(abstract_state, "/")
    newest = None
    expected = _signature(leaves)
    for candidate in steps:
        path = folder / str(candidate)
        try:
            facts = selection.read_facts(path)
            for name in facts.tree | expected:
                if facts.tree.get(name) != expected.get(name):
                    fault = f"{name} is {facts.tree.get(name, 'absent')}, not {expected.get(name, 'absent')}"
                    remedy = "give the flags the run was trained with"
                    raise UserError(f"{path} is of another model: {fault}: {remedy}", CHECKPOINT)
            arrays = _read(path, leaves, facts)
        except Damaged as damage:
            on_damage(path, damage)
        else:
            newest = newest or (candidate, facts, arrays)
    if newest is None:
        raise UserError(f"{folder} holds no valid checkpoint: restore one from a copy, or train anew", CHECKPOINT)
    step, facts, arrays = newest
    data = jax.device_put(arrays, may_alias=False)
    data |= {name: jax.random.wrap_key_data(data[name], impl=impl) for name, impl in facts.keys.items()}
    return step, jax.tree.unflatten(jax.tree.structure(abstract_state), [data[name] for name in leaves])


def _read(path: Path, leaves: dict[str, Any], facts: Facts) -> Arrays:
    """Return the arrays of a checkpoint by their names. Raises Damaged unless they are as they were written."""
    ocp = orbax()
    arrays = {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in jax.eval_shape(_data, leaves).items()}
    earlier = (path / selection.EARLIER).exists()  # apformer 0.3: an array of Orbax for each name
    handler = ocp.StandardCheckpointHandler() if earlier else ocp.ArrayCheckpointHandler()
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=_this_process()) as reader:
            if earlier:
                saved = {name: array for name, array in arrays.items() if array.size}
                arrays |= reader.restore(path / "state", args=ocp.args.StandardRestore(saved))
            else:
                ends = np.cumsum([array.nbytes for array in arrays.values()])
                parts = np.split(reader.restore(path / "state"), ends[:-1])
                for (name, array), part in zip(arrays.items(), parts, strict=True):
                    arrays[name] = part.view(array.dtype).reshape(array.shape)
    except Exception as error:  # Orbax does not say which it raises for damaged files
        fault = _fault_of_disk(error)
        if fault is None:
            raise Damaged("its arrays cannot be read") from error
        with disk_errors(path, "read"):
            raise fault from error
    if _digest(arrays) != facts.arrays_sha256:
        raise Damaged("its arrays are not as they were written")
    return arrays


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of Orbax about a failed write into UserError(DISK), one sentence."""
    with disk_errors(path):
        try:
            yield
        except ValueError as error:
            reason = str(error).partition(" [")[0].rpartition(": ")[2]  # the system's reason, after names of files
            raise _fault_of_disk(error) or OSError(errno.EIO, reason) from error


def _fault_of_disk(error: Exception) -> OSError | None:
    """Return the OSError that an error of Orbax or tensorstore tells of; None if it tells of none."""
    message = str(error).replace("RESOURCE_EXHAUSTED", os.strerror(errno.ENOSPC))
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
    return next((OSError(number, os.strerror(number)) for number in numbers if os.strerror(number) in message), None)


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of typed random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return the leaves as arrays: of random keys their data. JAX returns them in the order of their names."""
    return {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in leaves.items()}


def _signature(leaves: dict[str, Any]) -> dict[str, str]:
    """Return the dtype and shape of each leaf, {"params/w": "float32[3, 4]"}."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _digest(arrays: Arrays) -> str:
    """Return the sha256 of the names, dtypes, shapes and bytes of all arrays that are not empty."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        if array.size:
            digest.update(f"{name} {array.dtype}{list(array.shape)}\n".encode())
            digest.update(_bytes(array).data)
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _finite_members(arrays: Arrays, members: int, step: int) -> np.ndarray:
    """Return whether each member has finite parameters, and no NaN in the optimizer's state, (M,)."""
    finite_M = np.ones(members, bool)
    for name, array in arrays.items():
        part = name.split("/")[0]
        if part in ("params", "opt_state") and jnp.issubdtype(array.dtype, np.inexact):
            array_MN = array.reshape(members, -1)
            finite_M &= np.isfinite(array_MN).all(1) if part == "params" else ~np.isnan(array_MN).any(1)
        if not finite_M.any():
            remedy = "nothing was saved: lower --learning_rate, and resume from the checkpoint before"
            raise UserError(f"step {step}: {name} holds numbers that are not finite; {remedy}", NON_FINITE)
    return finite_M
