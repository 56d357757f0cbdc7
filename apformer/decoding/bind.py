"""Bind the parameters of a model to its functions, for evaluation and generation.

The functions are `jax.tree_util.Partial`s: pytrees whose leaves are the parameters. So a model can be an argument of a
function under jit, which is compiled once for all checkpoints and members.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from types import ModuleType
from typing import Any

import jax
from jax import Array
from jax.sharding import Mesh
from jax.tree_util import Partial

from apformer.machine import devices


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
    """Pure functions of a model with its parameters bound, each a Partial.

    Attributes:
        apply: Function (tokens_BT) -> logits_BTV.
        extend: Function (tokens_BT, cache, lengths_B=None) -> (logits_BTV, cache).
        init_cache: Function (batch_size, length) -> cache.
        params: Parameters. The functions of an encoder-decoder take them and `cfg` instead.
        cfg: Config of the model.
    """

    apply: Callable
    extend: Callable
    init_cache: Callable
    params: Any = None
    cfg: Any = field(default=None, metadata={"static": True})

    def __repr__(self) -> str:
        return f"Model({self.cfg})"


def bind(architecture: ModuleType, params: Any, cfg: Any, mesh: Mesh | None = None) -> Model:
    """Return the Model of a module, such as `apformer.model`, with these parameters and this Config.

    Matrix products have the highest precision, also on GPU and TPU, so that predictions are those of a certified model.
    mesh: devices.mesh(), over which rows are split if their number is a multiple of the devices; None for one device.
    """
    apply, extend, init_cache = _functions(architecture, cfg, mesh, jax.tree.leaves(params)[0].dtype)
    params = devices.place(params, mesh, 1)
    unstacked = jax.jit(architecture.unstack)(params)  # as steps read them
    return Model(Partial(apply, params), Partial(extend, unstacked), Partial(init_cache), params, cfg)


@cache
def _functions(
    architecture: ModuleType, cfg: Any, mesh: Mesh | None, dtype: Any
) -> tuple[Callable, Callable, Callable]:
    """Return the functions of a model, equal for equal arguments: jit finds its compiled programs by them."""

    def apply(params: Any, tokens_BT: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return architecture.apply(params, devices.spread(tokens_BT, mesh), cfg)

    def extend(params: Any, tokens_BT: Array, cache: Any, lengths_B: Array | None = None) -> tuple[Array, Any]:
        with jax.default_matmul_precision("highest"):
            tokens_BT, cache, lengths_B = devices.spread((tokens_BT, cache, lengths_B), mesh)
            return architecture.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

    return apply, extend, partial(architecture.init_cache, cfg, dtype=dtype)
