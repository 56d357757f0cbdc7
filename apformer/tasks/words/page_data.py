"""The page of word vectors: the nearest words, and the plane in which these vary most. It cannot run the model."""

import os
from pathlib import Path
from typing import Any

from apformer.report import sections
from apformer.settings import Settings
from apformer.tasks.words.corpus import Rows

EVALUATION = {"nats", "neighbours", "plane"}


def page(settings: Settings, rows: Rows, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return what the page shows, see `report.sections`. Only the words that the evaluation names are drawn."""
    cfg = settings.data
    source = "progressions" if cfg.text is None else os.path.basename(cfg.text)
    shown = {
        "vocabulary": evaluation["plane"]["words"] if evaluation else [],
        "task": sections.task(f"gives each word of {source} a vector", sections.text("Type a word.")),
        "facts": [],
        "right": {
            "title": "Nearest words",
            "lead": "Words whose vectors have the largest cosine with that of a word.",
            "blocks": [_nearest(evaluation["neighbours"])] if evaluation else None,
        },
        "wrong": None,
    }
    if not evaluation:
        return shown
    plane = {name: evaluation["plane"][name] for name in ("points", "shares")}
    return shown | {"facts": [["validation", f"{evaluation['nats']:.4f}", "nats for each word"]], "embedding": plane}


def _nearest(near: dict[str, list]) -> dict:
    rows = [[word, ", ".join(f"{v} {cosine:.2f}" for v, cosine in row)] for word, row in near.items()]
    return sections.table("Nearest words", ["word", "nearest, with their cosines"], rows)
