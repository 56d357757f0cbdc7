"""The residual block: x + sublayer(norm(x)) (pre-norm, GPT-2) or norm(x + sublayer(x)) (post-norm, as published).

Two sub-layers, attention then feed-forward, and between them cross-attention where there is a source to read. Without
`residual` a sub-layer's output replaces x. Without `feedforward` a block is its attention. Without
`feedforward_norm` it has one norm, that of attention.

Vaswani et al. 2017, figure 1; Xiong et al. 2020 for the place of the norm.
"""

from dataclasses import dataclass

from flax import linen as nn

from apformer.layers.attention import Attention, CrossAttention
from apformer.layers.attention import Config as AttentionConfig
from apformer.layers.feedforward import FeedForward
from apformer.layers.norm import LayerNorm, RMSNorm


@dataclass(frozen=True)
class Config:
    """What one layer does. The fields are as in `model.Config`."""

    attention: AttentionConfig
    d_ff: int
    activation: str = "relu"
    feedforward: bool = True
    feedforward_bias: bool = True
    feedforward_norm: bool = True
    norm: str = "layer"
    norm_bias: bool = True
    norm_position: str = "pre"
    norm_epsilon: float = 1e-5
    residual: bool = True
    dropout: float = 0.0


class Block(nn.Module):
    """One layer of an encoder or of a decoder; the view says what its attention may see."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD, view, cache=None, source_cache=None):
        """(x_BTD, {"attention": weights BHTS, and "cross_attention" if there is a source}, cache).

        cache: of this layer, for `view.write`; source_cache: what `attention.project_source` made of the source.
        """
        cfg, weights = self.cfg, {}
        dropout = nn.Dropout(cfg.dropout, deterministic=not view.training, name="dropout")

        def before(norm, x_BTD):
            return norm(x_BTD) if cfg.norm_position == "pre" else x_BTD

        def after(norm, x_BTD, y_BTD):
            y_BTD = x_BTD + dropout(y_BTD) if cfg.residual else dropout(y_BTD)
            return norm(y_BTD) if cfg.norm_position == "post" else y_BTD

        norm = norm_of(cfg, "attention_norm")
        attend = Attention(cfg.attention, name="attention")
        y_BTD, weights["attention"], cache = attend(before(norm, x_BTD), view, cache)
        x_BTD = after(norm, x_BTD, y_BTD)
        if view.source_mask_BTS is not None:
            norm = norm_of(cfg, "cross_attention_norm")
            cross_attend = CrossAttention(cfg.attention, name="cross_attention")
            y_BTD, weights["cross_attention"] = cross_attend(before(norm, x_BTD), view, source_cache)
            x_BTD = after(norm, x_BTD, y_BTD)
        if not cfg.feedforward:
            return x_BTD, weights, cache
        norm = norm_of(cfg, "feedforward_norm") if cfg.feedforward_norm else lambda x_BTD: x_BTD
        feedforward = FeedForward(cfg.d_ff, cfg.activation, cfg.feedforward_bias, name="feedforward")
        x_BTD = after(norm, x_BTD, feedforward(before(norm, x_BTD)))
        return x_BTD, weights, cache


def norm_of(cfg, name=None):
    """The norm of a Config, of a model or of a block: LayerNorm, with a bias if asked, RMSNorm, or the identity."""
    if cfg.norm == "none":
        return lambda x_BTD: x_BTD
    if cfg.norm == "rms":
        return RMSNorm(cfg.norm_epsilon, name=name)
    return LayerNorm(cfg.norm_epsilon, cfg.norm_bias, name=name)
