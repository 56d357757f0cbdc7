"""Translate with a trained encoder-decoder: `apformer translate RUN "seven hundred and five"`, or a file."""

import json
import sys
from dataclasses import dataclass, replace

from tyro.conf import Positional

from apformer.commands import _prompts
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.runs import directory, restore
from apformer.tasks.translation import corpus, training
from apformer.tasks.translation.search import search
from apformer.tokenizers import pretrained

EXAMPLE = 'apformer translate RUN "seven hundred and five"'


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file of them, a line each."""

    run_and_sentence: Positional[tuple[str, ...]] = ()
    """[RUN] SENTENCE, or [RUN] with --file; the latest run if none is given."""
    file: str | None = None
    """A file with a sentence a line, or - for standard input; prints a translation a line."""
    beams: int | None = None
    """Of the search; 1: always the most likely token. As the run was scored, if not given."""
    alpha: float | None = None
    """Length penalty: 0 for none, more for longer translations. As the run was scored, if not given."""
    temperature: float = 0.0
    """Above 0: no search, tokens are drawn; below 1 the likely become likelier."""
    seed: int = 0
    """Of the draws."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object."""


def translate(args):
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    require("beams", args.beams is None or 1 <= args.beams < 2**15, args, "1 to 32767")
    require("alpha", args.alpha is None or 0 <= args.alpha < 100, args, "at least 0 and less than 100")
    require("temperature", 0 <= args.temperature < 1e6, args, "0 or more")
    require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")
    run, lines, name = _prompts.read([*args.run_and_sentence], args.file, "a sentence", EXAMPLE, corpus.lines_of)
    path = directory.find(run)
    settings = restore.load_settings(path)
    if not isinstance(settings.data, corpus.Config):
        raise UserError(f"{path} was not trained to translate: train a model with `experiments/translate.py`", USAGE)
    tokenizer = pretrained.load(path / "tokenizer.json")
    sources = training.encode_side(tokenizer, lines, name, settings.data)
    params, _, _ = restore.load_params(path, settings, args.member)
    given = {name: getattr(args, name) for name in ("beams", "alpha") if getattr(args, name) is not None}
    method = {"teaching": replace(settings.drawing, **given), "temperature": args.temperature, "seed": args.seed}
    found = [tokenizer.decode(tokens_T) for tokens_T in search(sources, params, settings, **method)]
    if args.json:
        answers = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
        print(json.dumps({"run": str(path), "translations": answers}, ensure_ascii=False))
    else:
        sys.stdout.write("".join(text.replace("\n", " ") + "\n" for text in found))
