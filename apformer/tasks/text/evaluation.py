"""Evaluation of a language model: its loss on the whole validation part of its text.

perplexity = exp(nats per token)          bits per character = nats of the whole part / ln 2 / its characters
"""

import math
from functools import partial

import jax
import numpy as np

from apformer.decoding.bind import Model
from apformer.report import attention, figures, sections
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress
from apformer.tasks.text import perplexity, shards, training
from apformer.tokenizers import merges


def evaluate(model: Model, settings: Settings, rows: shards.Prepared, progress: Progress) -> Evaluation:
    """Return the loss on the whole validation part, in all and by the number of tokens before the predicted one."""
    batches = training.validation(settings, rows)
    nats_NBT = jax.jit(partial(training.validation_nats, settings=settings))(model.params, batches)
    nats_RT = np.asarray(nats_NBT, np.float64).reshape(-1, settings.data.context)
    weights_RT = batches.weights_BT[..., 1:].reshape(nats_RT.shape)
    first = len(rows.tokenizer.decode(rows.validation[:1]))  # which no token predicts
    tokens, characters = len(rows.validation) - 1, rows.validation_characters - first
    result = {"tokens": tokens, "characters": characters} | perplexity.of_mean(float(nats_RT.sum() / tokens))
    result["bits_per_character"] = result["nats_per_token"] / math.log(2) * tokens / characters
    result["nats_by_position"] = (nats_RT.sum(0) / np.maximum(weights_RT.sum(0), 1)).tolist()
    pictures = {"loss_by_position": figures.chart(by_position(result))}
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
