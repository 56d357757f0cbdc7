"""Train a translator: `python experiments/translate.py` on number words, or with two files of parallel lines.

    python experiments/translate.py FILE FILE
    python experiments/translate.py train.en train.de --validation val.en val.de --test test.en test.de

The first FILE is the source, the second its translation. The same as `apformer train --recipe translate --source FILE
--target FILE`, whose flags follow.
"""

import sys

from apformer.cli import entry

if __name__ == "__main__":
    words = sys.argv[1:]
    if {"-h", "--help"} & {*words}:
        print(__doc__)
    if len(words) > 1 and not words[0].startswith("-") and not words[1].startswith("-"):
        words = ["--source", words[0], "--target", words[1], *words[2:]]
    entry(["train", "--recipe", "translate", *words])
