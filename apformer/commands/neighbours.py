"""Print the words nearest to others, by word vectors: apformer neighbours RUN king queen, or king - man + woman."""

import os
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import tasks
from apformer.flags import require_whole
from apformer.runs import restore


@dataclass(frozen=True)
class Neighbours:
    """Print the words nearest to others: `apformer neighbours RUN king queen` prints a line for each.

    Attributes:
        run_and_words: [RUN] [WORD ...]; + or - between words makes a sum. The defaults are the latest run, and words of
            frequency ranks 1, 2, 4, 8, ...
        neighbours: Number of neighbours of each word.
        member: Number of a member of a population. The default is the best on validation rows.
    """

    run_and_words: Positional[tuple[str, ...]] = ()
    neighbours: int = 8
    member: int | None = None


def neighbours(args: Neighbours) -> None:
    """Print the words nearest to each. Raises UserError that names the flag or the word."""
    require_whole("neighbours", args)
    words = [*args.run_and_words]
    named = words and (os.sep in words[0] or os.path.isdir(words[0]))
    run = restore.load(words.pop(0) if named else None, args.member)
    nearest = tasks.ability(run.settings, "neighbours", run.path)
    print(nearest(run.params, run.path, words, args.neighbours))
