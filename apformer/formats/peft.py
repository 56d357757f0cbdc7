"""Low-rank adapters saved alone, in the folder that `peft` reads and writes: a few megabytes beside a whole model.

    adapter_config.json           the rank r, alpha, and which matrices: c_attn, c_proj, c_fc
    adapter_model.safetensors     base_model.model.transformer.h.3.attn.c_attn.lora_A.weight  (r, inputs)
                                  base_model.model.transformer.h.3.attn.c_attn.lora_B.weight  (outputs, r)

    W = W_0 + alpha / r (B A)^T          of GPT-2, whose matrices are (inputs, outputs)

GPT-2 has queries, keys and values in one matrix, c_attn, and so has `peft`. Ours have factors of their own. Side by
side these are factors of one matrix, of three times the rank: A of all three, and B with three blocks on its diagonal.

Hu et al. 2021; https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.formats import gpt2, safetensors, sharded

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PARTS = {  # GPT-2's matrices, and ours, side by side
    "attn.c_attn": (("attention", "query"), ("attention", "key"), ("attention", "value")),
    "attn.c_proj": (("attention", "output"),),
    "mlp.c_fc": (("feedforward", "expand", "weight"),),
    "mlp.c_proj": (("feedforward", "contract", "weight"),),
}
NAME = re.compile(r"base_model\.model\.(?:transformer\.)?h\.(\d{1,6})\.([a-z]+\.c_[a-z]+)\.lora_([AB])\.weight")
DIGEST = "base_sha256"  # in the metadata of the weights, where `peft` looks for nothing
UNSUPPORTED = {  # what else `peft` may do with a matrix
    "use_dora": (None, False),
    "use_qalora": (None, False),
    "lora_bias": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
    "init_lora_weights": (None, False, "gaussian", "eva", True),  # others begin with another base
}
AGAIN = "save the adapter again, or give another"


def save(folder, adapters, alpha, rank, params, cfg, base=None):
    """Write the factors to a new or an empty folder, which `peft` opens beside the model that they were trained on.

    adapters: a tree as params, {"A": (L, inputs, R), "B": (L, R, outputs)} where a matrix is adapted, None elsewhere.
    params: those of the base, whose digest is kept. base: the name of the base, for `peft`.
    Raises UserError: USAGE if GPT-2 has no such part, or if the folder holds something; DISK if it cannot be written.
    """
    folder, blocks = Path(folder), adapters["blocks"]
    gpt2.require_sayable(cfg)
    files.require_empty(folder)
    tensors, ranks = {}, {}
    for module, paths in PARTS.items():
        pairs = [_at(blocks, path) for path in paths]
        if pairs[0] is None:
            continue
        ranks[module] = rank * len(paths)
        A_LRI = np.concatenate([_matrix(pair["A"], -1).swapaxes(1, 2) for pair in pairs], axis=1)
        B_LOR = _diagonal([_matrix(pair["B"], 1).swapaxes(1, 2) for pair in pairs])
        for layer in range(cfg.n_layers):
            name = f"base_model.model.transformer.h.{layer}.{module}.lora_"
            tensors |= {f"{name}A.weight": A_LRI[layer], f"{name}B.weight": B_LOR[layer]}
    other = {module: found for module, found in ranks.items() if found != rank}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({module.partition(".")[2] for module in ranks}),
        "fan_in_fan_out": True,
        "bias": "none",
        "inference_mode": True,
        "rank_pattern": other,
        "alpha_pattern": {module: alpha * found / rank for module, found in other.items()},
    }
    safetensors.write(folder / WEIGHTS, tensors, {"format": "pt", DIGEST: gpt2.digest(params, cfg)})
    files.write_json(folder / CONFIG, config)


def load(folder, architecture, params, cfg):
    """Factors for a model with these parameters: a tree as params, as `save` has it, alpha / r in B.

    Raises UserError: USAGE for a base that is no GPT-2; CHECKPOINT for a folder that is missing or damaged, for one of
    another model, for a pickle, and for variants of LoRA. An adapter is of another model if names, shapes or ranks
    differ, or the digest of the base, where one was kept.
    """
    folder = Path(folder)
    if architecture.__name__ != "apformer.model":
        raise UserError(f"--adapter {folder} is for a GPT-2, and this model is none: drop the flag", USAGE)
    gpt2.require_sayable(cfg, "an adapter is for a GPT-2: drop --adapter")
    config, path = _read_config(folder / CONFIG), folder / WEIGHTS
    if not path.exists() and (pickles := sorted(file.name for file in folder.glob("*.bin"))):
        remedy = "save it as safetensors, with `model.save_pretrained(folder)`"
        raise UserError(f"{folder / pickles[0]} is a pickle, which may execute anything: {remedy}", CHECKPOINT)
    headers = sharded.of_file(path)
    pairs = _pairs(path, headers, config, cfg)
    with safetensors.reading(path) as file:
        digest = (file.metadata() or {}).get(DIGEST)
    if digest is not None and digest != gpt2.digest(params, cfg):
        raise UserError(f"{folder} was trained on another base: give the model that it was trained on", CHECKPOINT)
    factors = {}
    for module, paths in PARTS.items():
        if module in pairs:
            factors |= _factors(path, headers, pairs[module], module, paths, config, params)
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    return tree.unflatten([factors.get(tuple(entry.key for entry in path)) for path, _ in paths])


def _factors(path, headers, layers, module, ours, config, params):
    """{path of a leaf: its factors} of one of GPT-2's matrices in all layers; layers: {number: (name of A, of B)}."""
    leaves = [_at(params["blocks"], place) for place in ours]
    L = len(leaves[0])
    rank = max(headers[A].shape[0] for A, _ in layers.values())
    inputs, outputs = _sizes(module, leaves[0])
    A_LIR, B_LRO = np.zeros((L, inputs, rank), np.float32), np.zeros((L, rank, outputs * len(ours)), np.float32)
    for layer, (A, B) in layers.items():
        A_RI, B_OR = (_finite(path, name, sharded.read(headers[name], name)) for name in (A, B))
        R = len(A_RI)
        A_LIR[layer, :, :R] = A_RI.T
        B_LRO[layer, :R] = B_OR.T * np.float32(_scale(config, f"h.{layer}.{module}", R))
    found, dtype = {}, leaves[0].dtype
    for k, (place, leaf) in enumerate(zip(ours, leaves, strict=True)):
        B = B_LRO[:, :, k * outputs : (k + 1) * outputs]
        A_shape, B_shape = _shapes(place, leaf)
        found["blocks", *place] = {
            "A": jnp.asarray(A_LIR.reshape(L, *A_shape, rank), dtype),
            "B": jnp.asarray(B.reshape(L, rank, *B_shape), dtype),
        }
    return found


def _shapes(place, leaf):
    """(axes of the inputs, axes of the outputs) of one layer of a stacked matrix of ours."""
    return (leaf.shape[1:3], leaf.shape[3:]) if place[-1] == "output" else (leaf.shape[1:2], leaf.shape[2:])


def _sizes(module, leaf):
    inputs, outputs = _shapes(PARTS[module][0], leaf)
    return math.prod(inputs), math.prod(outputs)


def _pairs(path, headers, config, cfg):
    """{module: {layer: (name of A, name of B)}}. Raises UserError that names what is of another model."""
    names = {}
    for name, header in headers.items():
        match = NAME.fullmatch(name)
        if not match or match[2] not in PARTS:
            raise UserError(f"{path} holds {name}, which is no adapter of a matrix of GPT-2: {AGAIN}", CHECKPOINT)
        if header.dtype not in safetensors.FLOATS or len(header.shape) != 2 or 0 in header.shape:
            raise UserError(f"{path}: {name} is no matrix of floating-point numbers: {AGAIN}", CHECKPOINT)
        names[match[2], int(match[1]), match[3]] = name
    if not names:
        raise UserError(f"{path} holds no adapter: {AGAIN}", CHECKPOINT)
    pairs, D, F = {}, cfg.d_model, cfg.d_ff or 4 * cfg.d_model
    sizes = {"attn.c_attn": (D, 3 * D), "attn.c_proj": (D, D), "mlp.c_fc": (D, F), "mlp.c_proj": (F, D)}
    for module, layer in sorted({key[:2] for key in names}):
        place = f"h.{layer}.{module}"
        if layer >= cfg.n_layers:
            fault = f"{path} adapts layer {layer}, and this model has {cfg.n_layers}"
            raise UserError(f"{fault}: give the model that it was trained on", CHECKPOINT)
        A, B = (names.get((module, layer, letter)) for letter in "AB")
        if A is None or B is None:
            raise UserError(f"{path} has one factor of {place} and not the other: {AGAIN}", CHECKPOINT)
        found = (*headers[A].shape[::-1], *headers[B].shape[::-1])  # inputs, rank, rank, outputs
        if found[1] != found[2] or found[1] != _rank(config, place):
            ranks = f"{path}: the factors of {place} have ranks {found[1]} and {found[2]}"
            raise UserError(f"{ranks}, and {CONFIG} says {_rank(config, place)}: {AGAIN}", CHECKPOINT)
        if (found[0], found[3]) != sizes[module]:
            (inputs, outputs), fault = sizes[module], f"{path} adapts a {place} of {found[0]} x {found[3]}"
            has = f"{fault}, and this model has one of {inputs} x {outputs}"
            raise UserError(f"{has}: give the model that it was trained on", CHECKPOINT)
        pairs.setdefault(module, {})[layer] = (A, B)
    return pairs


def _read_config(path):
    """adapter_config.json as a dict whose ranks and alphas are numbers."""
    try:
        config = files.parse_json(path.read_bytes().decode("utf-8"))
    except OSError as error:
        remedy = f"give a folder with {CONFIG} and {WEIGHTS}, as `apformer export --to lora` writes"
        raise UserError(f"cannot read {path} ({error.strerror}): {remedy}", CHECKPOINT) from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}): {AGAIN}", CHECKPOINT) from None
    config = config if isinstance(config, dict) else {}
    if config.get("peft_type") != "LORA":
        fault = f'{path}: peft_type is {json.dumps(config.get("peft_type"))}, and supported is "LORA"'
        raise UserError(f"{fault}: {AGAIN}", CHECKPOINT)
    for name, fitting in UNSUPPORTED.items():
        if config.get(name) not in fitting:
            fault = f"{path}: {name} is {json.dumps(config[name])}, and supported is {json.dumps(fitting[-1])}"
            raise UserError(f"{fault}: merge the adapter with `peft`, and give the merged folder", CHECKPOINT)
    patterns = [config.setdefault(name, {}) or {} for name in ("rank_pattern", "alpha_pattern")]
    config["rank_pattern"], config["alpha_pattern"] = patterns
    numbers = [config.get("r"), config.get("lora_alpha")]
    for pattern in patterns:
        if not isinstance(pattern, dict) or not all(re.fullmatch(r"[\w.]{1,200}", name) for name in pattern):
            raise UserError(f"{path}: a pattern names no matrix by its name: {AGAIN}", CHECKPOINT)
        numbers += pattern.values()
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e9:
            raise UserError(f"{path}: {json.dumps(number)} is no rank and no alpha: {AGAIN}", CHECKPOINT)
    return config


def _of(config, pattern, default, place):
    """The first value of a pattern whose name ends the name of a matrix."""
    full = f"transformer.{place}"
    fits = [value for name, value in config[pattern].items() if full == name or full.endswith(f".{name}")]
    return fits[0] if fits else config[default]


def _rank(config, place):
    return _of(config, "rank_pattern", "r", place)


def _scale(config, place, rank):
    """alpha / r, or alpha / sqrt(r) where `use_rslora` asks for it (Kalajdzievski 2023)."""
    alpha = _of(config, "alpha_pattern", "lora_alpha", place)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _finite(path, name, array):
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(f"{path}: {name} holds numbers that are not finite: {AGAIN}", CHECKPOINT)
    return array


def _at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


def _matrix(factor, rank_axis):
    """A factor with one axis of inputs or outputs: (L, I, R) or (L, R, O)."""
    shape = np.shape(factor)
    flat = (shape[0], -1, shape[-1]) if rank_axis == -1 else (shape[0], shape[1], -1)
    return np.asarray(jax.device_get(factor)).reshape(flat)


def _diagonal(blocks):
    """(L, outputs, R) of each side by side: (L, all outputs, all ranks), zeros beside the blocks."""
    (L, outputs, R), count = blocks[0].shape, len(blocks)
    whole = np.zeros((L, count, outputs, count, R), blocks[0].dtype)
    for k, block in enumerate(blocks):
        whole[:, k, :, k] = block
    return whole.reshape(L, count * outputs, count * R)
