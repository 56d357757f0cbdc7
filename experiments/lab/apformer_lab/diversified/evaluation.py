"""Evaluation and page of a diversified translator."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from apformer.decoding.bind import Model
from apformer.settings import Settings
from apformer.tasks import Evaluation, translation
from apformer.tasks.translation import corpus
from apformer_lab.diversified.search import search


def evaluate(
    model: Model, settings: Settings, rows: dict[str, Any], progress: Callable[[int, int], None]
) -> Evaluation:
    """Translate the test part as the options say, and score the translations."""
    found = translation.evaluate(model, settings, rows, progress, partial(search, rows=rows))
    more = {name: getattr(settings.options, name) for name in ("mbr", "memory")}
    return found._replace(result=found.result | more, table=f"{_method(settings)}\n{found.table}")


def _method(settings: Settings) -> str:
    return f"The best {settings.options.mbr} beams compared, {settings.options.memory:,} training pairs looked up."


def page(
    settings: Settings, rows: dict[str, Any], params: Any, evaluation: dict[str, Any] | None, path: Path
) -> dict[str, Any]:
    """Return the content of the page, which says that its search has no memory and no minimum Bayes risk."""
    content = translation.page(settings, rows, params, evaluation, path)
    content["right"]["lead"] += f" {_method(settings)} This page does neither where it translates."
    return content


def example(settings: Settings, run: str) -> str:
    """Return a command for the user to try on a run."""
    return f'python -m apformer_lab.translate {run} "{corpus.example(settings.data, run)}"'
