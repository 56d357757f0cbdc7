"""Our parameters under GPT-2's names and in its layout, and back.

GPT-2's linear maps are (in, out), as ours. Queries, keys and values share one matrix (D, 3 D), and heads are not an
axis. Each layer has tensors of its own; we stack them. The head, if untied, is (V, D). Each of its maps and norms has a
bias. If ours has none, zeros are written, which change nothing.
"""

import jax
import jax.numpy as jnp
import numpy as np

PROJECTIONS = ("query", "key", "value")


def from_params(params, cfg):
    """{GPT-2's name, without prefix: array}; cfg is one that GPT-2 can say."""
    D, L, blocks = cfg.d_model, cfg.n_layers, params["blocks"]
    attention, feedforward = blocks["attention"], blocks["feedforward"]
    zeros_LD = jnp.zeros((L, D), attention["query"].dtype)
    stacked = {
        "attn.c_attn.weight": jnp.concatenate([attention[name].reshape(L, D, D) for name in PROJECTIONS], axis=2),
        "attn.c_attn.bias": jnp.concatenate(
            [attention.get(f"{name}_bias", zeros_LD).reshape(L, D) for name in PROJECTIONS], axis=1
        ),
        "attn.c_proj.weight": attention["output"].reshape(L, D, D),
        "attn.c_proj.bias": attention.get("output_bias", zeros_LD),
        **_norm_tensors("ln_1", blocks["attention_norm"]),
        **_norm_tensors("ln_2", blocks["feedforward_norm"]),
    }
    for ours, theirs in (("expand", "c_fc"), ("contract", "c_proj")):
        weight = feedforward[ours]["weight"]
        bias = feedforward[ours].get("bias", jnp.zeros((L, weight.shape[-1]), weight.dtype))
        stacked |= {f"mlp.{theirs}.weight": weight, f"mlp.{theirs}.bias": bias}
    tensors = {f"h.{layer}.{name}": x[layer] for name, x in stacked.items() for layer in range(L)}
    tensors |= {"wte.weight": params["embedding"]["table"], "wpe.weight": params["position"]["table"]}
    tensors |= _norm_tensors("ln_f", params["final_norm"])
    return tensors if cfg.tie_embeddings else tensors | {"lm_head.weight": params["head"]["output"]["weight"].T}


def to_params(read, cfg):
    """Our parameters from `read(name)`, a numpy array; one stack after the other, so that little is held twice."""
    D, H, L = cfg.d_model, cfg.n_heads, cfg.n_layers

    def stack(name):
        return np.stack([read(f"h.{layer}.{name}") for layer in range(L)])

    def norm(name, read=stack):
        return {"scale": jax.device_put(read(f"{name}.weight")), "bias": jax.device_put(read(f"{name}.bias"))}

    def linear(name):
        return {part: jax.device_put(stack(f"{name}.{part}")) for part in ("weight", "bias")}

    output = linear("attn.c_proj")
    attention = {"output": output["weight"].reshape(L, H, D // H, D), "output_bias": output["bias"]}
    weights, biases = stack("attn.c_attn.weight"), stack("attn.c_attn.bias")
    for i, name in enumerate(PROJECTIONS):
        columns = slice(i * D, (i + 1) * D)
        attention[name] = jax.device_put(weights[:, :, columns].reshape(L, D, H, D // H))
        attention[f"{name}_bias"] = jax.device_put(biases[:, columns].reshape(L, H, D // H))
    params = {
        "embedding": {"table": jax.device_put(read("wte.weight"))},
        "position": {"table": jax.device_put(read("wpe.weight"))},
        "blocks": {
            "attention_norm": norm("ln_1"),
            "attention": attention,
            "feedforward_norm": norm("ln_2"),
            "feedforward": {"expand": linear("mlp.c_fc"), "contract": linear("mlp.c_proj")},
        },
        "final_norm": norm("ln_f", read),
    }
    if cfg.tie_embeddings:
        return params
    return params | {"head": {"output": {"weight": jax.device_put(read("lm_head.weight").T)}}}


def _norm_tensors(name, params):
    return {f"{name}.weight": params["scale"], f"{name}.bias": params.get("bias", jnp.zeros_like(params["scale"]))}
