"""Translate with a memory of training pairs and minimum Bayes risk.

python -m apformer_lab.translate RUN "A dog runs." --beams 32 --mbr 8 --memory 16
python -m apformer_lab.translate RUN --file test.en
"""

import sys
from dataclasses import dataclass, replace

from tyro.conf import Positional

from apformer import flags
from apformer.commands.translate import printed
from apformer.errors import USAGE, UserError
from apformer.runs import directory, restore
from apformer.tasks import settings_file
from apformer.tasks.translation import corpus, training, vocabularies
from apformer_lab.diversified import Options, check_search
from apformer_lab.diversified.search import search

EXAMPLE = 'python -m apformer_lab.translate RUN "A dog runs."'
TASKS = ("translation", "diversified")


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file with one sentence a line."""

    run: Positional[str]
    """Run of --recipe translate, base or diversified."""
    sentence: Positional[str | None] = None
    """Sentence to translate."""
    file: str | None = None
    """File with one sentence a line, instead of a sentence. Prints one translation a line."""
    beams: int | None = None
    """Number of beams of the search. The default is that of the run."""
    alpha: float | None = None
    """Length penalty: 0 for none, more for longer translations. The default is that of the run."""
    mbr: int | None = None
    """Minimum Bayes risk: number of the best beams to compare. The translation is the one most like the others. With 0,
    it is the best beam. The default is that of the run."""
    memory: int | None = None
    """Number of training pairs that each sentence looks up; 0 for none. The texts that the run learned from must be
    where they were. The default is that of the run."""


def translate(args: Translate) -> None:
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    words = [args.run, *filter(None, [args.sentence])]
    run, lines, name = flags.prompts(words, args.file, "sentence", EXAMPLE, corpus.lines_of, keep_blank=True)
    path = directory.find(run)
    settings = settings_file.read(path)
    if settings.task not in TASKS:
        raise UserError(f"{run} is a run of {settings.task}: name a run of {' or '.join(TASKS)}", USAGE)
    given = {name: value for name in ("beams", "alpha", "mbr", "memory") if (value := getattr(args, name)) is not None}
    options = Options(**vars(settings.options) | given)
    settings = replace(settings, options=options)
    training.check(settings)
    check_search(options)
    source, target = vocabularies.load(path)
    sources = training.encode_side(source, lines, name, settings.data, "translate shorter sentences")
    params, _, _ = restore.load_params(path, settings)
    rows = restore.load_rows(path) if options.memory else None
    found = [target.decode(tokens_T) for tokens_T in search(sources, params, settings, rows)]
    sys.stdout.write(printed(found))


if __name__ == "__main__":
    sys.exit(flags.script("apformer_lab.translate", Translate, translate))
