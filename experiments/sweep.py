"""Compare combinations of flags, each with several seeds: `python experiments/sweep.py --position alibi,relative`.

The same as `apformer sweep --position alibi,relative`; `--help` says how, and what it leaves.
"""

import sys

from apformer.cli import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
