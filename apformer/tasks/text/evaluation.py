"""Evaluation of a language model: its loss on the whole validation part of its text.

perplexity = exp(nats per token)          bits per character = nats of the whole part / ln 2 / its characters
"""

import math
from typing import Any

from apformer.decoding.bind import Model
from apformer.report import attention, figures, sections
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress
from apformer.tasks.text import perplexity, shards, training
from apformer.tokenizers import merges


def evaluate(model: Model, settings: Settings, rows: shards.Prepared, progress: Progress) -> Evaluation:
    """Return the loss on the whole validation part, in all and by the number of tokens before the predicted one."""
    context = settings.data.context
    _, nats_N = perplexity.predicted(model, rows.validation, context, None, progress)
    first = len(rows.tokenizer.decode(rows.validation[:1]))  # which no token predicts
    tokens, characters = len(nats_N), rows.validation_characters - first
    result: dict[str, Any] = {"tokens": tokens, "characters": characters} | perplexity.of_mean(float(nats_N.mean()))
    result["bits_per_character"] = result["nats_per_token"] / math.log(2) * tokens / characters
    result["nats_by_position"] = [float(nats_N[place::context].mean()) for place in range(context)]
    pictures = {"loss_by_position": figures.chart(by_position(result))}
    batches = training.validation(settings, rows)
    pictures |= attention.pictures(settings, model.params, batches, merges.texts(rows.tokenizer))
    head = f"validation part of {tokens:,} tokens, all of it: {perplexity.sentence(result)}"
    return Evaluation(result, f"{head}, {result['bits_per_character']:.4f} bits per character", pictures)


def by_position(result: dict) -> dict:
    """Return the chart of the loss by the number of tokens before the predicted one, see `report.sections`."""
    nats = result["nats_by_position"]
    return sections.lines(
        "Loss by position",
        "tokens that the model sees",
        "nats per token",
        range(1, len(nats) + 1),
        {"validation": nats},
        mean=result["nats_per_token"],
    )
