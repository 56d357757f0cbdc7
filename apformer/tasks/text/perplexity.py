"""What any text costs a language model, whether it was trained on it or not.

    perplexity = exp(nats / tokens)          bits per byte = nats / ln 2 / bytes

A text is longer than what a model reads at once. How it is cut changes the figure, so it is said beside it:

    window           W tokens are read, and the token after each of them predicted; the next window begins where the
                     last ended. Every token but the first is predicted, with 0 to W - 1 before the one it follows.
    window, stride   what `transformers` documents: windows of W tokens, the next S further on, in which the tokens
                     count that no window before predicted. At least W - S tokens stand before each, in the first
                     window fewer. With S = W the first token of each window is never predicted.

Bytes are those of the tokens that are predicted, in UTF-8.
https://huggingface.co/docs/transformers/perplexity
"""

import math
from typing import NamedTuple

import jax
import numpy as np

from apformer import loss
from apformer.errors import DATA, UserError

MOST_LOGITS = 2**26  # of a batch: 256 MB
LARGEST = 700.0  # nats; the exponential of 710 is more than a float can hold


class Windows(NamedTuple):
    """Rows of a text: their tokens, filled up with zeros, the token after each, and whether that one counts."""

    tokens_RT: np.ndarray
    targets_RT: np.ndarray
    counts_RT: np.ndarray


def cuts(tokens, window, stride=None):
    """(tokens that a window predicts, tokens from one window to the next, windows) of a text of that many tokens."""
    length, step = (window, window) if stride is None else (window - 1, stride)
    return length, step, 1 + max(0, -(-(tokens - 1 - length) // step))


def windows(tokens_N, window, stride, numbers_R):
    """The Windows of these numbers, of a text of two tokens or more. stride None: windows do not overlap."""
    length, step, _ = cuts(len(tokens_N), window, stride)
    last, numbers_R = len(tokens_N) - 1, np.asarray(numbers_R)
    at_RT = numbers_R[:, None] * step + np.arange(length)[None]
    inside_RT = at_RT < last
    before_R = np.where(numbers_R > 0, numbers_R * step + length - step, 0)  # predicted by the window before
    tokens_RT, targets_RT = (
        np.where(inside_RT, tokens_N[np.minimum(at_RT, last - 1) + k], 0).astype(np.int32) for k in (0, 1)
    )
    return Windows(tokens_RT, targets_RT, inside_RT & (at_RT + 1 > before_R[:, None]))


def predicted(model, tokens_N, window, stride, progress):
    """(tokens, nats) of all that counts, in the order of the text. model: as `decoding.bind` makes it.

    progress(done, total): told of windows.
    """
    length, _, rows = cuts(len(tokens_N), window, stride)
    size = min(rows, max(1, MOST_LOGITS // (length * model.cfg.vocab_size)))
    tokens, nats = [], []
    for start in range(0, rows, size):
        # What is beyond the last window fills up a batch, and nothing of it counts.
        cut = windows(tokens_N, window, stride, np.arange(start, start + size))
        nats_RT = np.asarray(_nats(model.apply, cut.tokens_RT, cut.targets_RT), np.float64)
        tokens.append(cut.targets_RT[cut.counts_RT])
        nats.append(nats_RT[cut.counts_RT])
        progress(min(start + size, rows), rows)
    return np.concatenate(tokens), np.concatenate(nats)


@jax.jit
def _nats(apply, tokens_BT, targets_BT):
    return loss.token_nats(apply(tokens_BT), targets_BT)


def measure(model, tokenizer, tokens_N, window, stride, progress):
    """What a text of these tokens costs: a dict of figures. Raises UserError (exit DATA) for fewer than two tokens."""
    if len(tokens_N) < 2:
        raise UserError(f"the text has {len(tokens_N)} tokens, and two are the least: give a longer text", DATA)
    tokens, nats = predicted(model, tokens_N, window, stride, progress)
    size, mean = _bytes(tokenizer, tokens), float(nats.mean())
    return {
        "tokens": len(tokens_N),
        "predicted": len(tokens),
        "bytes": size,
        "window": window,
        "stride": stride,
        "nats_per_token": mean,
        "perplexity": math.exp(min(mean, LARGEST)),
        "bits_per_byte": mean * len(tokens) / math.log(2) / size,
    }


def _bytes(tokenizer, tokens):
    """How many bytes of text these tokens are."""
    found, times = np.unique(tokens, return_counts=True)
    return sum(len(tokenizer.bytes_of(token)) * int(count) for token, count in zip(found, times, strict=True))


def table(result):
    """The figures for a terminal."""
    perplexity = result["perplexity"]
    shown = f"{perplexity:.2f}" if perplexity < 1e9 else f"{perplexity:.0e}"
    stride = "" if result["stride"] is None else f", {result['stride']} apart"
    return (
        f"{result['predicted']:,} of {result['tokens']:,} tokens predicted ({result['bytes']:,} bytes), in windows of "
        f"{result['window']}{stride}: {result['nats_per_token']:.4f} nats per token, perplexity {shown}, "
        f"{result['bits_per_byte']:.4f} bits per byte"
    )
