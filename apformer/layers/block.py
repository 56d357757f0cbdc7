"""The residual block: x + sublayer(norm(x)) (pre-norm, GPT-2) or norm(x + sublayer(x)) (post-norm, as published).

Two sub-layers, attention then feed-forward, and between them cross-attention where there is a source to read; Vaswani
et al. 2017 figure 1, Xiong et al. 2020 for the place of the norm.
"""

from flax import linen as nn

from apformer.layers.attention import Attention
from apformer.layers.feedforward import FeedForward
from apformer.layers.norm import LayerNorm


def layer_norm(kind, epsilon, name):
    """LayerNorm with gain and bias, statistics in at least float32 (Ba et al. 2016); the identity for `none`."""
    return LayerNorm(epsilon, name=name) if kind == "layer" else lambda x: x


class Block(nn.Module):
    """One layer of an encoder or of a decoder; what its attention may see is the mask's affair."""

    n_heads: int
    d_ff: int
    activation: str = "relu"
    attention_bias: bool = False
    output_projection: bool = False
    attention_sink: bool = False
    similarity: str = "scaled_dot"
    position: str = "none"
    offsets: int = 1
    look_between: int = 0
    noise: float = 0.0
    sharpness: float = 1.0
    norm: str = "layer"
    norm_position: str = "pre"
    norm_epsilon: float = 1e-5
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self,
        x_BTD,
        positions_BT,
        positions_BS,
        mask_BTS,
        fits_BTSC=None,
        memory=None,
        write=None,
        deterministic=True,
        source=None,
        source_mask_BTS=None,
    ):
        """(x_BTD, attention weights BHTS, memory).

        source: what cross-attention reads, an encoder's output BSD or what `remember` made of it. The weights are then
        a pair: those of attention, and those of cross-attention.
        """
        attention = Attention(
            self.n_heads,
            self.attention_bias,
            self.output_projection,
            self.attention_sink,
            self.similarity,
            self.position,
            self.offsets,
            self.look_between,
            self.noise,
            self.sharpness,
            name="attention",
        )
        feedforward = FeedForward(self.d_ff, self.activation, name="feedforward")
        attention_norm = layer_norm(self.norm, self.norm_epsilon, "attention_norm")
        feedforward_norm = layer_norm(self.norm, self.norm_epsilon, "feedforward_norm")
        dropout = nn.Dropout(self.dropout, deterministic=deterministic, name="dropout")
        before, after = (lambda norm, x: norm(x), lambda norm, x: x)
        if self.norm_position == "post":
            before, after = after, before

        y_BTD, weights_BHTS, memory = attention(
            before(attention_norm, x_BTD),
            positions_BT,
            positions_BS,
            mask_BTS,
            fits_BTSC,
            memory,
            write,
            not deterministic,
        )
        x_BTD = after(attention_norm, x_BTD + dropout(y_BTD))
        if source is not None:
            norm = layer_norm(self.norm, self.norm_epsilon, "cross_attention_norm")
            y_BTD, source_weights_BHTS = self.look_up(before(norm, x_BTD), source, source_mask_BTS)
            x_BTD = after(norm, x_BTD + dropout(y_BTD))
            weights_BHTS = (weights_BHTS, source_weights_BHTS)
        y_BTD = feedforward(before(feedforward_norm, x_BTD))
        x_BTD = after(feedforward_norm, x_BTD + dropout(y_BTD))
        return x_BTD, weights_BHTS, memory

    def look_up(self, x_BTD, source, mask_BTS):
        """Cross-attention, to which positions mean nothing: (y_BTD, weights_BHTS).

        Where there are fewer sources than rows, as many rows after each other read one, as if they were one row.
        """
        read = {"memory": source} if isinstance(source, dict) else {"source_BSD": source}
        attention = Attention(
            self.n_heads,
            self.attention_bias,
            self.output_projection,
            self.attention_sink,
            self.similarity,
            name="cross_attention",
        )
        rows_BTD = x_BTD.reshape(len(mask_BTS), -1, x_BTD.shape[-1])
        y_BTD, weights_BHTS, _ = attention(rows_BTD, None, None, mask_BTS, **read)
        return y_BTD.reshape(x_BTD.shape), weights_BHTS
