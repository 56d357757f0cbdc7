"""What a type checker finds in a user's program; it is no part of the extras, and is left out where it is not there."""

import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import jax
import apformer
from apformer import model

cfg = model.Config(n_heads={n_heads}, position={position})
run = apformer.load("runs/latest")
print(run.{model}.apply(run.params))
print(model.apply(model.init(jax.random.key(0), cfg), {tokens}, cfg))
"""


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("pyright"), reason="pip install pyright")
def test_a_type_checker_finds_the_four_faults_of_a_program_and_none_in_a_right_one(tmp_path):
    tokens = "jax.numpy.zeros((1, 3), int)"
    right = {"n_heads": "4", "position": '"rotary"', "model": "model", "tokens": tokens}
    wrong = {"n_heads": '"four"', "position": '"rotry"', "model": "modle", "tokens": '"007 010"'}
    for count, values in enumerate((right, wrong)):
        (tmp_path / f"program{count}.py").write_text(PROGRAM.format(**values))
    command = ["pyright", "--pythonpath", sys.executable, *map(str, tmp_path.glob("*.py"))]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = sorted(line.rpartition(".py:")[2].split(":")[0] for line in said.splitlines() if " error: " in line)
    assert lines == ["6", "6", "8", "9"] and "program0.py:" not in said, said
