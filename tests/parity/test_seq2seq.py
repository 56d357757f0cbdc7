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

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore:enable_nested_tensor")]

B, S, T, D, V = 3, 7, 5, 12, 11
SOURCE_LENGTHS, TARGET_LENGTHS = np.array([7, 1, 4], np.int32), np.array([2, 6, 5], np.int32)

OPTIONS = {
    "share_embeddings": (False, True),
    "tie_embeddings": (False, True),
    "n_heads": (1, 3),
    "n_encoder_layers": (1, 2),
    "n_decoder_layers": (1, 2),
    "position": ("sinusoidal", "learned"),
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


def config(options):
    return seq2seq.Config(source_vocab_size=V, target_vocab_size=V, d_model=D, d_ff=13, max_len=17, **options)


NORMS = {
    "encoder": {"attention_norm": "norm1", "feedforward_norm": "norm2"},
    "decoder": {"attention_norm": "norm1", "cross_attention_norm": "norm2", "feedforward_norm": "norm3"},
}


def network(cfg):
    """torch.nn.Transformer; the final norms are left out where cfg has none."""
    sizes = D, cfg.n_heads, cfg.n_encoder_layers, cfg.n_decoder_layers, cfg.d_ff
    how = {"activation": ACTIVATIONS[cfg.activation], "norm_first": cfg.norm_position == "pre", "dropout": 0.0}
    found = nn.Transformer(*sizes, **how, layer_norm_eps=cfg.norm_epsilon, batch_first=True, dtype=torch.float64)
    if not cfg.final_norm:
        found.encoder.norm = found.decoder.norm = None
    return found


def named(params, cfg):
    """Our parameters under the names and in the shapes of PyTorch; what we have no name for is 0."""
    found = {}

    def norm(name, ours):
        found[f"{name}.weight"], found[f"{name}.bias"] = ours["scale"], ours["bias"]

    def attention(name, ours):
        def bias(part):
            return ours[f"{part}_bias"].flatten() if cfg.attention_bias else torch.zeros(D, dtype=torch.float64)

        parts = ("query", "key", "value")
        found[f"{name}.in_proj_weight"] = torch.cat([ours[part].flatten(1).T for part in parts])
        found[f"{name}.in_proj_bias"] = torch.cat([bias(part) for part in parts])
        found[f"{name}.out_proj.weight"] = ours["output"].flatten(0, 1).T
        found[f"{name}.out_proj.bias"] = bias("output")

    for side, norms in NORMS.items():
        for layer in range(getattr(cfg, f"n_{side}_layers")):
            ours, name = reference.one_layer(params[side]["blocks"], layer), f"{side}.layers.{layer}"
            attention(f"{name}.self_attn", ours["attention"])
            if side == "decoder":
                attention(f"{name}.multihead_attn", ours["cross_attention"])
            for our, their in norms.items():
                norm(f"{name}.{their}", ours[our])
            for our, their in (("expand", "linear1"), ("contract", "linear2")):
                affine = ours["feedforward"][our]
                found[f"{name}.{their}.weight"], found[f"{name}.{their}.bias"] = affine["weight"].T, affine["bias"]
        if cfg.final_norm:
            norm(f"{side}.norm", params[side]["final_norm"])
    return found


def theirs(params, source, target, lengths, cfg):
    """Logits of torch.nn.Transformer between embeddings and a read-out."""
    tables = {side: params[side].get("embedding", params["encoder"]["embedding"])["table"] for side in NORMS}

    def embed(side, tokens):
        x = F.embedding(torch.tensor(tokens).long(), tables[side]) * (D**0.5 if cfg.scale_embedding else 1)
        if cfg.position == "learned":
            return x + params[side]["position"]["table"][: tokens.shape[1]]
        return x + reference.sinusoids(tokens.shape[1], D)

    padding, target_padding = (
        torch.arange(tokens.shape[1])[None] >= torch.tensor(length)[:, None]
        for tokens, length in zip((source, target), lengths, strict=True)
    )
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    masks |= {"tgt_key_padding_mask": target_padding, "tgt_mask": torch.ones(T, T, dtype=torch.bool).triu(1)}
    sides = embed("encoder", source), embed("decoder", target)
    y = torch.func.functional_call(network(cfg), named(params, cfg), sides, masks)
    return F.linear(y, tables["decoder"]) if cfg.tie_embeddings else reference.linear(params["head"]["output"], y)


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
    tensors = reference.tensors(params)
    logits = theirs(tensors, source, target[:, :-1], lengths.values(), cfg)
    their_loss = reference.mean_nats(logits, target[:, 1:], weights)
    their_loss.backward()
    real = weights > 0
    assert our_logits.dtype == jnp.float64
    np.testing.assert_allclose(our_logits[real], logits.detach()[real], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(our_loss, their_loss.item(), rtol=1e-12)
    reference.assert_same_gradients(gradients, tensors, 1e-10)
