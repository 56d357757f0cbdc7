"""What is loaded equals what was saved, bit for bit, or is refused; and no failure costs an older checkpoint."""

import errno
import json
import os
import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apformer import files
from apformer.errors import CHECKPOINT, DISK, NON_FINITE, UserError
from apformer.proof import check
from apformer.runs import checkpoint, selection
from apformer.runs.checkpoint import Checkpoints
from tests.helpers.refusals import refused
from tests.helpers.small_models import bits


class State(NamedTuple):
    step: jax.Array
    key: jax.Array
    params: dict
    opt_state: tuple


def make_state(seed=0, members=None):
    """A training state of several dtypes; with `members`, each leaf has that many on a leading axis."""

    def one(key):
        params = {"w": jax.random.normal(key, (3, 4)), "half": jax.random.normal(key, (5,), jnp.bfloat16)}
        transform = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
        return State(jax.random.randint(key, (), 0, 1 << 30), key, params, transform.init(params))

    key = jax.random.key(seed)
    return one(key) if members is None else jax.vmap(one)(jax.random.split(key, members))


def abstract(state):
    return jax.eval_shape(lambda: state)


def save(folder, *steps, keep=9):
    """Save `make_state(step)` at each of `steps`."""
    with Checkpoints(folder, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, make_state(step))


@pytest.mark.parametrize("members", [None, 3])
def test_what_is_loaded_equals_what_was_saved(tmp_path, members):
    state = make_state(7, members)
    if members:
        state = state._replace(key=jax.random.split(jax.random.key(7, impl="rbg"), members))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(12, state)
    step, loaded = checkpoint.load(tmp_path, abstract(state))
    assert step == 12
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert bits(loaded) == bits(state)
    draws = [jax.vmap(jax.random.bits)(s.key) if members else jax.random.bits(s.key) for s in (state, loaded)]
    np.testing.assert_array_equal(*draws)


def test_the_state_may_be_donated_as_soon_as_save_returns(tmp_path):
    advance = jax.jit(lambda state: jax.tree.map(lambda x: x * 2, state), donate_argnums=0)
    state = {"params": {"w": jnp.arange(200_000, dtype=jnp.float32)}}
    want = {}
    with Checkpoints(tmp_path, keep=9) as checkpoints:
        for step in range(5):
            want[step] = np.array(state["params"]["w"])
            checkpoints.save(step, state)
            state = advance(state)
    for step, w in want.items():
        _, loaded = checkpoint.load(tmp_path, abstract(state), step)
        np.testing.assert_array_equal(loaded["params"]["w"], w)
        advance(loaded)  # and what was loaded may be donated too


def test_the_last_ones_and_the_best_one_are_kept(tmp_path):
    kept = []
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step, score in enumerate((0.5, 0.1, float("nan"), 0.3, 0.1, None, 0.2), 1):
            checkpoints.save(step, {"params": jnp.ones(2)}, () if score is None else score)
            checkpoints.wait()
            kept.append((selection.steps(tmp_path), selection.best(selection.read_all(tmp_path))))
    assert kept[:4] == [([1], 1), ([1, 2], 2), ([2, 3], 2), ([2, 3, 4], 2)]
    assert kept[4:] == [([4, 5], 5), ([5, 6], 5), ([5, 6, 7], 5)]  # of equal scores the newer


def test_what_a_stop_saved_does_not_count_and_goes_with_the_next_save(tmp_path):
    state = {"params": jnp.ones(2)}
    kept = {}
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step, temporary in ((1, True), (2, True), (4, False), (6, True), (8, False), (12, False)):
            checkpoints.save(step, state, 0.0 if temporary else step, temporary)
            checkpoints.wait()
            facts = selection.read_all(tmp_path)
            kept[step] = selection.steps(tmp_path), selection.scheduled(facts), selection.best(facts)
    assert kept == {
        1: ([1], [], 1),
        2: ([2], [], 2),
        4: ([4], [4], 4),
        6: ([4, 6], [4], 4),
        8: ([4, 8], [4, 8], 4),
        12: ([4, 8, 12], [4, 8, 12], 4),
    }


def test_members_that_are_not_finite_have_no_score_and_the_others_are_saved(tmp_path):
    good = {"params": {"w": jnp.ones((3, 2))}, "opt_state": jnp.zeros(3)}
    spoilt = {"params": {"w": good["params"]["w"].at[0, 1].set(jnp.inf)}, "opt_state": jnp.zeros(3).at[2].set(jnp.nan)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, good, [3.0, 2.0, 1.0])
        checkpoints.save(2, spoilt, [1.0, 1.5, 0.5])
        with refused(NON_FINITE, "step 4: .*not finite"):
            checkpoints.save(4, spoilt | {"params": {"w": good["params"]["w"].at[:2].set(jnp.nan)}}, [1.0, 2.0, 3.0])
    assert selection.steps(tmp_path) == [1, 2]
    assert selection.read_facts(tmp_path / "2").scores == [None, 1.5, None]
    assert selection.best(selection.read_all(tmp_path)) == 2  # the lowest mean of those that are finite
    step, loaded = checkpoint.load(tmp_path, abstract(spoilt), 2)
    assert step == 2 and bits(loaded) == bits(spoilt)


FACTS = selection.FILE


def flip(file, at=0.5):
    data = bytearray(file.read_bytes())
    data[int(at * (len(data) - 1))] ^= 4
    file.write_bytes(data)


def largest(path):
    return max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


DAMAGES = {
    "a bit of the facts": lambda path: flip(path / FACTS),
    "no facts": lambda path: (path / FACTS).unlink(),
    "a bit of the arrays": lambda path: flip(largest(path / "state")),
    "zeros": lambda path: largest(path / "state").write_bytes(bytes(largest(path / "state").stat().st_size)),
    "no arrays": lambda path: shutil.rmtree(path / "state"),
    "a copy of another step": lambda path: (shutil.rmtree(path), shutil.copytree(path.with_name("1"), path)),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    save(folder := tmp_path_factory.mktemp("two"), 1, 2)
    return folder


@pytest.fixture
def folder(two, tmp_path):
    return shutil.copytree(two, tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_the_checkpoint_before_is_loaded(folder, damage, capfd):
    target = abstract(make_state())
    DAMAGES[damage](folder / "2")
    remedy = ": `apformer resume [^ ]*/run` sets it aside and continues from the newest sound one, or restore it"
    with refused(CHECKPOINT, r"2 is damaged \(.*\)" + remedy):
        checkpoint.load(folder, target, step=2)
    assert capfd.readouterr().err == ""
    step, loaded = checkpoint.load(folder, target)
    assert (step, bits(loaded)) == (1, bits(make_state(1)))
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "2 is damaged (" in said and said.endswith("renamed to 2.corrupt\n")
    assert sorted(os.listdir(folder)) == ["1", "2.corrupt"]


def test_what_may_have_been_the_best_is_named_and_never_passed_over(folder, capfd):
    flip(folder / "1" / FACTS)
    sentence = r"1 is damaged \(facts.json is not as it was written\): `apformer resume .*` sets it aside"
    with refused(CHECKPOINT, sentence):
        selection.best(selection.read_all(folder))
    assert capfd.readouterr().err == ""
    with Checkpoints(folder):
        pass  # training goes on with it set aside, not deleted
    assert selection.steps(folder) == [2] and (folder / "1.corrupt" / "state").is_dir()
    assert capfd.readouterr().err.endswith("renamed to 1.corrupt\n")


def test_a_checkpoint_of_apformer_0_3_is_loaded_and_gone_on_from(folder):
    for path in (folder / "1", folder / "2"):  # as it lay there: the arrays by name, and more facts in another place
        _, arrays = checkpoint.describe(0, make_state(int(path.name)))
        shutil.rmtree(path / "state")
        with checkpoint.orbax().StandardCheckpointer() as writer:
            writer.save(path / "state", arrays)
        told = files.read_json(path / FACTS) | {"versions": {"apformer": "0.3.0"}, "files": {"part": [4, "0"]}}
        del told["sha256"]
        (path / "MANIFEST.json").write_text(json.dumps(check.with_digest(told), indent=1))
        shutil.rmtree(path / "facts")
    step, loaded = checkpoint.load(folder, abstract(make_state()))
    assert (step, bits(loaded)) == (2, bits(make_state(2)))
    save(folder, 3, keep=2)
    assert selection.steps(folder) == [2, 3]
    flip(folder / "2" / "MANIFEST.json")
    with pytest.raises(UserError, match=r"2 is damaged \(MANIFEST.json is not as it was written\)"):
        checkpoint.load(folder, abstract(make_state()), 2)


@pytest.mark.parametrize(
    "change, diff",
    [
        (
            lambda s: s._replace(params={**s.params, "w": jnp.ones((3, 5))}),
            r"params/w is float32\[3, 4\], not float32\[3, 5\]",
        ),
        (lambda s: s._replace(opt_state=()), r"opt_state/1/0/count is int32\[\], not absent: give"),
        (lambda s: s._replace(key=jax.random.key(0, impl="rbg")), r"key is key<fry>\[\], not key<rbg>\[\]"),
    ],
    ids=["shape", "fewer", "key"],
)
def test_a_state_of_another_model_is_refused_with_the_difference(two, change, diff):
    with refused(CHECKPOINT, diff):
        checkpoint.load(two, abstract(change(make_state())))
    assert selection.steps(two) == [1, 2]


def test_params_that_are_not_finite_are_not_saved_nor_an_optimizer_state_of_nan(tmp_path):
    good = make_state()
    bad = good._replace(params={**good.params, "half": good.params["half"].at[-1].set(-jnp.inf)})
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, good._replace(opt_state=jnp.array([jnp.inf])))  # which may mean nothing yet
        for state, name in ((bad, "params/half"), (good._replace(opt_state=jnp.array([jnp.nan])), "opt_state")):
            with refused(NON_FINITE, f"step 2: {name}"):
                checkpoints.save(2, state)
    assert selection.steps(tmp_path) == [1]


def test_a_disk_that_is_full_is_one_sentence_and_costs_no_older_checkpoint(folder, monkeypatch):
    def full(path):
        if "orbax-checkpoint-tmp" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    checkpoints = Checkpoints(folder, keep=2)
    monkeypatch.setattr(checkpoint, "fsync", full)
    checkpoints.save(3, make_state(3))
    with refused(DISK, "the disk is full.*: free some space"):
        checkpoints.wait()
    monkeypatch.undo()
    checkpoints.__exit__()
    with refused(DISK, r"/3 \(File too large\): fix that"), checkpoint._writing(folder / "3"):
        raise ValueError('OUT_OF_RANGE: Error writing "/a": Failed to write: File too large [os_error_code="27"]')
    assert selection.steps(folder) == [1, 2]
    save(folder, 4, keep=1)
    assert os.listdir(folder) == ["4"]


def test_a_disk_that_fails_while_a_checkpoint_is_read_costs_no_checkpoint(folder, monkeypatch):
    def restore(*_):
        raise ValueError("UNKNOWN: Error opening ...: Input/output error [os_error_code='5']\nmore")

    monkeypatch.setattr(checkpoint.orbax().Checkpointer, "restore", restore)
    with refused(DISK, r"cannot read .*2 \(Input/output error\): fix that"):
        checkpoint.load(folder, abstract(make_state()))
    assert sorted(os.listdir(folder)) == ["1", "2"]


def test_only_our_own_leftovers_are_removed(tmp_path):
    ours = ["removed", "6.tmp.removed", "7.tmp", "8.orbax-checkpoint-tmp-1"]
    others = ["notes", "9.corrupt", "10x", "-1", "007"]
    for name in ours + others:
        (tmp_path / name / "inside").mkdir(parents=True)
    with Checkpoints(tmp_path):
        pass
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_a_removal_that_a_crash_prevented_is_made_up_for(folder):
    with Checkpoints(folder, keep=1):
        pass
    assert os.listdir(folder) == ["2"]
