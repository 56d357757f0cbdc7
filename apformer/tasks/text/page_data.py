"""The page of a run on a text: the loss by position, and some rows for the model in the page."""

import os
from pathlib import Path
from typing import Any

import jax

from apformer.analysis import ablate
from apformer.report import sections
from apformer.settings import Settings
from apformer.tasks.text import shards, training
from apformer.tasks.text.evaluation import by_position
from apformer.tokenizers import merges, pretrained
from apformer.tokenizers.text import BytePairs

LETTERS = 40  # most characters of an example prompt
LINE = 16  # characters after which a line of text may break


def page(settings: Settings, rows: shards.Prepared, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return the content of the page, see `report.sections`."""
    cfg = settings.data
    missing = {}
    words = pretrained.load(path / "tokenizer.json")
    does = f"writes text like {os.path.basename(os.path.abspath(cfg.text))}"
    prompt = sections.text("Type some text for the model to continue.")
    shown = {
        "vocabulary": merges.texts(words),
        "task": sections.task(does, prompt, line=None if isinstance(words, BytePairs) else LINE),
        "facts": [
            ["nats per token", f"{evaluation['nats_per_token']:.4f}", f"perplexity {evaluation['perplexity']:.2f}"],
            ["bits per character", f"{evaluation['bits_per_character']:.4f}", ""],
        ]
        if evaluation
        else [],
        "right": {
            "title": "Loss",
            "lead": "The mean cost of a token of the validation part, by how many tokens the model sees before it.",
            "blocks": [by_position(evaluation)] if evaluation else None,
        },
        "wrong": None,
        "missing": missing,
    }
    if isinstance(words, BytePairs):
        shown["byte_pairs"] = sections.attempt(missing, "byte_pairs", lambda: merges.of(words))
    if params is None:
        return shown
    batch = sections.some_rows(training.validation(settings, rows))
    batches = jax.tree.map(lambda leaf: leaf[None], batch)  # the loss takes several batches
    texts = map(words.decode, batch.tokens_BT[: sections.EXAMPLES])
    return shown | {
        "probe": sections.probe(batch),
        "ablation": ablate.loss_drops(training.make_loss, settings, params, batches),
        "examples": [text[: min(LETTERS, batch.tokens_BT.shape[1] // 2)] for text in texts],
    }
