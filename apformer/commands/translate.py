"""Translate a sentence or a file of sentences: apformer translate RUN "seven hundred and five"."""

import json
import sys
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import files, tasks
from apformer.errors import UserError, tell
from apformer.files import FilePath
from apformer.flags import prompts, require, require_whole
from apformer.report import progress
from apformer.runs import restore
from apformer.settings import with_part
from apformer.tasks.settings_file import check
from apformer.tasks.translation import corpus, scores

EXAMPLE = 'apformer translate RUN "seven hundred and five"'


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file with one sentence a line.

    Attributes:
        run_and_sentence: [RUN] SENTENCE, in quotes, or [RUN] with --file. The default run is the latest.
        file: File with one sentence a line, or - for standard input. Prints one translation a line.
        beams: Number of beams of the search. With 1, the most likely token is always taken. The default is that of the
            run.
        alpha: Length penalty: 0 for none, more for longer translations. The default is that of the run.
        temperature: Divisor of the logits. With 0, translations are searched for; above 0, tokens are drawn.
        seed: Random seed of the draws.
        member: Number of a member of a population. The default is the best on validation rows.
        json: Print one JSON object.
    """

    run_and_sentence: Positional[tuple[str, ...]] = ()
    file: FilePath | None = None
    beams: int | None = None
    alpha: float | None = None
    temperature: float = 0.0
    seed: int = 0
    member: int | None = None
    json: bool = False


def translate(args: Translate) -> None:
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    require("temperature", 0 <= args.temperature < 1e6, args, "0 to less than 1000000")
    require_whole("seed", args, 0)
    place, lines, name = prompts(  # a blank line is translated, too
        args.run_and_sentence, args.file, "sentence", EXAMPLE, corpus.lines_of, keep_blank=True
    )
    run = restore.load(place, args.member)
    translate = tasks.ability(run.settings, "translate", run.path)
    options = {flag: getattr(args, flag) for flag in ("beams", "alpha") if getattr(args, flag) is not None}
    if options and args.temperature:
        raise UserError(f"--{min(options)} is of the search, and --temperature draws without one: drop one of the two")
    run = run._replace(settings=with_part(run.settings, "options", **options))
    check(run.settings)
    letters = run.path / corpus.LETTERS
    if letters.exists() and (unseen := {*"".join(map(str.strip, lines))} - {*files.read_text(letters)}):
        tell(f"never seen in training: {''.join(sorted(unseen))!r:.60}")
    if (doubt := scores.doubt(run.path)) is not None:
        tell(doubt)
    with progress.reporting("translate") as report:
        translations = translate(lines, run, args.temperature, args.seed, report, name)
    if args.json:
        answers = [{"source": line, "translation": text} for line, text in zip(lines, translations, strict=True)]
        print(json.dumps({"run": str(run.path), "translations": answers}))
    else:
        sys.stdout.write(printed(translations))


def printed(texts: list[str]) -> str:
    """Return texts as one line each."""
    one_line = str.maketrans("\r\n", "  ")
    return "".join(text.translate(one_line) + "\n" for text in texts)
