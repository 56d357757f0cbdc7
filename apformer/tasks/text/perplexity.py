"""Perplexity of a text under a language model.

    perplexity = exp(nats / tokens)          bits per byte = nats / ln 2 / bytes

A text is longer than a model reads at once. The figure depends on how it is cut into windows, so it is reported with
them:

    window           Read W tokens and predict the token after each; the next window starts where this one ended. Every
                     token but the first is predicted, after 1 to W tokens.
    window, stride   As `transformers` documents: windows of W tokens start S tokens apart, and a token counts in the
                     first window that predicts it. So it follows at least W - S tokens, in the first window fewer. With
                     S = W the first token of each window is never predicted.

Bytes are those of the predicted tokens in UTF-8.
https://huggingface.co/docs/transformers/perplexity
"""

import math
from collections import Counter
from collections.abc import Callable

import jax
import numpy as np

from apformer.decoding.bind import Model
from apformer.errors import DATA, UserError
from apformer.tasks import Progress
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import token_nats
from apformer.tokenizers.text import Tokenizer

MOST_LOGITS = 2**26  # of a batch: 256 MB
MOST_TOKENS = 2**14  # of a batch; its attention must fit in memory too
LARGEST = 700.0  # nats; the exponential of 710 is more than a float can hold


def cuts(tokens: int, window: int, stride: int | None = None) -> tuple[int, int, int]:
    """Return (predicted tokens of a window, step from one window to the next, number of windows) for a text."""
    length, step = (window, window) if stride is None else (window - 1, stride)
    return length, step, 1 + max(0, -(-(tokens - 1 - length) // step))


def windows(tokens_N: np.ndarray, window: int, stride: int | None, numbers_R: np.ndarray) -> Batch:
    """Return some windows as a Batch, with weight 1 for each token that counts.

    Args:
        tokens_N: Text of two tokens or more.
        window: Tokens of a window.
        stride: Tokens from one window to the next; None for windows that do not overlap.
        numbers_R: Numbers of the windows, from 0; numbers beyond the last give rows of zeros.
    """
    length, step, _ = cuts(len(tokens_N), window, stride)
    last, first_R = len(tokens_N) - 1, np.asarray(numbers_R) * step
    at_RT = first_R[:, None] + np.arange(length + 1)
    before_R = np.where(first_R > 0, first_R + length - step, 0)  # last token that earlier windows predict
    tokens_RT = np.where(at_RT <= last, tokens_N[np.minimum(at_RT, last)], 0).astype(np.int32)
    return Batch(tokens_RT, ((at_RT <= last) & (at_RT > before_R[:, None])).astype(np.float32))


def predicted(
    model: Model, tokens_N: np.ndarray, window: int, stride: int | None, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that count and their nats, in the order of the text. Calls progress(windows done, total)."""
    length, _, rows = cuts(len(tokens_N), window, stride)
    size = min(rows, max(1, min(MOST_TOKENS, MOST_LOGITS // model.cfg.vocab_size) // length))
    tokens, nats = [], []
    for start in range(0, rows, size):
        batch = windows(tokens_N, window, stride, np.arange(start, start + size))
        counts_RT = batch.weights_BT[:, 1:] > 0
        tokens.append(batch.tokens_BT[:, 1:][counts_RT])
        nats.append(np.asarray(_nats(model.apply, batch), np.float64)[counts_RT])
        progress(min(start + size, rows), rows)
    return np.concatenate(tokens), np.concatenate(nats)


@jax.jit
def _nats(apply: Callable[[jax.Array], jax.Array], batch: Batch) -> jax.Array:
    return token_nats(apply(batch.tokens_BT[:, :-1]), batch)


def measure(
    model: Model,
    tokenizer: Tokenizer,
    tokens_N: np.ndarray,
    window: int,
    stride: int | None,
    progress: Progress,
) -> dict:
    """Return the figures of a text as JSON can hold them. Raises UserError (exit DATA) for fewer than two tokens."""
    if len(tokens_N) < 2:
        raise UserError(f"the text has {len(tokens_N)} tokens, and at least two are needed: give a longer text", DATA)
    tokens, nats = predicted(model, tokens_N, window, stride, progress)
    size = sum(len(tokenizer.bytes_of(token)) * count for token, count in Counter(tokens.tolist()).items())
    counts = {"tokens": len(tokens_N), "predicted": len(tokens), "bytes": size, "window": window, "stride": stride}
    return counts | of_mean(float(nats.mean())) | {"bits_per_byte": float(nats.sum()) / math.log(2) / size}


def of_mean(nats: float) -> dict[str, float]:
    """Return the mean cost of a token in nats, and the perplexity."""
    return {"nats_per_token": nats, "perplexity": math.exp(min(nats, LARGEST))}


def sentence(result: dict) -> str:
    """Return the mean cost and the perplexity as text."""
    perplexity = result["perplexity"]
    shown = f"{perplexity:.2f}" if perplexity < 1e9 else f"{perplexity:.0e}"
    return f"{result['nats_per_token']:.4f} nats per token, perplexity {shown}"


def table(result: dict) -> str:
    """Return the figures as text."""
    stride = "" if result["stride"] is None else f", {result['stride']} apart"
    return (
        f"{result['predicted']:,} of {result['tokens']:,} tokens predicted ({result['bytes']:,} bytes), in windows of "
        f"{result['window']}{stride}: {sentence(result)}, {result['bits_per_byte']:.4f} bits per byte"
    )
