"""AdamW or Muon with warm-up, cosine decay, gradient clipping and weight decay on matrices only.

    AdamW: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p <- p - lr_t (m^ / (sqrt(v^) + eps) + decay p)

    Muon:  W <- W - 5 lr_t (a step of `muon.py` + decay W)

Muon is for the matrices of blocks and cells. All other parameters follow AdamW, with Nesterov's momentum too.
`layers/leaves.py` decides which parameters decay.

Kingma and Ba 2015, Loshchilov and Hutter 2019, Jordan et al. 2024. The learning rate and the weight decay are data
(`hyper`), not constants of the compiled program, so that members of a population may differ in them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from apformer import plugins
from apformer.layers import leaves
from apformer.optimizer import muon

RULES, GROUP = ("adamw", "muon"), "apformer.optimizer"
if TYPE_CHECKING:
    Rule = Literal["adamw", "muon"]
else:
    Rule = Literal[plugins.names(GROUP, RULES)]


@dataclass(frozen=True)
class Config:
    """The optimizer and its schedule.

    Attributes:
        rule: Optimizer: adamw for all parameters, or muon for the matrices of blocks and cells, and adamw for the rest.
            Packages bring others.
        learning_rate: Peak learning rate, reached after warm-up.
        warmup_steps: Number of steps in which the learning rate rises linearly to its peak.
        weight_decay: Pull of matrices and the embedding table towards 0. Biases, gains, sinks and position tables do
            not decay.
        muon_every: With N, each layer takes a step by Muon in one of N training steps, N times as large. Layers take
            turns, and a training step takes less time.
        beta1: Decay of the running mean of the gradient.
        beta2: Decay of the running mean of the squared gradient.
        schedule: Fall of the learning rate after warm-up.
        min_lr: Least learning rate after warm-up: where the cosine ends, and below which inverse_sqrt does not fall.
        max_grad_norm: Largest global norm of the gradient. A larger gradient is scaled down to it.
    """

    rule: Rule = "adamw"
    learning_rate: float = 3e-3
    warmup_steps: int = 100
    weight_decay: float = 0.0
    muon_every: int = 1
    beta1: float = 0.9
    beta2: float = 0.99
    schedule: Literal["cosine", "inverse_sqrt"] = "cosine"
    min_lr: float = 0.0
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in ("cosine", "inverse_sqrt"):
            raise ValueError(f"schedule {self.schedule} is none of cosine, inverse_sqrt")

    def hyper(self) -> dict[str, Array]:
        """Return the numbers that members may vary, as arrays."""
        return {name: jnp.asarray(getattr(self, name), jnp.float32) for name in ("learning_rate", "weight_decay")}


def learning_rate(step: Array | int, peak: jax.typing.ArrayLike, cfg: Config, steps: int) -> Array:
    """Return the learning rate at a step: up linearly from peak / warmup_steps to the peak, then down to cfg.min_lr.

    The schedule cosine falls by half a cosine, which would end at the step after the last. inverse_sqrt falls as
    peak sqrt(warmup_steps / (step + 1)): Vaswani et al. 2017, equation 3, for the peak (d_model warmup_steps)^-1/2.

    Args:
        step: Number of steps done.
        peak: Learning rate after warm-up, a number or an array of members.
        cfg: The schedule.
        steps: Number of steps of the run.
    """
    # optax's schedules round differently, and take the peak as a Python number.
    step, warmup_steps = jnp.asarray(step, jnp.float32), cfg.warmup_steps
    warmup = peak * ((step + 1.0) / max(warmup_steps, 1))
    if cfg.schedule == "inverse_sqrt":
        return jnp.minimum(warmup, jnp.maximum(peak * jnp.sqrt(max(warmup_steps, 1) / (step + 1.0)), cfg.min_lr))
    progress = jnp.clip((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0, 1.0)
    return jnp.minimum(warmup, cfg.min_lr + (peak - cfg.min_lr) * (0.5 * (1.0 + jnp.cos(jnp.pi * progress))))


def decay_mask(params: dict) -> dict:
    """Return whether weight decay applies to each parameter: to matrices and embedding tables."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaves.role(path, leaf.ndim).decays, params)


def _labels(params: dict) -> dict:
    """Return the label of each parameter under Muon: "muon" for the matrices of blocks and cells, else "adam"."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: "muon" if leaves.matrix(path, leaf.ndim) else "adam", params
    )


def _decay_beside_muon(params: dict) -> dict:
    return jax.tree.map(lambda decays, label: decays and label == "adam", decay_mask(params), _labels(params))


def make(cfg: Config, steps: int) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of a run of `steps` steps; its update takes `hyper` and `step` as extra arguments.

    For a rule that a package brings, return what its function (cfg, steps) returns: any optax optimizer.

    Raises:
        UserError: Exit code USAGE, if no package brings the rule, or if what it brings is no such function.
    """
    if cfg.rule not in RULES:
        function = plugins.load(GROUP, cfg.rule, RULES, __name__)
        brought: Any = function(cfg, steps) if callable(function) else None
        if not hasattr(brought, "update"):
            raise plugins.fault(GROUP, cfg.rule, "which is not a function (cfg, steps) that returns an optax optimizer")
        return brought

    def transformation(hyper: dict, step: Array | int) -> optax.GradientTransformation:
        rate, decay = learning_rate(step, hyper["learning_rate"], cfg, steps), hyper["weight_decay"]
        if cfg.rule == "adamw":
            rule = optax.adamw(rate, cfg.beta1, cfg.beta2, weight_decay=decay, mask=decay_mask)
        else:
            # A step of Muon has singular values near 1, and permits a higher rate than Adam's.
            matrices = muon.make(5.0 * rate, decay, cfg.muon_every)
            others = optax.adamw(rate, cfg.beta1, cfg.beta2, weight_decay=0.0, nesterov=True)
            rule = optax.partition({"muon": matrices, "adam": others}, _labels)
            rule = optax.chain(rule, optax.add_decayed_weights(-rate * decay, _decay_beside_muon))
        return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), rule)

    def init(params: Any) -> Any:
        return transformation(cfg.hyper(), 0).init(params)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return transformation(extra["hyper"], extra["step"]).update(updates, state, params)

    return optax.GradientTransformationExtraArgs(init, update)
