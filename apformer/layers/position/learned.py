"""PE(p) = table[p], added to the embedding, as in GPT-2 (Radford et al. 2019). The table ends at max_len."""

from dataclasses import dataclass

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers.position import Param


@dataclass(frozen=True)
class Scheme:
    """A vector for each position below max_len, in a table that is learned."""

    def embed(self, param: Param, x_BTD: Array, positions_BT: Array, max_len: int) -> Array:
        D = x_BTD.shape[-1]
        std = D**-0.5  # the size of the token embedding it is added to
        table_PD = param("table", nn.initializers.normal(std), (max_len, D))
        return x_BTD + jnp.take(table_PD, positions_BT, axis=0, mode="clip")

    def max_tokens(self, max_len: int) -> int:
        return max_len
