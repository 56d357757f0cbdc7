"""Bind the parameters of a model, as evaluation and generation want it.

Its functions are `jax.tree_util.Partial`s: pytrees whose leaves are the parameters. So a model may be an argument of a
function under jit, which is compiled once for all checkpoints and members.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any

import jax
from jax import Array
from jax.sharding import Mesh
from jax.tree_util import Partial

from apformer.machine import devices


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("apply", "extend", "init_cache", "params"),
    meta_fields=("cfg",),
)
@dataclass(frozen=True)
class Model:
    """Functions of a model with its parameters, pure, each a Partial.

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
    cfg: Any = None

    def __repr__(self) -> str:
        return f"Model({self.cfg})"


def bind(architecture: ModuleType, params: Any, cfg: Any, mesh: Mesh | None = None) -> Model:
    """Return the Model of a module, such as `apformer.model`, with these parameters and this Config.

    Matrix products are at the highest precision, so that what is certified is what predicts, on a GPU or a TPU too.
    mesh: devices.mesh(), over whose devices rows are spread where their number divides them; None for one device.
    """
    apply, extend, init_cache = _functions(architecture, cfg, mesh)
    params = devices.place(params, mesh, 1)
    listed = jax.jit(architecture.unstack)(params)  # so that no step cuts the parameters of a layer out of a stack
    return Model(Partial(apply, params), Partial(extend, listed), Partial(init_cache), params, cfg)


@cache
def _functions(architecture: ModuleType, cfg: Any, mesh: Mesh | None) -> tuple[Callable, Callable, Callable]:
    """Return the functions of a model; the same ones for the same cfg, by which jit knows what it has compiled."""

    def apply(params: Any, tokens_BT: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return architecture.apply(params, devices.spread(tokens_BT, mesh), cfg)

    def extend(params: Any, tokens_BT: Array, cache: Any, lengths_B: Array | None = None) -> tuple[Array, Any]:
        with jax.default_matmul_precision("highest"):
            tokens_BT, cache, lengths_B = devices.spread((tokens_BT, cache, lengths_B), mesh)
            return architecture.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

    def init_cache(batch_size: int, length: int) -> Any:
        return architecture.init_cache(cfg, batch_size, length)

    return apply, extend, init_cache
