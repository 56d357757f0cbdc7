"""Import this before the laboratory: where it is not installed, a study ends with one sentence."""

import sys
from importlib.util import find_spec

from apformer.errors import USAGE, tell

if find_spec("apformer_lab") is None:
    tell(f"{sys.argv[0]}: it needs the laboratory: pip install -e experiments/lab")
    sys.exit(USAGE)
