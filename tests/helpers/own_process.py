"""A Python of its own, which finds this apformer."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(*args, code=0, cwd=None, **environment):
    """What a Python prints, as a CompletedProcess; it ends with the exit code that is expected."""
    found = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | environment
    command = [sys.executable, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=found, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done
