"""Compare combinations of flags, each with several seeds: `python experiments/sweep.py --position alibi,relative`.

`--help` says how; apformer/sweep/sweep.py is where it is done.
"""

import sys
from functools import partial

from apformer.machine.guard import guard
from apformer.sweep.sweep import sweep

if __name__ == "__main__":
    sys.exit(guard("sweep", partial(sweep, sys.argv[1:])))
