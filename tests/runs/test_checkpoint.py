"""What is loaded equals what was saved, bit for bit, or is refused; and no failure costs an older checkpoint."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apformer import errors
from apformer.formats import arrays
from apformer.runs import checkpoint, manifest, selection
from apformer.runs.checkpoint import Checkpoints

ROOT = Path(__file__).parents[2]


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


def bits(state):
    """Type, shape and bytes of every leaf."""
    leaves = [leaf if not checkpoint._is_key(leaf) else jax.random.key_data(leaf) for leaf in jax.tree.leaves(state)]
    types = [str(leaf.dtype) for leaf in jax.tree.leaves(state)]
    return types, [(leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves]


def save(folder, *steps, keep=9):
    """Save `make_state(step)` at each of `steps`."""
    with Checkpoints(folder, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, make_state(step))


def unfinished(folder):
    return [path.name for path in folder.iterdir() if not (path / manifest.NAME).exists()]


@pytest.mark.parametrize(("members", "as_abstract"), [(None, abstract), (3, lambda state: state)])
def test_what_is_loaded_equals_what_was_saved(tmp_path, members, as_abstract):
    state = make_state(7, members)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(12, state)
    step, loaded = checkpoint.load(tmp_path, as_abstract(state))
    assert step == 12
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert bits(loaded) == bits(state)
    draws = [jax.vmap(jax.random.bits)(s.key) if members else jax.random.bits(s.key) for s in (state, loaded)]
    np.testing.assert_array_equal(*draws)


def test_every_dtype_keeps_its_bits(tmp_path):
    arrays = [
        np.array([0.1, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32),
        np.frombuffer(b"\x01\x00\xc0\x7f\xff\xff\xff\x7f", np.float32),  # NaNs with a payload
        np.array([1.0, -0.0, 1e-40, np.inf, np.nan], jnp.bfloat16),
        np.array([65504.0, -0.0, 6e-8], np.float16),
        np.array([-(2**31), -1, 2**31 - 1], np.int32),
        np.array([0, 2**32 - 1], np.uint32),
        np.array([True, False]),
        np.array(-5, np.int32),
        np.zeros((0, 3), np.float32),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
    ]
    state = {str(k): array for k, array in enumerate(arrays)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, state)
    _, loaded = checkpoint.load(tmp_path, state)
    assert bits(loaded) == bits(state)


def test_64_bit_numbers_keep_their_bits_and_are_refused_where_jax_would_round_them(tmp_path):
    state = {"x": np.array([0.1, 1e300]), "n": np.array(2**60)}
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True):
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(0, state)
        _, loaded = checkpoint.load(tmp_path, state)
        assert bits(loaded) == bits(state)
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(TypeError, match="x is float64|n is int64"):
        checkpoints.save(1, state)


@pytest.mark.parametrize("leaf", [0.5, 3, "text"])
def test_a_leaf_that_is_no_array_is_refused(tmp_path, leaf):
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(TypeError, match="nested/0 is a"):
        checkpoints.save(0, {"nested": [leaf]})


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_keep_their_generator(tmp_path, impl):
    state = {"key": jax.random.key(5, impl=impl)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, state)
    _, loaded = checkpoint.load(tmp_path, abstract(state))
    assert loaded["key"].dtype == state["key"].dtype
    assert bits(loaded) == bits(state)


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
    state = {"params": jnp.ones(2)}
    scores = {1: 0.5, 2: 0.1, 3: float("nan"), 4: 0.3, 5: 0.1, 6: None, 7: 0.2, 8: 0.9}
    kept = {}
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step, score in scores.items():
            checkpoints.save(step, state, () if score is None else score)
            checkpoints.wait()
            kept[step] = (selection.steps(tmp_path), selection.best(tmp_path))
    assert kept == {
        1: ([1], 1),
        2: ([1, 2], 2),
        3: ([2, 3], 2),
        4: ([2, 3, 4], 2),
        5: ([4, 5], 5),  # equal scores: the newer
        6: ([5, 6], 5),
        7: ([5, 6, 7], 5),
        8: ([5, 7, 8], 5),
    }
    assert sorted(os.listdir(tmp_path)) == ["5", "7", "8"]


@pytest.mark.parametrize("damage", ["middle byte", "gone"])
def test_what_may_have_been_the_best_is_named_and_never_passed_over(tmp_path, damage, capfd):
    with Checkpoints(tmp_path) as checkpoints:
        for step, score in ((1, 1.0), (2, 0.5), (3, 0.7)):
            checkpoints.save(step, {"params": jnp.ones(2)}, score)
    DAMAGES[damage](tmp_path / "2" / manifest.NAME)
    remedy = r"`apformer resume .*` computes it again; or delete it, to use step \[1, 3\]$"
    sentence = r"2 is damaged \(MANIFEST.json is not as it was written\): " + remedy
    with pytest.raises(errors.UserError, match=sentence) as caught:
        selection.best(tmp_path)
    assert caught.value.exit_code == errors.CHECKPOINT
    assert capfd.readouterr().err == ""
    Checkpoints(tmp_path).close()  # training goes on with it set aside, not deleted
    assert selection.best(tmp_path) == 3 and (tmp_path / "2.corrupt" / "state").is_dir()
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "2 is damaged" in said and said.endswith("renamed to 2.corrupt\n")


def test_what_a_stop_saved_does_not_count_and_goes_with_the_next_save(tmp_path):
    state, kept = {"params": jnp.ones(2)}, {}
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step, temporary in ((1, True), (2, True), (4, False), (6, True), (8, False), (10, True), (12, False)):
            checkpoints.save(step, state, 0.0 if temporary else step, temporary)
            checkpoints.wait()
            found = selection.steps(tmp_path), selection.scheduled(tmp_path), selection.best(tmp_path)
            kept[step] = found
    assert kept == {
        1: ([1], [], None),
        2: ([2], [], None),
        4: ([4], [4], 4),
        6: ([4, 6], [4], 4),
        8: ([4, 8], [4, 8], 4),
        10: ([4, 8, 10], [4, 8], 4),
        12: ([4, 8, 12], [4, 8, 12], 4),
    }


def test_members_that_are_not_finite_have_no_score_and_the_others_are_saved(tmp_path):
    good = {"params": {"w": jnp.ones((3, 2))}, "opt_state": jnp.zeros(3)}
    spoilt = {"params": {"w": good["params"]["w"].at[0, 1].set(jnp.inf)}, "opt_state": jnp.zeros(3).at[2].set(jnp.nan)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, good, [3.0, 2.0, 1.0])
        checkpoints.save(2, spoilt, [1.0, 1.5, 0.5])
        checkpoints.save(3, good, [np.nan, 1.6, np.inf])
        with pytest.raises(errors.UserError, match="step 4: .*not finite") as caught:
            checkpoints.save(4, spoilt | {"params": {"w": good["params"]["w"].at[:2].set(jnp.nan)}}, [1.0, 2.0, 3.0])
    assert caught.value.exit_code == errors.NON_FINITE and selection.steps(tmp_path) == [1, 2, 3]
    np.testing.assert_array_equal(selection.member_scores(tmp_path, 2), [np.nan, 1.5, np.nan])
    assert selection.best(tmp_path) == 2  # the lowest mean of those that are finite
    step, loaded = checkpoint.load(tmp_path, abstract(spoilt), 2)
    assert step == 2 and bits(loaded) == bits(spoilt)


def flip(file, at=0.5):
    data = bytearray(file.read_bytes())
    if not data:
        return file.write_bytes(b"junk")
    data[int(at * (len(data) - 1))] ^= 4
    file.write_bytes(data)


def cut(file):
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] if data else b"junk")


DAMAGES = {
    "first byte": lambda file: flip(file, 0),
    "middle byte": flip,
    "last byte": lambda file: flip(file, 1),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size) or b"\0"),
    "cut": cut,
    "emptied": lambda file: file.write_bytes(b"" if file.stat().st_size else b"x"),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "gone": lambda file: file.unlink(),
}


def test_damage_to_any_file_is_found_and_the_one_before_is_loaded(tmp_path, capfd):
    """Each file has two kinds of damage in turn, so that each kind meets several files."""
    save(tmp_path / "whole", 1, 2)
    target, want = abstract(make_state()), bits(make_state(1))
    newest = tmp_path / "whole" / "2"
    files = sorted(file.relative_to(newest) for file in newest.rglob("*") if file.is_file())
    assert Path(manifest.NAME) in files and len(files) > 5
    for number, (file, damage) in enumerate(zip([*files, *files], itertools.cycle(DAMAGES), strict=False)):
        folder = shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        DAMAGES[damage](folder / "2" / file)
        with pytest.raises(errors.UserError, match=r"damaged.*delete it, to use step \[1\]") as caught:
            checkpoint.load(folder, target, step=2)
        assert caught.value.exit_code == errors.CHECKPOINT
        step, loaded = checkpoint.load(folder, target)
        assert (step, bits(loaded)) == (1, want), (file, damage)
        said = capfd.readouterr().err
        assert said.count("\n") == 1 and str(file) in said and (folder / "2.corrupt").is_dir()


def test_of_the_only_checkpoint_no_other_is_recommended(tmp_path):
    save(tmp_path, 4)
    next(file for file in (tmp_path / "4" / "state").rglob("*") if file.is_file()).unlink()
    with pytest.raises(errors.UserError, match=r"damaged.*: `apformer resume .*` computes it again$"):
        checkpoint.load(tmp_path, abstract(make_state()), step=4)


def test_no_flipped_bit_of_the_manifest_goes_unnoticed(tmp_path):
    save(tmp_path, 4)
    file = tmp_path / "4" / manifest.NAME
    text, want = file.read_bytes(), manifest.read(file.parent)
    for position in range(0, len(text), 7):
        data = bytearray(text)
        data[position] ^= 1 << (position % 8)
        file.write_bytes(data)
        try:
            assert manifest.read(file.parent) == want  # white space for white space
        except manifest.Corrupt:
            pass


@pytest.mark.parametrize(
    "facts",
    [
        {"scores": ["0.5"]},
        {"scores": 0.5},
        {"temporary": 1},
        {"step": "4"},
        {"tree": []},
        {"keys": None},
        {"files": []},
        {"files": {"part": 7}},
        {"files": {"../../4/MANIFEST.json": [1]}},
    ],
)
def test_a_manifest_sealed_with_other_facts_is_corrupt(tmp_path, facts):
    save(tmp_path, 4)
    file = tmp_path / "4" / manifest.NAME
    said = {name: value for name, value in json.loads(file.read_text()).items() if name != "sha256"} | facts
    file.write_text(json.dumps(said | {"sha256": manifest._digest(said)}))
    with pytest.raises(
        errors.UserError, match="4 is damaged .MANIFEST.json is not as it was written.: `apformer resume"
    ):
        selection.best(tmp_path)


@pytest.mark.parametrize("name", ["part", "x" * 999, "x\0", "../4", ""])
def test_a_file_that_no_checkpoint_has_is_missing(tmp_path, name):
    manifest.seal(tmp_path, {"step": 4, "scores": [], "temporary": False, "tree": {}, "keys": {}})
    file = tmp_path / manifest.NAME
    said = json.loads(file.read_text()) | {"files": {name: [4, "0"]}}
    del said["sha256"]
    file.write_text(json.dumps(said | {"sha256": manifest._digest(said)}))
    with pytest.raises(manifest.Corrupt, match="is missing"):
        manifest.verify(tmp_path)


def test_a_copy_under_another_step_is_no_checkpoint(tmp_path, capsys):
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    step, _ = checkpoint.load(tmp_path, abstract(make_state()))
    assert step == 1
    assert "copy of step 1" in capsys.readouterr().err


def test_nothing_is_loaded_when_all_are_damaged(tmp_path, capsys):
    save(tmp_path, 1, 2)
    for step in (1, 2):
        flip(tmp_path / str(step) / "state" / "_METADATA")
    with pytest.raises(errors.UserError, match="no valid checkpoint") as caught:
        checkpoint.load(tmp_path, abstract(make_state()))
    assert caught.value.exit_code == errors.CHECKPOINT
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize(
    "change, diff",
    [
        (
            lambda s: s._replace(params={**s.params, "w": jnp.ones((3, 5))}),
            r"params/w is float32\[3, 4\], not float32\[3, 5\]",
        ),
        (lambda s: s._replace(params={**s.params, "w": jnp.ones((3, 4), jnp.int32)}), r"not int32\[3, 4\]"),
        (lambda s: s._replace(params={**s.params, "half": jnp.ones(5)}), r"half is bfloat16\[5\], not float32\[5\]"),
        (lambda s: s._replace(params={**s.params, "b": jnp.ones(2)}), r"params/b is absent, not float32\[2\]"),
        (lambda s: s._replace(params={"half": s.params["half"]}), r"params/w is float32\[3, 4\], not absent"),
        (lambda s: s._replace(opt_state=()), r"opt_state/1/0/count is int32\[\], not absent; .*; 2 more"),
        (lambda s: s._replace(key=jax.random.key(0, impl="rbg")), r"key is key<fry>\[\], not key<rbg>\[\]"),
        (lambda s: jax.vmap(lambda _: s)(jnp.arange(3)), r"step is int32\[\], not int32\[3\]; .*; 6 more"),
    ],
    ids=["shape", "kind", "dtype", "more", "fewer", "optimizer", "key", "population"],
)
def test_a_state_of_another_model_is_refused_with_the_difference(tmp_path, change, diff):
    save(tmp_path, 1)
    with pytest.raises(errors.UserError, match=diff) as caught:
        checkpoint.load(tmp_path, abstract(change(make_state())))
    assert caught.value.exit_code == errors.CHECKPOINT
    assert selection.steps(tmp_path) == [1]


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    verify = manifest.verify

    def late(path):
        """What the process that trains does meanwhile: it saves a later step and removes this one."""
        monkeypatch.setattr(manifest, "verify", verify)
        save(path.parent, 9)
        selection.remove(path.parent, int(path.name))
        return verify(path)

    save(tmp_path, 1, 2)
    monkeypatch.setattr(manifest, "verify", late)
    assert checkpoint.load(tmp_path, abstract(make_state()))[0] == 9
    monkeypatch.setattr(manifest, "verify", late)
    with pytest.raises(errors.UserError, match=r"no checkpoint of step 1: it holds \[9\]") as caught:
        checkpoint.load(tmp_path, abstract(make_state()), step=1)
    assert caught.value.exit_code == errors.CHECKPOINT
    assert "damaged" not in capsys.readouterr().err and not [*tmp_path.glob("*.corrupt")]


def test_a_step_that_is_not_there(tmp_path):
    save(tmp_path, 1, 2)
    with pytest.raises(errors.UserError, match=r"no checkpoint of step 3: it holds \[1, 2\]"):
        checkpoint.load(tmp_path, abstract(make_state()), step=3)


@pytest.mark.parametrize(("name", "value"), [("w", np.nan), ("half", -np.inf)])
def test_params_that_are_not_finite_are_not_saved(tmp_path, value, name):
    good = make_state()
    bad = good._replace(params={**good.params, name: good.params[name].at[-1].set(value)})
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, good)
        with pytest.raises(errors.UserError, match=f"step 2: params/{name}") as caught:
            checkpoints.save(2, bad)
    assert caught.value.exit_code == errors.NON_FINITE
    assert selection.steps(tmp_path) == [1]


def test_an_optimizer_state_of_nan_is_not_saved_but_infinity_may_mean_nothing_yet(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"opt_state": jnp.array([jnp.inf]), "best": jnp.array(jnp.nan)})
        with pytest.raises(errors.UserError, match="opt_state"):
            checkpoints.save(2, {"opt_state": jnp.array([jnp.nan])})
    assert selection.steps(tmp_path) == [1]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        ValueError("RESOURCE_EXHAUSTED: Error writing ...: No space left on device\nmore"),
    ],
    ids=["full", "quota", "tensorstore"],
)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, error):
    state = make_state()
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.wait()
        orbax = arrays.orbax()

        def fail(path, arrays):
            orbax.save(path, arrays)
            raise error

        monkeypatch.setattr(arrays, "orbax", lambda: SimpleNamespace(save=fail, load=orbax.load))
        checkpoints.save(2, state)
        with pytest.raises(errors.UserError, match="the disk is full.*: free some space") as caught:
            checkpoints.save(3, state)
        assert caught.value.exit_code == errors.DISK and "\n" not in str(caught.value)
        monkeypatch.undo()
        checkpoints.save(4, state)  # once there is space again, all is well
    assert os.listdir(tmp_path) == ["4"]


def test_too_little_space_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(errors.UserError, match="MB free") as caught:
        checkpoints.save(1, make_state())
    assert caught.value.exit_code == errors.DISK
    assert os.listdir(tmp_path) == []


def run_python(program, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_kill_in_the_middle_of_a_save_costs_that_save_alone(tmp_path):
    program = """
        import sys
        import numpy as np
        from apformer.runs.checkpoint import Checkpoints
        with Checkpoints(sys.argv[1], keep=2) as checkpoints:
            for step in range(1, 1000):
                checkpoints.save(step, {"a": np.full(200_000, step, np.int32)})
                print(step - 1, flush=True)  # this one is complete
    """
    target = {"a": jax.ShapeDtypeStruct((200_000,), jnp.int32)}
    for extra in (4,):
        with run_python(program, tmp_path / str(extra)) as process:
            for _ in range(extra):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        step, loaded = checkpoint.load(tmp_path / str(extra), target)
        assert step >= acknowledged
        np.testing.assert_array_equal(loaded["a"], step)
        Checkpoints(tmp_path / str(extra)).close()
        assert unfinished(tmp_path / str(extra)) == []


def test_only_our_own_leftovers_are_removed(tmp_path):
    save(tmp_path, 5)
    ours = ["6.tmp.removed", "7.tmp", "8.tmp.orbax-checkpoint-tmp"]
    others = ["notes", "9.corrupt", "10x", "-1", "007"]
    for name in ours + others:
        (tmp_path / name / "inside").mkdir(parents=True)
    Checkpoints(tmp_path).close()
    assert sorted(os.listdir(tmp_path)) == sorted(["5", *others])


def test_a_crash_in_the_middle_of_a_removal_leaves_no_damaged_checkpoint(tmp_path, monkeypatch, capfd):
    save(tmp_path, 5, 6)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if the process ended here
        selection.remove(tmp_path, 5)
    assert selection.steps(tmp_path) == [6]
    Checkpoints(tmp_path).close()
    assert os.listdir(tmp_path) == ["6"] and capfd.readouterr().err == ""


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.UserError, match="cannot write") as caught:
        Checkpoints(tmp_path / "file" / "checkpoints")
    assert caught.value.exit_code == errors.DISK


@pytest.mark.parametrize("change", [lambda array: array + array.dtype.type(1), lambda array: array[:0]])
def test_what_a_disk_has_lost_without_a_word_is_not_sealed(tmp_path, monkeypatch, change):
    state = make_state()
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.wait()
        orbax = arrays.orbax()

        def load(path, **options):
            return {name: change(np.atleast_1d(array)) for name, array in orbax.load(path, **options).items()}

        monkeypatch.setattr(arrays, "orbax", lambda: SimpleNamespace(save=orbax.save, load=load))
        checkpoints.save(2, state)
        with pytest.raises(errors.UserError, match="2 .*is not as it was written.*: mend that") as caught:
            checkpoints.wait()
    assert caught.value.exit_code == errors.DISK and os.listdir(tmp_path) == ["1"]


def test_a_disk_that_fails_while_a_checkpoint_is_read_costs_no_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, 1, 2)

    def load(path, **options):
        raise ValueError("UNKNOWN: Error opening ...: Input/output error [os_error_code='5']\nmore")

    monkeypatch.setattr(arrays, "orbax", lambda: SimpleNamespace(load=load))
    with pytest.raises(errors.UserError, match=r"cannot read .*2 \(Input/output error\): mend that") as caught:
        checkpoint.load(tmp_path, abstract(make_state()))
    assert caught.value.exit_code == errors.DISK and sorted(os.listdir(tmp_path)) == ["1", "2"]


def test_writes_that_end_after_one_that_failed_print_nothing(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    arrays._leave_out_late_writes.__wrapped__()
    late, other = (SimpleNamespace(exc_value=RuntimeError(words)) for words in ("Event loop is closed", "other"))
    sys.unraisablehook(late)
    sys.unraisablehook(other)
    assert seen == [other]
