"""Train word vectors: `python experiments/word2vec.py FILE --variant skip_gram --loss negative --words king,love`.

FILE is a text in UTF-8. Without it, the words are the eleven characters of generated progressions. The same as
`apformer train --recipe words --text FILE`, whose flags follow FILE. The figure figures/words.png of the run shows the
words in the plane of their first two principal components.
"""

import sys

from apformer.cli import entry

if __name__ == "__main__":
    words = sys.argv[1:]
    if {"-h", "--help"} & {*words}:
        print(__doc__)
    if words and not words[0].startswith("-"):
        words = ["--text", *words]
    entry(["train", "--recipe", "words", *words])
