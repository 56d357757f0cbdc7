"""Train a language model on a text file: `python experiments/text.py FILE --recipe baby_gpt_cpu`.

The same as `apformer train --recipe baby_gpt_cpu --text FILE`; `--help` lists the flags.
"""

import sys

from apformer.cli import main
from apformer.flags import value

if __name__ == "__main__":
    words = sys.argv[1:]
    if words and not words[0].startswith("-"):
        words = ["--text", *words]
    if value(words, "recipe") is None:
        words = ["--recipe", "baby_gpt_cpu", *words]
    sys.exit(main(["train", *words]))
