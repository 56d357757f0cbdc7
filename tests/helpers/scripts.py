"""Scripts of experiments, which are no package."""

import importlib
import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def load(*names):
    """The modules of these names, of experiments or of its studies."""
    folders = [str(EXPERIMENTS), str(EXPERIMENTS / "studies")]
    sys.path[:0] = folders
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        del sys.path[: len(folders)]
