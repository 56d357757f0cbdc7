"""Any number of devices trains the same: a member as a run alone, bit for bit, and spread rows add up to the same.

Devices are forced on a CPU, which has to be said before JAX starts: so all is computed by one process of its own.
"""

import json

import pytest

from apformer import errors
from apformer.machine import devices
from tests.helpers.own_process import python

pytestmark = pytest.mark.long

SCRIPT = """
import json, sys
from pathlib import Path
import jax, numpy as np
from apformer import cli
from apformer.commands import train as command
from apformer.errors import UserError
from apformer.machine import devices
from apformer.report import figures
from apformer.runs import checkpoint, fit, restore

folder, found = Path(sys.argv[1]), {}
SMALL = "--digits 2 --min_difference 20 --max_difference 30 --d_model 16 --n_heads 2 --d_ff 16 --n_layers 1"
SMALL += " --batch_size 8 --prefix_rows 0 --hard_fraction 0 --rule adamw --steps 8 --log_every 2 --save_every 4"
SMALL += " --test_sequences 50"
command.finish = fit.fit  # without an evaluation and a page
figures.save = lambda *_: None

def train(name, *words):
    assert cli.main(["train", *SMALL.split(), "--run_dir", str(folder / name), *words]) == 0, name
    return folder / name

def state(path, step=8):
    settings = restore.load_settings(path)
    return checkpoint.load(path / "checkpoints", fit.abstract_state(settings), step)[1]

def same(ours, theirs):
    return jax.tree.all(jax.tree.map(np.array_equal, ours.params, theirs.params))

def losses(path):
    return [json.loads(line)["loss"] for line in (path / "metrics.jsonl").read_text().splitlines()]

few = train("few", "--members", "4", "--seed", "3", "--devices", "1")
many = train("many", "--members", "4", "--seed", "3", "--devices", "4")
alone = train("alone", "--seed", "4", "--devices", "1")
member = jax.tree.map(lambda leaf: leaf[1], state(many))
found["members"] = [same(state(few), state(many)), same(member, state(alone)), losses(few) == losses(many)]
spread = train("spread", "--seed", "4", "--devices", "4")
found["rows"] = float(np.abs(np.subtract(losses(alone), losses(spread))).max())
at_once = train("at_once", "--members", "4", "--seed", "3", "--devices", "4", "--member_mode", "vmap")
found["at once"] = float(np.abs(np.subtract(losses(few), losses(at_once))).max())

before = state(many, 4)
assert cli.main(["resume", str(many), "--step", "4", "--devices", "1"]) == 0
found["resumed on 1"] = [same(before, state(many, 4)), same(state(few), state(many))]
for count in ("1", "4"):
    assert cli.main(["evaluate", str(alone), "--devices", count]) == 0
    evaluation = json.loads((alone / "evaluation.json").read_text())
    found[f"evaluation on {count}"] = [evaluation[key] for key in ("terms", "nats_per_char", "exact_free_running")]
devices.limit("4")
found["meshes"] = [list(devices.mesh(members, 12).devices.shape) for members in (1, 2, 3, 4, 6, 8)]
try:
    devices.mesh(1, 6)
except UserError as error:
    found["unfit"] = str(error)
print("found", json.dumps(found))
"""


def test_four_devices_train_and_measure_as_one_does(tmp_path):
    done = python("-c", SCRIPT, tmp_path, JAX_NUM_CPU_DEVICES="4")
    found = json.loads(done.stdout.splitlines()[-1].removeprefix("found "))
    # A member has the bits of a run alone; rows that are spread add up to the same.
    assert found["members"] == [True, True, True]
    assert max(found[how] for how in ("rows", "at once")) < 1e-5
    # A checkpoint of four devices is restored on one of them, and training goes on to the same bits.
    assert found["resumed on 1"] == [True, True]
    assert found["evaluation on 4"] == pytest.approx(found["evaluation on 1"], abs=1e-4)
    # Members come first, then rows.
    assert found["meshes"] == [[1, 4], [2, 2], [1, 4], [4, 1], [2, 2], [4, 1]]
    assert found["unfit"] == "--batch_size 6 does not divide over 4 devices: give a multiple of 4, or --devices 3"


@pytest.mark.parametrize("count", ("0", "9", "-1", "two"))
def test_more_devices_than_there_are_are_refused(fails, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = f"--devices {count} is out of range: JAX sees 1, give 1 to 1"
    fails(said, errors.USAGE, "doctor", "--devices", count)
    assert devices.taken() and not list(tmp_path.iterdir())
