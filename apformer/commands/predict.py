"""Continue progressions with a trained model: one prompt, or a file of them, a continuation a line."""

import json
import sys
from dataclasses import dataclass

from tyro.conf import Positional

from apformer.commands import _prompts
from apformer.decoding import bind
from apformer.errors import DATA, USAGE, UserError
from apformer.runs import directory, recipes, restore
from apformer.tasks import choose
from apformer.tasks.digits import generator
from apformer.tasks.progressions import text_file
from apformer.tasks.progressions.continuation import continue_lines, terms_that_fit

EXAMPLE = 'apformer predict RUN "007 010 013"'
MOST = 2**20  # characters of a line


@dataclass(frozen=True)
class Predict:
    """Continue progressions: `apformer predict RUN "007 010 013" --terms 3` prints `016 019 022`."""

    run_and_prompt: Positional[tuple[str, ...]] = ()
    """[RUN] PROMPT, or [RUN] with --file; the latest run if none is given."""
    file: str | None = None
    """A file with a sequence a line, or - for standard input; prints a continuation a line."""
    terms: int = 1
    """Terms to add."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object."""


def predict(args):
    """Print the continuation of each prompt. Raises UserError that names the flag, the prompt or the line."""
    if args.terms < 1:
        raise UserError(f"--terms {args.terms} is out of range: give at least 1", USAGE)
    run, lines, name = _prompts.read([*args.run_and_prompt], args.file, "a prompt", EXAMPLE, text_file.lines_of)
    path = directory.find(run)
    settings = restore.load_settings(path)
    if isinstance(settings.data, choose.LANGUAGE):
        remedy = "let it write with `apformer generate`, or translate with `apformer translate`"
        raise UserError(f"{path} is of a language: {remedy}", USAGE)
    any_width = isinstance(settings.data, generator.Config)
    most, order = (generator.MOST, settings.data.order) if any_width else (9, "msb")
    rows, digits = text_file.read_numbers(lines, name, most, order)
    if digits != settings.data.digits and not any_width:
        known = settings.data.digits
        raise UserError(f"{name} has terms of {digits} digits where {path} knows {known}: give terms of {known}", DATA)
    fitting_B = [terms_that_fit(*row, digits, args.terms) for row in rows]
    characters = max(fitting_B) * (digits + 1)
    longest = max(map(len, lines)) + characters
    if longest > MOST:
        fault = f"--terms {args.terms} makes a line of {longest:,} characters"
        raise UserError(f"{fault}, more than {MOST:,}: give fewer terms", USAGE)
    known = recipes.module(settings.model).max_tokens(settings.model)
    if known is not None and longest > known:
        raise UserError(f"a line would have {longest} characters where {path} knows {known}: give fewer --terms", USAGE)
    params, _, _ = restore.load_params(path, settings, args.member)
    texts = continue_lines(lines, characters, **bind.bound(params, settings.model))
    continuations = [line[: max(0, fit * (digits + 1) - 1)] for line, fit in zip(texts, fitting_B, strict=True)]
    if args.json:
        pairs = zip(lines, continuations, strict=True)
        print(json.dumps({"run": str(path), "continuations": [{"prompt": p, "continuation": c} for p, c in pairs]}))
    else:
        sys.stdout.write("".join(line + "\n" for line in continuations))
    short = sum(fit < args.terms for fit in fitting_B)
    if short:
        many = f"{short:,} of {len(lines):,} lines stop" if args.file else "stopped"
        print(f"{many} early, because the next term no longer fits {digits} digits", file=sys.stderr)
