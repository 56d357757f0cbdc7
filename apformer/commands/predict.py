"""Continue lines of terms: apformer predict RUN "007 010 013" --terms 3."""

import json
import sys
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import runs, tasks
from apformer.errors import tell
from apformer.files import FilePath
from apformer.flags import prompts, require
from apformer.tasks.progressions import text_file

EXAMPLE = 'apformer predict RUN "007 010 013"'


@dataclass(frozen=True)
class Predict:
    """Continue lines of terms: `apformer predict RUN "007 010 013" --terms 3` prints `016 019 022`.

    Attributes:
        run_and_prompt: [RUN] PROMPT, or [RUN] with --file. The default run is the latest.
        file: File with one sequence a line, or - for standard input. Prints one continuation a line.
        terms: Number of terms to add.
        member: Number of a member of a population. The default is the best on validation rows.
        json: Print one JSON object.
    """

    run_and_prompt: Positional[tuple[str, ...]] = ()
    file: FilePath | None = None
    terms: int = 1
    member: int | None = None
    json: bool = False


def predict(args: Predict) -> None:
    """Print the continuation of each prompt. Raises UserError that names the flag, the prompt or the line."""
    require("terms", args.terms >= 1, args, "at least 1")
    place, lines, name = prompts(args.run_and_prompt, args.file, "prompt", EXAMPLE, text_file.lines_of)
    run = runs.load(place, args.member)
    continue_lines = tasks.ability(run.settings, "predict", run.path)
    results = continue_lines(run.model, run.settings, lines, name, args.terms)
    if args.json:
        pairs = [{"prompt": line, "continuation": text} for line, (text, _) in zip(lines, results, strict=True)]
        print(json.dumps({"run": str(run.path), "continuations": pairs}))
    else:
        sys.stdout.write("".join(f"{text}\n" for text, _ in results))
    if incomplete := sum(terms < args.terms for _, terms in results):
        stopped = f"{incomplete:,} of {len(lines):,} lines stop" if args.file else "stopped"
        tell(f"{stopped} early, because the next term no longer fits the digits")
