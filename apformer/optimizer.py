"""AdamW with warm-up, cosine decay, gradient clipping and weight decay on matrices only.

    m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  p <- p - lr_t (m^ / (sqrt(v^) + eps) + decay p)

Kingma & Ba 2015, Loshchilov & Hutter 2019. The learning rate and the weight decay are data (`hyper`), not constants of
the compiled program, so that members of a population may differ in them.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True)
class Config:
    """How to optimise."""

    learning_rate: float = 3e-3
    """The peak, after warm-up."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 0.0
    """On matrices and tables; not on biases, gains or relative positions."""
    beta1: float = 0.9
    """Decay of the gradient's running mean."""
    beta2: float = 0.99
    """Decay of the running mean of its square."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this global norm."""

    def hyper(self):
        """The numbers members may vary, as arrays."""
        return {
            "learning_rate": jnp.asarray(self.learning_rate, jnp.float32),
            "weight_decay": jnp.asarray(self.weight_decay, jnp.float32),
        }


def warmup_cosine(step, warmup_steps, steps):
    """Share of the peak learning rate at a step: up linearly from 1 / warmup_steps, then down a half cosine to 0."""
    step = jnp.asarray(step, jnp.float32)
    warmup = (step + 1.0) / max(warmup_steps, 1)
    progress = jnp.clip((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0, 1.0)
    return jnp.minimum(warmup, 0.5 * (1.0 + jnp.cos(jnp.pi * progress)))


def decay_mask(params):
    """True for what is decayed, by name: matrices and the embedding table."""
    undecayed = ("bias", "scale", "sink", "relative", "position")

    def decayed(path, _):
        names = [entry.key for entry in path]
        return not any(name.endswith("_bias") or name in undecayed for name in names)

    return jax.tree_util.tree_map_with_path(decayed, params)


def adamw(cfg, steps):
    """The optimizer of a run of `steps` steps; its update takes `hyper` and `step` as extra arguments."""

    def transformation(hyper, step):
        rate = hyper["learning_rate"] * warmup_cosine(step, cfg.warmup_steps, steps)
        return optax.chain(
            optax.clip_by_global_norm(cfg.max_grad_norm),
            optax.scale_by_adam(cfg.beta1, cfg.beta2),
            optax.add_decayed_weights(hyper["weight_decay"], decay_mask),
            optax.scale(-rate),
        )

    def init(params):
        return transformation(cfg.hyper(), 0).init(params)

    def update(gradients, state, params, *, hyper, step):
        return transformation(hyper, step).update(gradients, state, params)

    return optax.GradientTransformationExtraArgs(init, update)
