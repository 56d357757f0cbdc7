"""Exact match: greedy continuations of prompts, and the share of right answers in each group."""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.bind import Model
from apformer.decoding.generate import generate, pad_prompts
from apformer.report import progress

TOKENS = 8192  # tokens of a batch; its attention must fit in memory


def continue_rows(prompts: Sequence[Sequence[int] | np.ndarray], count: int, model: Model) -> np.ndarray:
    """Return the next `count` tokens of each prompt, greedily: (B, count). Prompts share batches, in few shapes."""
    tokens_BN = np.zeros((len(prompts), count), np.int32)
    if not count:
        return tokens_BN
    width_B = np.array([pad_prompts([prompt])[0].shape[1] for prompt in prompts])
    with progress.bar(total=len(prompts), unit="line", leave=False, disable=len(prompts) == 1) as bar:
        # Attention costs the square of the prompt; generated tokens only enlarge the cache, so they count an eighth.
        for fresh_B, row_B, _ in buckets.batches(width_B + count // 8, TOKENS):
            prompt_BT, lengths_B = pad_prompts([prompts[i] for i in row_B])
            tokens_BN[fresh_B] = greedy(prompt_BT, lengths_B, count, model)[: len(fresh_B)]
            bar.update(len(fresh_B))
    return tokens_BN


@partial(jax.jit, static_argnums=2)
def greedy(prompt_BT: jax.Array, lengths_B: jax.Array, count: int, model: Model) -> jax.Array:
    """Continue each prompt by `count` tokens, always the most likely one: (B, count)."""
    B, T = prompt_BT.shape
    return generate(model.extend, model.init_cache(B, T + count), prompt_BT, lengths_B, count)


def share(right: np.ndarray) -> float | None:
    """Return the share of right answers; None if there are none."""
    return float(right.mean()) if len(right) else None


def by_group(group_N: np.ndarray, right: dict[str, np.ndarray], groups: int = 0) -> list[dict]:
    """Return the count and the shares of right answers of each group 0, 1, 2 ...

    Args:
        group_N: Group of each answer.
        right: {mode: mask of right answers, (N,)}.
        groups: Least number of groups.
    """
    count = np.bincount(group_N, minlength=groups).tolist()
    hits = {mode: np.bincount(group_N[right_N], minlength=len(count)).tolist() for mode, right_N in right.items()}
    return [{"count": n} | {mode: hit[i] / n if n else None for mode, hit in hits.items()} for i, n in enumerate(count)]
