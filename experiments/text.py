"""Train a language model on a text file: `python experiments/text.py FILE`.

FILE is a text in UTF-8, or a folder of tokens (see datasets/text). The same as `apformer train --recipe text --text
FILE`, whose flags follow FILE.
"""

import sys

from apformer.cli import entry

if __name__ == "__main__":
    words = sys.argv[1:]
    if {"-h", "--help"} & {*words}:
        print(__doc__)
    if words and not words[0].startswith("-"):
        words = ["--text", *words]
    entry(["train", "--recipe", "text", *words])
