"""What a language model is worth: what the whole validation part of its text costs it.

perplexity = exp(nats per token)          bits per character = nats of the whole part / ln 2 / characters
"""

import math
from functools import partial

import jax
import numpy as np

from apformer.report import attention, figures
from apformer.tasks import Evaluation
from apformer.tasks.text import training
from apformer.tokenizers import merges

LARGEST = 700.0  # nats; the exponential of 710 is more than a float can hold


def evaluate(model, settings, rows, progress):
    """The loss of the whole validation part, and by the tokens that stand before each."""
    batches = training.validation(settings, rows)
    nats_NBT = jax.jit(partial(training.validation_nats, settings=settings))(model.params, batches)
    nats_RT = np.asarray(nats_NBT, np.float64).reshape(-1, settings.data.context)
    weights_RT = batches.weights_BT[..., 1:].reshape(nats_RT.shape)
    nats = float(nats_RT.sum() / weights_RT.sum())
    result = {
        "tokens": len(rows["validation"]) - 1,
        "characters": rows["validation_characters"],
        "nats_per_token": nats,
        "perplexity": math.exp(min(nats, LARGEST)),
        "bits_per_character": training.bits_per_character(nats, rows),
        "nats_by_position": (nats_RT.sum(0) / np.maximum(weights_RT.sum(0), 1)).tolist(),
    }
    pictures = {"loss_by_position": figures.loss_by_position(result)}
    pictures |= attention.pictures(settings, model.params, batches, merges.texts(rows["tokenizer"]))
    return Evaluation(result, table(result), pictures)


def table(result):
    """An evaluation for a terminal."""
    perplexity = result["perplexity"]
    shown = f"{perplexity:.2f}" if perplexity < 1e9 else f"{perplexity:.0e}"
    return (
        f"validation part of {result['tokens']:,} tokens, all of it: "
        f"{result['nats_per_token']:.4f} nats per token, perplexity {shown}, "
        f"{result['bits_per_character']:.4f} bits per character"
    )
