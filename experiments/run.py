"""Train a transformer on arithmetic progressions: `python experiments/run.py --d_model 128`.

The same as `apformer train --d_model 128`; `--help` lists the flags. README.md says what you will see and in what time.
"""

import sys

from apformer.cli import entry

if __name__ == "__main__":
    entry(["train", *sys.argv[1:]])
