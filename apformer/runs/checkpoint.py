"""Save and load checkpoints: the whole state of a run at a step, in the format of Orbax.

    checkpoints/400/
        state/              the bytes of all arrays in one array of Orbax, in the order of their names
        facts/facts.json    step, scores, names with shapes and dtypes, sha256 of the arrays and of the facts

Orbax's CheckpointManager (https://orbax.readthedocs.io) writes in the background under another name, renames what is
complete, and then removes older steps: a crash at any moment costs the save in progress and nothing else. But Orbax
reads a flipped bit as a number like any other, and casts a dtype that differs without a word. So the facts hold a
sha256 of the names, shapes and bytes of all arrays, and a checkpoint whose arrays give another one is never used.
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
from apformer.runs import selection
from apformer.runs.selection import Damaged, Facts

Arrays = dict[str, np.ndarray]  # such as {"params/head/w": ...}


def orbax() -> ModuleType:
    """Return the module of Orbax, imported late, since it takes longer than the rest of apformer's command line."""
    import orbax.checkpoint

    # Orbax logs every failure with its traceback before it raises, and asyncio those of the writes beside it; the user
    # gets our sentence instead.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return orbax.checkpoint


class Checkpoints:
    """Saves states into `folder` in the background; keeps the newest, the newest scheduled ones, and the best.

    A context manager: leaving it waits for the save in progress. Opening it removes what interrupted saves left behind,
    and renames a checkpoint with damaged facts to `<step>.corrupt`, with a line on standard error.
    """

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        self.folder, self.keep = Path(folder).absolute(), keep
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        selection.remove_leftovers(self.folder)
        self.facts = selection.read_all(self.folder, selection.set_aside)
        ocp = orbax()
        options = ocp.CheckpointManagerOptions(
            create=False,
            preservation_policy=self,
            todelete_subdir=selection.REMOVED,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._force),
            multiprocessing_options=_alone(),
        )
        handlers = {
            "state": ocp.ArrayCheckpointHandler(),
            "facts": ocp.JsonCheckpointHandler(selection.FILE.name, multiprocessing_options=_alone()),
        }
        with disk_errors(self.folder):
            self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, step: int, state: Any, scores: Any = (), temporary: bool = False) -> None:
        """Start to save `state`; return once it is copied, so that the caller may donate it at once.

        Args:
            step: Number of training steps that led to the state.
            state: Tree of arrays and typed keys; with several scores, each leaf has a leading axis of members.
            scores: Number, or one for each member; lower is better.
            temporary: Whether it is saved because the run was stopped. Such a checkpoint is never the best, does not
                count towards `keep`, and is removed once a later one is saved.

        Raises:
            UserError: NON_FINITE, and nothing is saved, if every member has a number in `params` that is not finite or
                a NaN in `opt_state`; DISK if the disk is too full, or if the save before this one failed.
        """
        self.wait()
        facts, arrays = describe(step, state, scores, temporary)
        preflight(self.folder, needs=sum(array.nbytes for array in arrays.values()) * 1.1 + 1e6)
        args, self.facts[facts.step] = orbax().args, facts
        # One array, since of many that Orbax writes at once those after the first that fails end in tracebacks.
        state = args.ArraySave(np.concatenate([*map(_bytes, arrays.values())]))
        with _writing(self.folder / str(step)):
            self._manager.save(step, args=args.Composite(state=state, facts=args.JsonSave(selection.sealed(facts))))

    def score(self, step: int, scores: list[float]) -> None:
        """Change the scores of a saved step."""
        self.facts[step] = replace(self.facts[step], scores=scores)
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

    def close(self) -> None:
        """Wait, then end the background threads, and remove what a save that failed left."""
        try:
            self.wait()
        finally:
            with _writing(self.folder):
                self._manager.close()
            selection.remove_leftovers(self.folder)

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Return whether Orbax keeps each checkpoint: its PreservationPolicy."""
        kept = {max(self.facts), selection.best(self.facts), *selection.scheduled(self.facts)[-self.keep :]}
        return [each.step in kept for each in checkpoints]

    def _force(self) -> None:
        """Force the files of a save to the disk, before it gets its name."""
        for path in self.folder.glob("*.orbax-checkpoint-tmp*"):
            for entry in (path, *path.rglob("*")):
                fsync(entry)


def _alone() -> Any:
    """Return Orbax's options for a process that waits for no other process of the run: the first alone saves."""
    this = jax.process_index()
    active = {this} if jax.process_count() > 1 else None
    return orbax().options.MultiprocessingOptions(this, active, f"process {this}")


def describe(step: int, state: Any, scores: Any = (), temporary: bool = False) -> tuple[Facts, Arrays]:
    """Return the facts and the arrays of a state. See `Checkpoints.save`, which raises the same."""
    leaves, _ = leaves_of(state)
    arrays = jax.device_get(_data(leaves))
    scores_M = np.ravel(np.asarray(scores, np.float64))
    finite_M = _finite_members(arrays, max(1, scores_M.size), step)
    told = plain(np.where(finite_M, scores_M, np.nan))
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if is_key(leaf)}
    return Facts(int(step), told, temporary, _signature(leaves), keys, _digest(arrays)), arrays


def load(folder: str | Path, abstract_state: Any, step: int | None = None) -> tuple[int, Any]:
    """Load the newest sound checkpoint of a folder, or that of `step`: (step, state), bit for bit as saved.

    Without a step all are read, the older ones too. A damaged one is renamed to `<step>.corrupt`, with a line on
    standard error.

    Args:
        folder: Directory of the checkpoints.
        abstract_state: Tree of arrays or jax.ShapeDtypeStruct, such as `jax.eval_shape` of the function that makes the
            state.
        step: Step of the checkpoint, which is then refused if it is damaged.

    Raises:
        UserError: CHECKPOINT if none is sound, if the `step` asked for is not, or if names, shapes or dtypes differ;
            DISK if the disk fails while a checkpoint is read.
    """
    folder, saved = Path(folder).absolute(), selection.steps(folder)
    if step is not None and step not in saved:
        raise UserError(f"{folder} holds no checkpoint of step {step}: it holds {saved or 'none'}", CHECKPOINT)
    (leaves, treedef), found = leaves_of(abstract_state), None
    for candidate in reversed(saved) if step is None else [step]:
        path = folder / str(candidate)
        try:
            facts = selection.read_facts(path)
            _require_same(facts.tree, _signature(leaves), path)
            arrays = _read(path, leaves, facts)
        except Damaged as damage:
            if not path.exists():  # the process that trains has removed it just now: see what there is
                return load(folder, abstract_state, step)
            (selection.set_aside if step is None else selection.refuse)(path, damage)
            continue
        found = found or (candidate, facts, arrays)
    if found is None:
        raise UserError(f"{folder} holds no valid checkpoint: restore one from a copy, or train anew", CHECKPOINT)
    newest, facts, arrays = found
    data = jax.device_put(arrays, may_alias=False)
    data |= {name: jax.random.wrap_key_data(data[name], impl=impl) for name, impl in facts.keys.items()}
    return newest, treedef.unflatten(data[name] for name in leaves)


def _read(path: Path, leaves: dict[str, Any], facts: Facts) -> Arrays:
    """Return the arrays of a checkpoint by their names. Raises Damaged unless they are as they were written."""
    ocp = orbax()
    arrays = {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in jax.eval_shape(_data, leaves).items()}
    earlier = (path / selection.EARLIER).exists()  # which has an array of Orbax for each name
    handler = ocp.StandardCheckpointHandler() if earlier else ocp.ArrayCheckpointHandler()
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=_alone()) as reader:
            if earlier:
                some = {name: array for name, array in arrays.items() if array.size}
                arrays |= reader.restore(path / "state", args=ocp.args.StandardRestore(some))
            else:
                ends = np.cumsum([array.nbytes for array in arrays.values()])
                parts = np.split(reader.restore(path / "state"), ends[:-1])
                for (name, array), part in zip(arrays.items(), parts, strict=True):
                    arrays[name] = part.view(array.dtype).reshape(array.shape)
    except Exception as error:  # of whatever kind: Orbax promises none for damaged files
        fault = _fault_of_disk(error)
        if fault is None:
            raise Damaged("its arrays cannot be read") from error
        with disk_errors(path, "read"):
            raise fault from error
    if _digest(arrays) != facts.arrays_sha256:
        raise Damaged("its arrays are not as they were written")
    return arrays


def _require_same(saved: dict[str, str], asked: dict[str, str], path: Path) -> None:
    for name in {**saved, **asked}:
        ours, theirs = saved.get(name, "absent"), asked.get(name, "absent")
        if ours != theirs:
            raise UserError(
                f"{path} is of another model: {name} is {ours}, not {theirs}: give the flags the run was trained with",
                CHECKPOINT,
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what Orbax says of a failed write into UserError(DISK), one sentence."""
    with disk_errors(path):
        try:
            yield
        except ValueError as error:
            reason = str(error).partition(" [")[0].rpartition(": ")[2]  # the system's, after names of files
            raise _fault_of_disk(error) or OSError(errno.EIO, reason) from error


def _fault_of_disk(error: Exception) -> OSError | None:
    """Return the OSError behind what Orbax, or tensorstore under it, says of a file; None if the disk is sound."""
    said = str(error).replace("RESOURCE_EXHAUSTED", os.strerror(errno.ENOSPC))
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
    return next((OSError(number, os.strerror(number)) for number in numbers if os.strerror(number) in said), None)


def leaves_of(state: Any) -> tuple[dict[str, Any], Any]:
    """Return ({"params/w": leaf}, treedef) of a tree of arrays and typed keys."""
    flat, treedef = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}, treedef


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of typed random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of the leaves; of random keys their data. JAX returns them in the order of their names."""
    return {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in leaves.items()}


def _signature(leaves: dict[str, Any]) -> dict[str, str]:
    """Return {"params/w": "float32[3, 4]"}."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _digest(arrays: Arrays) -> str:
    """Return the sha256 of the names, types, shapes and bytes of arrays, those of no elements left out."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        if array.size:
            found.update(f"{name} {array.dtype}{list(array.shape)}\n".encode())
            found.update(_bytes(array).data)
    return found.hexdigest()


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
            remedy = "nothing was saved: lower --learning_rate, and go on from the checkpoint before"
            raise UserError(f"step {step}: {name} holds numbers that are not finite; {remedy}", NON_FINITE)
    return finite_M
