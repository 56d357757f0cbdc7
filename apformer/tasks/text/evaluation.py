"""What a language model is worth: what the whole validation part of its text costs it.

perplexity = exp(nats per token)          bits per character = nats of the whole part / ln 2 / characters
"""

import math
from functools import partial

import jax
import numpy as np

from apformer import files
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load_params
from apformer.tasks.text import training


def evaluate_run(path, settings, rows, member=None):
    """evaluation.json and figures of a run's best checkpoint."""
    from apformer.report import figures

    params, step, member = load_params(path, settings, member)
    batches = training.validation_batch(settings, rows)
    nats_NBT = jax.jit(partial(training.validation_nats, cfg=settings.model))(params, batches)
    nats_RT = np.asarray(nats_NBT, np.float64).reshape(-1, settings.data.context)
    weights_RT = batches.weights_BT[..., 1:].reshape(nats_RT.shape)
    nats = float(nats_RT.sum() / weights_RT.sum())
    result = {
        "step": step,
        "member": member,
        "tokens": len(rows["validation"]) - 1,
        "characters": rows["validation_characters"],
        "nats_per_token": nats,
        "perplexity": math.exp(nats),
        "bits_per_character": training.bits_per_character(nats, rows),
        "nats_by_position": (nats_RT.sum(0) / np.maximum(weights_RT.sum(0), 1)).tolist(),
    }
    files.write_json(path / "evaluation.json", result)
    pictures = {"loss": figures.loss_curve(read_metrics(path)), "loss_by_position": figures.loss_by_position(result)}
    figures.save(path / "figures", pictures)
    return result


def table(result):
    """An evaluation for a terminal."""
    return (
        f"step {result['step']:,}, validation part of {result['tokens']:,} tokens, all of it: "
        f"{result['nats_per_token']:.4f} nats per token, perplexity {result['perplexity']:.2f}, "
        f"{result['bits_per_character']:.4f} bits per character"
    )
