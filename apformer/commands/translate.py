"""Translate a sentence or a file of sentences: apformer translate RUN "seven hundred and five"."""

import json
import sys
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import tasks
from apformer.files import FilePath
from apformer.flags import prompts, require
from apformer.report import progress
from apformer.runs import directory, restore, settings_file
from apformer.settings import with_part
from apformer.tasks.translation import corpus, scores, training, vocabularies

EXAMPLE = 'apformer translate RUN "seven hundred and five"'


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file with one sentence a line.

    Attributes:
        run_and_sentence: [RUN] SENTENCE, or [RUN] with --file. The default run is the latest.
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
    require("beams", args.beams is None or 1 <= args.beams < 2**15, args, "1 to 32767")
    require("alpha", args.alpha is None or 0 <= args.alpha < 100, args, "at least 0 and less than 100")
    require("temperature", 0 <= args.temperature < 1e6, args, "0 or more")
    require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")
    prompt = ([*args.run_and_sentence], args.file, "a sentence", EXAMPLE, corpus.lines_of)
    run, lines, name = prompts(*prompt, keep_blank=True)  # each blank line has its translation
    path = directory.find(run)
    settings = settings_file.read(path)
    search = tasks.ability(settings, "translate", path)
    source, target = vocabularies.load(path)
    sources = training.encode_side(source, lines, name, settings.data, "translate shorter sentences")
    params, _, _ = restore.load_params(path, settings, args.member)
    given = {name: getattr(args, name) for name in ("beams", "alpha") if getattr(args, name) is not None}
    settings = with_part(settings, "options", **given)
    if (doubt := scores.doubt(path)) is not None:
        print(doubt, file=sys.stderr)
    how = (params, settings, args.temperature, args.seed)
    with progress.bar(desc="translate", leave=False) as bar:
        told = progress.reporter(bar)
        tokens = search(sources, *how, progress=lambda done: told(done, len(sources)))
    found = [target.decode(tokens_T) for tokens_T in tokens]
    if args.json:
        answers = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
        print(json.dumps({"run": str(path), "translations": answers}))
    else:
        sys.stdout.write(printed(found))


def printed(texts: list[str]) -> str:
    """Return texts as one line each."""
    one_line = str.maketrans("\r\n", "  ")
    return "".join(text.translate(one_line) + "\n" for text in texts)
