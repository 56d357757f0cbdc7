"""In float64 our encoder-decoder is torch.nn.Transformer: logits, the loss and every gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import seq2seq
from apformer.loss import cross_entropy

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.helpers.small_models import draw_params  # noqa: E402
from tests.parity import reference  # noqa: E402

pytestmark = pytest.mark.parity

B, S, T, D, V = 3, 7, 5, 12, 11
SOURCE_LENGTHS, TARGET_LENGTHS = np.array([7, 1, 4], np.int32), np.array([2, 6, 5], np.int32)

OPTIONS = {
    "share_embeddings": (False, True),
    "tie_embeddings": (False, True),
    "n_heads": (1, 3),
    "n_encoder_layers": (1, 2),
    "n_decoder_layers": (1, 2),
    "position": ("sinusoidal", "learned", "rotary"),
    "scale_embedding": (False, True),
    "attention_bias": (False, True),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "norm_position": ("post", "pre"),
    "norm_epsilon": (1e-5, 0.1),
    "final_norm": (False, True),
}
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def configurations():
    """10 of them; the first two are the published model with post-norm, and pre-norm with what it wants."""
    rng = np.random.default_rng(0)
    draws = [{name: values[rng.integers(len(values))] for name, values in OPTIONS.items()} for _ in range(8)]
    small = {"n_encoder_layers": 5, "n_decoder_layers": 2, "n_heads": 3}
    return [small, small | {"norm_position": "pre", "final_norm": True, "attention_bias": True}, *draws]


def test_every_value_is_among_the_configurations():
    for name, values in OPTIONS.items():
        assert {options.get(name) for options in configurations()} >= set(values)


def config(options):
    return seq2seq.Config(source_vocab_size=V, target_vocab_size=V, d_model=D, d_ff=13, max_len=17, **options)


class RotaryAttention(nn.MultiheadAttention):
    """PyTorch's attention, with queries and keys turned after their projection. The masks are those its layers give."""

    def forward(self, x, source, _, key_padding_mask, attn_mask=None, **options):
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        projected = map(F.linear, (x, source, source), weights, biases)
        q, k, v = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in projected)
        seen = ~_hidden(key_padding_mask)[:, None, None]
        seen = seen if attn_mask is None else seen & ~_hidden(attn_mask)
        y = F.scaled_dot_product_attention(reference.rotary(q), reference.rotary(k), v, attn_mask=seen)
        return self.out_proj(y.transpose(1, 2).flatten(2)), None


def _hidden(mask):
    """PyTorch's encoder hands its layers masks of -inf and 0, its decoder masks of True and False."""
    return mask if mask.dtype == torch.bool else mask == -torch.inf


class Theirs(nn.Module):
    """torch.nn.Transformer between embeddings and a read-out; the final norms are left out where cfg has none."""

    def __init__(self, cfg):
        super().__init__()
        options = {
            "d_model": D,
            "nhead": cfg.n_heads,
            "dim_feedforward": cfg.d_ff,
            "dropout": 0.0,
            "activation": ACTIVATIONS[cfg.activation],
            "layer_norm_eps": cfg.norm_epsilon,
            "batch_first": True,
            "norm_first": cfg.norm_position == "pre",
        }

        def norm():
            return nn.LayerNorm(D, cfg.norm_epsilon) if cfg.final_norm else None

        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options), cfg.n_encoder_layers, norm(), enable_nested_tensor=False
        )
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), cfg.n_decoder_layers, norm())
        if cfg.position == "rotary":
            for layer in (*encoder.layers, *decoder.layers):
                layer.self_attn = RotaryAttention(D, cfg.n_heads, batch_first=True)
            for layer in decoder.layers:
                layer.multihead_attn = RotaryAttention(D, cfg.n_heads, batch_first=True)
        self.network = nn.Transformer(
            D, cfg.n_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True, dropout=0.0
        )
        self.tables = nn.ParameterDict({"encoder": torch.empty(V, D), "decoder": torch.empty(V, D)})
        self.positions = nn.ParameterDict({"encoder": torch.empty(cfg.max_len, D), "decoder": torch.empty(17, D)})
        self.head = nn.Parameter(torch.empty(V, D))
        if cfg.share_embeddings:
            self.tables["decoder"] = self.tables["encoder"]
        self.cfg = cfg

    def embed(self, side, tokens):
        x = F.embedding(tokens, self.tables[side]) * (D**0.5 if self.cfg.scale_embedding else 1)
        length = tokens.shape[1]
        if self.cfg.position == "learned":
            return x + self.positions[side][:length]
        return x if self.cfg.position == "rotary" else x + reference.sinusoids(length, D)

    def forward(self, source, target, source_lengths, target_lengths):
        source_padding = torch.arange(source.shape[1])[None] >= source_lengths[:, None]
        target_padding = torch.arange(target.shape[1])[None] >= target_lengths[:, None]
        y = self.network(
            self.embed("encoder", source),
            self.embed("decoder", target),
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return F.linear(y, self.tables["decoder"] if self.cfg.tie_embeddings else self.head)

    def ours(self, pick):
        """Our tree of what `pick` makes of each parameter, as views; those of the blocks are lists of layers."""
        H, cfg = self.cfg.n_heads, self.cfg

        def norm(x):
            return {"scale": pick(x.weight), "bias": pick(x.bias)}

        def linear(x):
            return {"weight": pick(x.weight).T, "bias": pick(x.bias)}

        def attention(x):
            parts = {"output": pick(x.out_proj.weight).T.reshape(H, D // H, D)}
            for name, rows in zip(("query", "key", "value"), np.split(np.arange(3 * D), 3), strict=True):
                rows = slice(rows[0], rows[-1] + 1)
                parts[name] = pick(x.in_proj_weight)[rows].T.reshape(D, H, D // H)
                if cfg.attention_bias:
                    parts[f"{name}_bias"] = pick(x.in_proj_bias)[rows].reshape(H, D // H)
            return parts | ({"output_bias": pick(x.out_proj.bias)} if cfg.attention_bias else {})

        def block(x, cross):
            parts = {
                "attention": attention(x.self_attn),
                "attention_norm": norm(x.norm1),
                "feedforward": {"expand": linear(x.linear1), "contract": linear(x.linear2)},
                "feedforward_norm": norm(x.norm3 if cross else x.norm2),
            }
            if not cross:
                return parts
            return parts | {"cross_attention": attention(x.multihead_attn), "cross_attention_norm": norm(x.norm2)}

        def side(name, stack):
            blocks = [block(layer, name == "decoder") for layer in stack.layers]
            params = {"blocks": jax.tree.map(lambda *layers: list(layers), *blocks)}
            if name == "encoder" or not cfg.share_embeddings:
                params["embedding"] = {"table": pick(self.tables[name])}
            if cfg.position == "learned":
                params["position"] = {"table": pick(self.positions[name])}
            return params | ({"final_norm": norm(stack.norm)} if cfg.final_norm else {})

        params = {"encoder": side("encoder", self.network.encoder), "decoder": side("decoder", self.network.decoder)}
        return params | ({} if cfg.tie_embeddings else {"head": {"output": {"weight": pick(self.head).T}}})


def theirs(params, cfg):
    """The network in PyTorch with our parameters; what we have no name for is 0 and stays so."""
    network = Theirs(cfg).double()
    for parameter in network.parameters():
        nn.init.zeros_(parameter)

    def fill(views, ours):
        for view, leaf in zip(views, ours, strict=True) if is_list(views) else [(views, ours)]:
            view[...] = leaf

    views = network.ours(lambda parameter: parameter.detach().numpy())
    jax.tree.map(fill, views, jax.tree.map(np.asarray, params), is_leaf=is_list)
    if not cfg.attention_bias:
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(not name.endswith(("in_proj_bias", "out_proj.bias")))
    return network


def is_list(x):
    return isinstance(x, list)


def stacked(tree):
    return jax.tree.map(lambda x: np.stack(x) if is_list(x) else x, tree, is_leaf=is_list)


def draw_batch():
    rng = np.random.default_rng(1)
    source, target = (rng.integers(0, V, (B, length)).astype(np.int32) for length in (S, T + 1))
    weights = rng.random((B, T)) * (np.arange(T)[None] < TARGET_LENGTHS[:, None] - 1)
    return source, target, weights


@pytest.mark.parametrize("options", configurations(), ids=lambda options: "-".join(map(str, options.values())))
def test_logits_loss_and_gradients(options):
    cfg = config(options)
    params, (source, target, weights) = draw_params(cfg, dtype=np.float64), draw_batch()
    lengths = {"source_lengths_B": SOURCE_LENGTHS, "target_lengths_B": TARGET_LENGTHS - 1}

    def loss(params):
        logits_BTV = seq2seq.apply(params, source, target[:, :-1], cfg, **lengths)
        return cross_entropy(logits_BTV, target[:, 1:], weights), logits_BTV

    (our_loss, our_logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    network = theirs(params, cfg)
    logits = network(*(torch.tensor(x) for x in (source, target[:, :-1], *lengths.values())))
    nats = F.cross_entropy(logits.flatten(0, 1), torch.tensor(target[:, 1:]).long().flatten(), reduction="none")
    their_loss = (torch.tensor(weights).flatten() * nats).sum() / weights.sum()
    their_loss.backward()
    real = weights > 0
    assert our_logits.dtype == jnp.float64
    np.testing.assert_allclose(our_logits[real], logits.detach().numpy()[real], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(our_loss, their_loss.item(), rtol=1e-12)
    expected = stacked(network.ours(lambda p: p.grad.numpy()))
    assert jax.tree.structure(gradients) == jax.tree.structure(expected)
    for (path, ours), other in zip(
        jax.tree_util.tree_leaves_with_path(gradients), jax.tree.leaves(expected), strict=True
    ):
        # A gradient that is zero but for rounding (of a key's bias, which moves all scores alike) counts as 1e-3.
        tolerance = 1e-10 * max(np.abs(other).max(), 1e-3)
        np.testing.assert_allclose(ours, other, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path))
