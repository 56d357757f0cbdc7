"""Translate a sentence or a file of sentences: apformer translate RUN "seven hundred and five"."""

import json
import sys
from dataclasses import dataclass, replace

from tyro.conf import Positional, UseAppendAction

from apformer import tasks
from apformer.errors import USAGE, UserError
from apformer.flags import parse, prompts, require
from apformer.runs import directory, restore, settings_file
from apformer.tasks.translation import corpus, memory, scores, training, vocabularies
from apformer.tasks.translation.search import search

EXAMPLE = 'apformer translate RUN "seven hundred and five"'


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file with one sentence a line."""

    run_and_sentence: Positional[tuple[str, ...]] = ()
    """[RUN] SENTENCE, or [RUN] with --file. The default run is the latest."""
    file: str | None = None
    """File with one sentence a line, or - for standard input. Prints one translation a line."""
    beams: int | None = None
    """Number of beams of the search. With 1, the most likely token is always taken. The default is that of the run."""
    alpha: float | None = None
    """Length penalty: 0 for none, more for longer translations. The default is that of the run."""
    mbr: int | None = None
    """Minimum Bayes risk: number of the best beams to compare. The translation is the one most like the others. With 0,
    it is the best beam. The default is that of the run."""
    memory: int | None = None
    """Number of training pairs that each sentence looks up; 0 for none. The texts that the run learned from must be
    where they were. The default is that of the run."""
    temperature: float = 0.0
    """Divisor of the logits. With 0, translations are searched for; above 0, tokens are drawn."""
    seed: int = 0
    """Random seed of the draws."""
    ensemble: UseAppendAction[tuple[str, ...]] = ()
    """One more run of the same languages and vocabulary. A token then has the mean probability of all runs."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    json: bool = False
    """Print one JSON object."""


def main(args):
    """Run the command with its arguments."""
    translate(parse(Translate, args, "apformer translate"))


def translate(args):
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    require("beams", args.beams is None or 1 <= args.beams < 2**15, args, "1 to 32767")
    require("alpha", args.alpha is None or 0 <= args.alpha < 100, args, "at least 0 and less than 100")
    require("memory", args.memory is None or 0 <= args.memory < 2**31, args, "0 to 2147483647")
    require("temperature", 0 <= args.temperature < 1e6, args, "0 or more")
    require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")
    given = ([*args.run_and_sentence], args.file, "a sentence", EXAMPLE, corpus.lines_of)
    run, lines, name = prompts(*given, keep_blank=True)  # so that each line has its translation
    path = directory.find(run)
    settings = settings_file.read(path)
    tasks.ability(settings, "translate", path)
    source, target = vocabularies.load(path)
    others = [_other(run, path, settings) for run in args.ensemble]
    longest = min([settings.data.longest, *(other.data.longest for _, other in others)])
    settings = replace(settings, data=replace(settings.data, longest=longest))
    sources = training.encode_side(source, lines, name, settings.data, "translate shorter sentences")
    params, _, _ = restore.load_params(path, settings, args.member)
    names = ("beams", "alpha", "mbr", "memory")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    options = replace(settings.options, **given)
    training.require_mbr(options)
    if options.memory and others:
        raise UserError("--ensemble has no memory of training pairs: drop it, or give --memory 0", USAGE)
    method = {"options": options, "temperature": args.temperature, "seed": args.seed}
    method["others"] = [(params, other.model) for params, other in others]
    if options.memory:
        method["memory"] = memory.build(params, replace(settings, options=options), _pairs(path), sources)
    found = [target.decode(tokens_T) for tokens_T in search(sources, params, settings, **method)]
    if args.json:
        answers = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
        print(json.dumps({"run": str(path), "ensemble": args.ensemble, "translations": answers}))
    else:
        one_line = str.maketrans("\r\n", "  ")
        sys.stdout.write("".join(text.translate(one_line) + "\n" for text in found))


def _pairs(path):
    """The rows of a run. Raises UserError where its texts are gone."""
    try:
        return restore.load_rows(path)
    except UserError as fault:
        raise UserError(f"{fault}, or translate without training pairs: --memory 0", fault.exit_code) from None


def _other(run, path, settings):
    """(params, settings) of a run of the ensemble.

    Raises UserError (exit USAGE) if it writes another language than the run at `path`, or has another vocabulary.
    """
    run = directory.find(run)
    other = settings_file.read(run)
    tasks.ability(other, "translate", run)
    ours, theirs = (scores.language_of(each.data) for each in (settings, other))
    if ours != theirs:
        fault = f"--ensemble {run} writes the language {theirs}, and {path} writes {ours}"
        raise UserError(f"{fault}: name runs of the same languages, or drop the flag", USAGE)
    if vocabularies.sha256(vocabularies.load(run)) != vocabularies.sha256(vocabularies.load(path)):
        fault = f"--ensemble {run} has another vocabulary than {path}"
        raise UserError(f"{fault}: name runs with the same vocabulary, or drop the flag", USAGE)
    return restore.load_params(run, other)[0], other
