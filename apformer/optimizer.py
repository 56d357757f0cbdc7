"""AdamW or Muon with warm-up, cosine decay, gradient clipping and weight decay on matrices only.

    AdamW  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  p <- p - lr_t (m^ / (sqrt(v^) + eps) + decay p)
    Muon   W <- W - 5 lr_t (orthogonal(m) + decay W)  for the matrices of the blocks; AdamW with
                                                    Nesterov's momentum for the rest

Kingma and Ba 2015, Loshchilov and Hutter 2019, Jordan et al. 2024. The learning rate and the weight decay are data
(`hyper`), not constants of the compiled program, so that members of a population may differ in them.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers


@dataclass(frozen=True)
class Config:
    """How to optimise."""

    rule: Literal["adamw", "muon"] = "adamw"
    """AdamW for all, or Muon for the matrices of the blocks."""
    learning_rate: float = 3e-3
    """The peak, after warm-up."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 0.0
    """On matrices and the embedding table; not on biases, gains, sinks or tables of positions."""
    beta1: float = 0.9
    """Decay of the gradient's running mean."""
    beta2: float = 0.99
    """Decay of the running mean of its square."""
    schedule: Literal["cosine", "inverse_sqrt"] = "cosine"
    """How the learning rate falls after warm-up."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this global norm."""

    def hyper(self):
        """The numbers members may vary, as arrays."""
        return {
            "learning_rate": jnp.asarray(self.learning_rate, jnp.float32),
            "weight_decay": jnp.asarray(self.weight_decay, jnp.float32),
        }


def share_of_peak(step, cfg, steps):
    """Share of the peak learning rate at a step: up linearly from 1 / warmup_steps, then down.

    cosine: a half cosine to 0 at the last of `steps`. inverse_sqrt: sqrt(warmup_steps / step), Vaswani et al. 2017,
    equation 3, whose peak is (d_model warmup_steps)^-1/2.
    """
    step, warmup_steps = jnp.asarray(step, jnp.float32), cfg.warmup_steps
    warmup = (step + 1.0) / max(warmup_steps, 1)
    if cfg.schedule == "inverse_sqrt":
        return jnp.minimum(warmup, jnp.sqrt(max(warmup_steps, 1) / (step + 1.0)))
    progress = jnp.clip((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0, 1.0)
    return jnp.minimum(warmup, 0.5 * (1.0 + jnp.cos(jnp.pi * progress)))


def decay_mask(params):
    """True for what is decayed, by name: matrices and the embedding table."""
    undecayed = ("bias", "scale", "sink", "gain", "vector", "relative", "position")

    def decayed(path, _):
        names = [entry.key for entry in path]
        return not any(name.endswith("_bias") or name in undecayed for name in names)

    return jax.tree_util.tree_map_with_path(decayed, params)


def matrix_dimensions(params):
    """For Muon, by name: which axes of a stacked matrix are its input and which its output; None for what is none."""
    dimensions = {
        **dict.fromkeys(("query", "key", "value"), MuonDimensionNumbers((1,), (2, 3))),  # L, D -> H K
        "output": MuonDimensionNumbers((1, 2), (3,)),  # L, H K -> D
        "weight": MuonDimensionNumbers((1,), (2,)),  # L, D -> F and L, F -> D
    }

    def of(path, _):
        names = [entry.key for entry in path]
        return dimensions.get(names[-1]) if {"blocks", "cells"} & {*names} else None

    return jax.tree_util.tree_map_with_path(of, params)


def make(cfg, steps):
    """The optimizer of a run of `steps` steps; its update takes `hyper` and `step` as extra arguments."""

    def transformation(hyper, step):
        rate, decay = hyper["learning_rate"] * share_of_peak(step, cfg, steps), hyper["weight_decay"]
        if cfg.rule == "adamw":
            rule = optax.adamw(rate, cfg.beta1, cfg.beta2, weight_decay=decay, mask=decay_mask)
        else:
            rule = optax.contrib.muon(
                5.0 * rate,  # an orthogonal step has unit singular values, and bears a higher rate than Adam's
                muon_weight_dimension_numbers=matrix_dimensions,
                weight_decay=decay,
                weight_decay_mask=decay_mask,
                adam_learning_rate=rate,
                adam_b1=cfg.beta1,
                adam_b2=cfg.beta2,
                adam_weight_decay=decay,
            )
        return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), rule)

    def init(params):
        return transformation(cfg.hyper(), 0).init(params)

    def update(gradients, state, params, *, hyper, step):
        return transformation(hyper, step).update(gradients, state, params)

    return optax.GradientTransformationExtraArgs(init, update)
