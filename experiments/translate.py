"""Train a translator: `python experiments/translate.py` on number words, or with two files whose lines belong together.

    python experiments/translate.py train.en train.de --validation val.en val.de --test test.en test.de

The same as `apformer train --recipe translate --source FILE --target FILE`; `--help` lists the flags.
"""

import sys

from apformer.cli import main
from apformer.flags import value

if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) > 1 and not words[0].startswith("-") and not words[1].startswith("-"):
        words = ["--source", words[0], "--target", words[1], *words[2:]]
    if value(words, "recipe") is None:
        words = ["--recipe", "translate", *words]
    sys.exit(main(["train", *words]))
