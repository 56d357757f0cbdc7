"""Continue lines of terms: apformer predict RUN "007 010 013" --terms 3."""

import json
import sys
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import runs, tasks
from apformer.errors import USAGE, UserError
from apformer.flags import parse, prompts
from apformer.runs import directory, settings_file
from apformer.tasks.progressions import text_file

EXAMPLE = 'apformer predict RUN "007 010 013"'


@dataclass(frozen=True)
class Predict:
    """Continue lines of terms: `apformer predict RUN "007 010 013" --terms 3` prints `016 019 022`."""

    run_and_prompt: Positional[tuple[str, ...]] = ()
    """[RUN] PROMPT, or [RUN] with --file. The default run is the latest."""
    file: str | None = None
    """File with one sequence a line, or - for standard input. Prints one continuation a line."""
    terms: int = 1
    """Number of terms to add."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    json: bool = False
    """Print one JSON object."""


def main(args):
    """Run the command with its arguments."""
    predict(parse(Predict, args, "apformer predict"))


def predict(args):
    """Print the continuation of each prompt. Raises UserError that names the flag, the prompt or the line."""
    if args.terms < 1:
        raise UserError(f"--terms {args.terms} is out of range: give at least 1", USAGE)
    place, lines, name = prompts([*args.run_and_prompt], args.file, "a prompt", EXAMPLE, text_file.lines_of)
    path = directory.find(place)
    continue_lines = tasks.ability(settings_file.read(path), "predict", path)
    loaded = runs.load(path, args.member)
    found = continue_lines(loaded.model, loaded.settings, lines, name, args.terms)
    if args.json:
        pairs = [{"prompt": line, "continuation": text} for line, (text, _) in zip(lines, found, strict=True)]
        print(json.dumps({"run": str(path), "continuations": pairs}))
    else:
        sys.stdout.write("".join(f"{text}\n" for text, _ in found))
    short = sum(fit < args.terms for _, fit in found)
    if short:
        many = f"{short:,} of {len(lines):,} lines stop" if args.file else "stopped"
        print(f"{many} early, because the next term no longer fits the digits", file=sys.stderr)
