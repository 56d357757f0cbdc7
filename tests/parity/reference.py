"""A decoder-only transformer in PyTorch, written from the papers; only the names of the parameters are ours.

Vaswani et al. 2017; pre-norm and GELU as in GPT-2 (Radford et al. 2019); rotary positions after Su et al. 2021, as
complex numbers; ALiBi after Press et al. 2022; a free bias for each offset after Raffel et al. 2020.
Parameters are a nested dict of tensors; queries, keys and values are (D, H, K), the output projection (H, K, D).
"""

import math

import jax
import numpy as np
import torch
import torch.nn.functional as F


def decoder(params, tokens, cfg):
    """Logits (B, T, V) of a nested dict of tensors."""
    table = params["embedding"]["table"]
    x = F.embedding(tokens, table)
    if cfg.scale_embedding:
        x = x * math.sqrt(cfg.d_model)
    length = tokens.shape[1]
    if cfg.position == "sinusoidal":
        x = x + sinusoids(length, cfg.d_model)
    if cfg.position == "learned":
        x = x + F.embedding(torch.arange(length), params["position"]["table"])
    for layer in range(cfg.n_layers):
        x = block(one_layer(params["blocks"], layer), x, cfg)
    if cfg.final_norm:
        x = norm(params["final_norm"], x, cfg)
    if cfg.tie_embeddings:
        return F.linear(x, table, params["head"]["bias"] if cfg.head_bias else None)
    return linear(params["head"]["output"], x)


def loss(params, tokens, weights, cfg):
    """(weighted mean cross-entropy of each token after the first, logits)."""
    logits = decoder(params, tokens[:, :-1], cfg)
    return mean_nats(logits, tokens[:, 1:], weights[:, 1:]), logits


def mean_nats(logits, targets, weights):
    """The weighted mean cross-entropy of tokens; targets and weights are arrays or tensors (B, T)."""
    targets, weights = torch.as_tensor(targets).long().flatten(), torch.as_tensor(weights).flatten()
    nats = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
    return (weights * nats).sum() / weights.sum()


def tensors(params):
    """Our parameters, name by name, as tensors that want gradients."""
    return jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf), requires_grad=True), params)


def assert_same_gradients(ours, params, relative):
    """Each gradient of ours is that of the tensor, within `relative` times its largest entry, or 1 if that is more.

    One that is zero but for rounding (of a key's bias, which moves all scores alike) counts as 1e-3.
    """
    expected = jax.tree.map(lambda leaf: leaf.grad.numpy(), params)
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for (path, leaf), theirs in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(expected), strict=True):
        atol = relative * np.clip(np.abs(theirs).max(), 1e-3, 1)
        np.testing.assert_allclose(leaf, theirs, rtol=0, atol=atol, err_msg=jax.tree_util.keystr(path))


def block(params, x, cfg):
    def normed(name, x):
        return x if cfg.norm == "none" else norm(params[name], x, cfg)

    sublayers = {"attention": attention} | ({"feedforward": feedforward} if cfg.feedforward else {})
    for name, sublayer in sublayers.items():
        if cfg.norm_position == "pre":
            x = x + sublayer(params[name], normed(f"{name}_norm", x), cfg)
        else:
            x = normed(f"{name}_norm", x + sublayer(params[name], x, cfg))
    return x


def attention(params, x, cfg):
    length = x.shape[1]
    query, key, value = (heads(params, name, x, cfg) for name in ("query", "key", "value"))
    if cfg.position == "rotary":
        query, key = rotary(query), rotary(key)
    offset = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    seen = (offset >= 0) if cfg.window is None else (offset >= 0) & (offset < cfg.window)
    bias = torch.zeros(cfg.n_heads, length, length, dtype=x.dtype)
    if cfg.position == "alibi":
        slopes = torch.tensor([1 / 2 ** (8 * (head + 1) / cfg.n_heads) for head in range(cfg.n_heads)], dtype=x.dtype)
        bias = slopes[:, None, None] * -offset
    if cfg.position == "relative":
        table = params["relative"]["table"]
        bias = table[:, offset.clamp(0, table.shape[1] - 1)]
    bias = bias.masked_fill(~seen, -math.inf)
    if cfg.attention_sink:  # a key and a value of zeros in front, whose score is the bias alone
        key, value = F.pad(key, (0, 0, 1, 0)), F.pad(value, (0, 0, 1, 0))
        bias = torch.cat([params["sink"][:, None, None].expand(-1, length, 1), bias], -1)
    scale = 1.0 if cfg.similarity == "dot" else None  # None: 1 / sqrt(width)
    mean = F.scaled_dot_product_attention(query, key, value, attn_mask=bias[None], scale=scale)
    joined = mean.transpose(1, 2).flatten(2)
    if not cfg.output_projection:
        return joined
    return F.linear(joined, params["output"].flatten(0, 1).T, params["output_bias"] if cfg.attention_bias else None)


def heads(params, name, x, cfg):
    """The projection of x, cut into heads: (B, H, T, K)."""
    bias = params[f"{name}_bias"].flatten() if cfg.attention_bias else None
    projected = F.linear(x, params[name].flatten(1).T, bias)
    return projected.unflatten(-1, (cfg.n_heads, -1)).transpose(1, 2)


def feedforward(params, x, cfg):
    activation = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}[cfg.activation]
    return linear(params["contract"], activation(linear(params["expand"], x)))


def linear(params, x):
    return F.linear(x, params["weight"].T, params.get("bias"))


def norm(params, x, cfg):
    if cfg.norm == "rms":
        return F.rms_norm(x, x.shape[-1:], params["scale"], cfg.norm_epsilon)
    return F.layer_norm(x, x.shape[-1:], params["scale"], params["bias"], cfg.norm_epsilon)


def sinusoids(length, width):
    """Section 3.5: sine in the even columns, cosine in the odd ones."""
    encoding = torch.zeros(length, width, dtype=torch.float64)
    for pos in range(length):
        for i in range(0, width, 2):
            encoding[pos, i] = math.sin(pos / 10_000 ** (i / width))
            encoding[pos, i + 1] = math.cos(pos / 10_000 ** (i / width))
    return encoding


def rotary(x):
    """Pairs of neighbours as complex numbers, times e^(i pos theta): (B, H, T, K)."""
    length, width = x.shape[-2:]
    theta = 10_000 ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    angle = torch.outer(torch.arange(length, dtype=x.dtype), theta)
    numbers = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def one_layer(params, layer):
    """The parameters of one block out of the stack of all."""
    return {name: one_layer(x, layer) if isinstance(x, dict) else x[layer] for name, x in params.items()}
