"""Attention(Q, K, V) = softmax(Q K^T / sqrt(K) + bias) V, over the keys a query may see.

How alike a query and a key are can be said in several ways, each head for itself:

    scaled_dot   q.k / sqrt(K)                Vaswani et al. 2017, section 3.2.1
    dot          q.k                          Luong et al. 2015
    cosine       g q.k / (|q| |k|)            Graves et al. 2014; g is learned, and starts at sqrt(K), where the scores
                                              of random vectors have the spread that scaled_dot gives them
    additive     v.tanh(q + k)                Bahdanau et al. 2015, whose W s + U h are our query and key; v is learned

Geometric attention (Csordas et al. 2022, here from the oldest key on) has no softmax: each key takes a share of what
the keys before it have left. A head may then look for the first key of a kind, however many others stand before it, and
what it reads does not depend on how many keys there are.

    weight_s = sigmoid(score_s) prod_{r < s} (1 - sigmoid(score_r))

A sink is one more key for each head, with a learned score and the value 0 (Xiao et al. 2024): a head may then read
nothing, and tell one token from several that are equal, which an average of equal values cannot.

Vaswani et al. 2017, section 3.2. A query at position p_t sees a key at position p_s when 0 <= p_t - p_s < window
(the window counts the token itself); slots with position -1 are empty. The same rule serves the plain forward pass
and the cache, because both state where every key stands.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import position
from apformer.layers.period import PeriodicBias
from apformer.layers.precision import at_least_float32


def causal_mask(positions_BT, positions_BS, window=None):
    """Which keys S each query T may see: (B, T, S) bool."""
    offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
    seen_BTS = (offsets_BTS >= 0) & (positions_BS >= 0)[:, None, :]
    return seen_BTS if window is None else seen_BTS & (offsets_BTS < window)


def unpadded(tokens_BT, lengths_B=None):
    """(Tokens with 0 for what stands beyond a row's length, which of them are real BT); all are without lengths."""
    if lengths_B is None:
        return tokens_BT, jnp.ones(tokens_BT.shape, bool)
    real_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None] < lengths_B[:, None]
    return jnp.where(real_BT, tokens_BT, 0), real_BT


def project(x_BTD, W_DHK, bias_HK=None):
    """x W + b for each head: (B, T, H, K)."""
    y_BTHK = jnp.einsum("BTD,DHK->BTHK", x_BTD, W_DHK)
    return y_BTHK if bias_HK is None else y_BTHK + bias_HK[None, None]


def compare(q_BTHK, k_BSHK, similarity="scaled_dot", gain_H=None, vector_HK=None):
    """How alike queries and keys are: scores_BHTS, in at least float32.

    gain_H: g of cosine; vector_HK: v of additive, which holds B T S H K numbers at once. Geometric attention compares
    by scaled_dot.
    """
    dtype = at_least_float32(q_BTHK.dtype)
    if similarity == "additive":
        sums_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
        return jnp.einsum("BTSHK,HK->BHTS", sums_BTSHK, vector_HK).astype(dtype)
    if similarity == "cosine":
        q_BTHK, k_BSHK = unit(q_BTHK.astype(dtype)), unit(k_BSHK.astype(dtype))
    scores_BHTS = jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(dtype)
    if similarity == "cosine":
        return scores_BHTS * gain_H[None, :, None, None].astype(dtype)
    return scores_BHTS if similarity == "dot" else scores_BHTS * jnp.asarray(q_BTHK.shape[-1] ** -0.5, dtype)


def unit(x_BTHK):
    """Every vector at length 1, but for those near 0, whose gradient stays finite so."""
    return x_BTHK * jax.lax.rsqrt(jnp.square(x_BTHK).sum(-1, keepdims=True) + 1e-12)


def attend(
    q_BTHK,
    k_BSHK,
    v_BSHK,
    mask_BTS,
    bias_BHTS=None,
    sink_H=None,
    similarity="scaled_dot",
    *,
    gain_H=None,
    vector_HK=None,
):
    """Weighted mean of the values: (out_BTHK, weights_BHTS); softmax in at least float32, whatever the inputs.

    With a sink the weights of a query sum to less than 1: the sink has the rest.
    """
    scores_BHTS = compare(q_BTHK, k_BSHK, similarity, gain_H, vector_HK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS.astype(scores_BHTS.dtype)
    if similarity == "geometric":
        weights_BHTS = geometric(scores_BHTS, mask_BTS).astype(v_BSHK.dtype)
        return jnp.einsum("BHTS,BSHK->BTHK", weights_BHTS, v_BSHK), weights_BHTS
    # A finite minimum: a row that sees nothing (padding) then averages its keys instead of giving NaN.
    scores_BHTS = jnp.where(mask_BTS[:, None], scores_BHTS, jnp.finfo(scores_BHTS.dtype).min)
    if sink_H is not None:
        sink_BHT1 = jnp.broadcast_to(sink_H[None, :, None, None], (*scores_BHTS.shape[:3], 1))
        scores_BHTS = jnp.concatenate([scores_BHTS, sink_BHT1.astype(scores_BHTS.dtype)], axis=-1)
    weights_BHTS = jax.nn.softmax(scores_BHTS, axis=-1).astype(v_BSHK.dtype)[..., : k_BSHK.shape[1]]
    return jnp.einsum("BHTS,BSHK->BTHK", weights_BHTS, v_BSHK), weights_BHTS


def geometric(scores_BHTS, mask_BTS):
    """Each key that a query may see takes the share sigmoid(score) of what those before it have left: (B, H, T, S)."""
    seen_BHTS = mask_BTS[:, None]
    kept_BHTS = jnp.where(seen_BHTS, jax.nn.log_sigmoid(-scores_BHTS), 0.0)
    left_BHTS = jnp.cumsum(jnp.pad(kept_BHTS[..., :-1], ((0, 0), (0, 0), (0, 0), (1, 0))), axis=-1)
    return jnp.where(seen_BHTS, jnp.exp(left_BHTS + jax.nn.log_sigmoid(scores_BHTS)), 0.0)


def remember(params, source_BSD):
    """The keys and values of a source for the cross-attention of these parameters: {"key", "value"}, each BHSK."""
    heads = {name: project(source_BSD, params[name], params.get(f"{name}_bias")) for name in ("key", "value")}
    return {name: x_BSHK.swapaxes(1, 2) for name, x_BSHK in heads.items()}


class Attention(nn.Module):
    """Attention of n_heads heads, each d_model / n_heads wide, with or without a cache of earlier keys and values.

    Self-attention reads x_BTD itself; cross-attention reads source_BSD, or what `remember` made of it (memory).
    `position` names the schemes that act inside attention (rotary, alibi, relative, periodic); the others act on the
    embedding. fits_BTSC is what `period.describe` says of periodic positions, else None.
    """

    n_heads: int
    bias: bool = False
    output_projection: bool = False
    sink: bool = False
    similarity: str = "scaled_dot"
    position: str = "none"
    offsets: int = 1
    look_between: int = 0
    noise: float = 0.0
    sharpness: float = 1.0

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
        training=False,
        source_BSD=None,
    ):
        """(y_BTD, weights_BHTS, memory); `write(memory, k, v)` gives keys and values to attend to, and new memory."""
        q_BTHK = self.project("query", x_BTD)
        if memory is not None and write is None:
            k_BSHK, v_BSHK = (memory[name].swapaxes(1, 2) for name in ("key", "value"))
        else:
            read_BSD = x_BTD if source_BSD is None else source_BSD
            k_BSHK, v_BSHK = (self.project(name, read_BSD) for name in ("key", "value"))
        bias_BHTS = None
        if self.position == "rotary":
            q_BTHK, k_BSHK = position.rotate(q_BTHK, positions_BT), position.rotate(k_BSHK, positions_BT)
        if self.position == "alibi":
            dtype = at_least_float32(x_BTD.dtype)
            bias_BHTS = position.alibi(positions_BT, positions_BS, self.n_heads, dtype)
        if self.position == "relative":
            bias = position.RelativeBias(self.n_heads, self.offsets, name="relative")
            bias_BHTS = bias(positions_BT, positions_BS)
        if self.position == "periodic":
            bias_BHTS = PeriodicBias(self.n_heads, self.look_between, name="periodic")(fits_BTSC)
        if self.look_between:
            q_BTHK, bias_BHTS = self.decide(q_BTHK, bias_BHTS, mask_BTS, training)
        if write is not None:
            k_BSHK, v_BSHK, memory = write(memory, k_BSHK, v_BSHK)
        sink_H = self.param("sink", nn.initializers.zeros, (self.n_heads,)) if self.sink else None
        learned = self.measure(q_BTHK.shape[-1])
        y_BTHK, weights_BHTS = attend(q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_BHTS, sink_H, self.similarity, **learned)
        return self.join(y_BTHK), weights_BHTS, memory

    def project(self, name, x_BTD):
        D, H = x_BTD.shape[-1], self.n_heads
        W_DHK = self.param(name, nn.initializers.xavier_uniform(in_axis=0, out_axis=(1, 2)), (D, H, D // H))
        bias_HK = self.param(f"{name}_bias", nn.initializers.zeros, (H, D // H)) if self.bias else None
        return project(x_BTD, W_DHK, bias_HK)

    def measure(self, width):
        """The parameters of the similarity, as arguments of `attend`."""
        if self.similarity == "cosine":
            return {"gain_H": self.param("gain", nn.initializers.constant(width**0.5), (self.n_heads,))}
        if self.similarity == "additive":
            return {"vector_HK": self.param("vector", nn.initializers.normal(width**-0.5), (self.n_heads, width))}
        return {}

    def decide(self, q_BTHK, bias_BHTS, mask_BTS, training):
        """Queries and biases of the heads that look between: noisy while training, sharper than trained afterwards."""
        n = self.look_between
        if training:
            shape_BH1S = (len(mask_BTS), n, 1, mask_BTS.shape[-1])
            noise_BH1S = self.noise * jax.random.normal(self.make_rng("dropout"), shape_BH1S, bias_BHTS.dtype)
            return q_BTHK, bias_BHTS.at[:, :n].add(noise_BH1S)
        return q_BTHK.at[:, :, :n].multiply(self.sharpness), bias_BHTS.at[:, :n].multiply(self.sharpness)

    def join(self, y_BTHK):
        B, T, H, K = y_BTHK.shape
        if not self.output_projection:
            return y_BTHK.reshape(B, T, H * K)
        W_HKD = self.param("output", nn.initializers.xavier_uniform(in_axis=(0, 1), out_axis=2), (H, K, H * K))
        y_BTD = jnp.einsum("BTHK,HKD->BTD", y_BTHK, W_HKD)
        if self.bias:
            y_BTD = y_BTD + self.param("output_bias", nn.initializers.zeros, (H * K,))[None, None]
        return y_BTD
