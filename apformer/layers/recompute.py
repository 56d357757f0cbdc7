"""Generate with an architecture that has no cache of its own: every step computes all tokens of the row again.

The cache holds the tokens. A step costs as much as `apply` of a whole row.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax.numpy as jnp
from jax import Array

from apformer.layers import Cache


def functions(module: ModuleType) -> dict[str, Callable]:
    """Return {"init_cache", "extend"}, with the arguments of those in `apformer.model`, computed by `module.apply`."""

    def init_cache(cfg: Any, batch_size: int, length: int, dtype: Any = float) -> Cache:
        length = min(length, module.max_tokens(cfg) or length)
        return {"tokens": jnp.zeros((batch_size, length), jnp.int32), "length": jnp.zeros(batch_size, jnp.int32)}

    def extend(
        params: Any, tokens_BT: Array, cache: Cache, cfg: Any, *, lengths_B: Array | None = None
    ) -> tuple[Array, Cache]:
        (B, T), length_B = tokens_BT.shape, cache["length"]
        positions_BT = length_B[:, None] + jnp.arange(T, dtype=jnp.int32)[None]
        tokens_BS = cache["tokens"].at[jnp.arange(B)[:, None], positions_BT].set(tokens_BT, mode="drop")
        logits_BSV = module.apply(params, tokens_BS, cfg)  # causal: tokens to come change nothing
        logits_BTV = jnp.take_along_axis(logits_BSV, positions_BT[:, :, None], axis=1)
        return logits_BTV, {"tokens": tokens_BS, "length": length_B + (T if lengths_B is None else lengths_B)}

    return {"init_cache": init_cache, "extend": extend}
