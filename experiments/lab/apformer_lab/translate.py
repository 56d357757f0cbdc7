"""Translate with a memory of training pairs, minimum Bayes risk, or several translators together.

python -m apformer_lab.translate RUN "A dog runs." --beams 32 --mbr 8 --memory 16
python -m apformer_lab.translate RUN --file test.en --ensemble RUN2
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tyro.conf import Positional, UseAppendAction

from apformer import flags
from apformer.commands.translate import printed
from apformer.errors import USAGE, UserError
from apformer.runs import directory, restore, settings_file
from apformer.settings import Settings
from apformer.tasks.translation import corpus, scores, training, vocabularies
from apformer_lab.diversified import Options, check_search, memory
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
    ensemble: UseAppendAction[tuple[str, ...]] = ()
    """One more run of the same languages and vocabulary. A token then has the mean probability of all runs."""


def translate(args: Translate) -> None:
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    words = [args.run, *filter(None, [args.sentence])]
    run, lines, name = flags.prompts(words, args.file, "a sentence", EXAMPLE, corpus.lines_of, keep_blank=True)
    path, settings = _read(run)
    given = {name: value for name in ("beams", "alpha", "mbr", "memory") if (value := getattr(args, name)) is not None}
    options = Options(**{**vars(settings.options), **given})
    others = [_other(run, path, settings) for run in args.ensemble]
    longest = min([settings.data.longest, *(other.data.longest for _, other in others)])
    settings = replace(settings, options=options, data=replace(settings.data, longest=longest))
    training.check(settings)
    check_search(options)
    if options.memory and others:
        raise UserError("--ensemble has no memory of training pairs: drop it, or give --memory 0", USAGE)
    source, target = vocabularies.load(path)
    sources = training.encode_side(source, lines, name, settings.data, "translate shorter sentences")
    params, _, _ = restore.load_params(path, settings)
    looked_up = None
    if options.memory:
        looked_up = memory.build(params, settings, restore.load_rows(path), sources, options.memory)
    found = search(sources, params, settings, [(params, other.model) for params, other in others], looked_up)
    sys.stdout.write(printed([target.decode(tokens_T) for tokens_T in found]))


def _read(run: str) -> tuple[Path, Settings]:
    path = directory.find(run)
    settings = settings_file.read(path)
    if settings.task not in TASKS:
        raise UserError(f"{run} is a run of {settings.task}: name a run of {' or '.join(TASKS)}", USAGE)
    return path, settings


def _other(run: str, path: Path, settings: Settings) -> tuple[Any, Settings]:
    """Return the parameters and settings of one more run, if it translates as the run at `path` does."""
    other_path, other = _read(run)
    ours, theirs = (scores.language_of(each.data) for each in (settings, other))
    if ours != theirs or vocabularies.sha256(vocabularies.load(other_path)) != vocabularies.sha256(
        vocabularies.load(path)
    ):
        fault = f"--ensemble {run} writes another language than {path}, or has another vocabulary"
        raise UserError(f"{fault}: name runs with the same ones, or drop the flag", USAGE)
    return restore.load_params(other_path, other)[0], other


if __name__ == "__main__":
    sys.exit(flags.script("apformer_lab.translate", Translate, translate))
