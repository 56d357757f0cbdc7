"""Read and write low-rank adapters (LoRA) without their base model, in the folder format of `peft`.

    adapter_config.json           the rank r, alpha, and the adapted matrices: c_attn, c_proj, c_fc
    adapter_model.safetensors     base_model.model.transformer.h.3.attn.c_attn.lora_A.weight  (r, inputs)
                                  base_model.model.transformer.h.3.attn.c_attn.lora_B.weight  (outputs, r)

    W = W_0 + alpha / r (B A)^T          for GPT-2, whose matrices are (inputs, outputs)

GPT-2 and `peft` have one matrix c_attn for queries, keys and values, where we have three matrices, each with its own
factors. These are combined to factors of c_attn with three times the rank: A is stacked, and B is block-diagonal.

Hu et al. 2021; https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

import json
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import block_diag

from apformer import files
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import gpt2, gpt2_tensors, model_folder, safetensors
from apformer.formats.gpt2_tensors import MATRICES
from apformer.layers import leaves
from apformer.model import Config, Params

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
DIGEST = "base_sha256"  # in the metadata of the weights, which `peft` does not read
VALUES = {  # values of options of `peft` that leave W = W_0 + alpha / r (B A)^T; others are refused
    "use_dora": (None, False),
    "use_qalora": (None, False),
    "lora_bias": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "target_parameters": (None, []),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
    "init_lora_weights": (None, False, "gaussian", "eva", True),  # other values change the base
}
AGAIN = "save the adapter again, or give another"
BASE = "give the model that it was trained on"
MERGE = "merge the adapter with `peft`, and give the merged folder"


def save(
    folder: str | Path,
    adapters: Params,
    alpha: float,
    rank: int,
    params: Params,
    cfg: Config,
    base: str | None = None,
) -> None:
    """Write the factors to a new or empty folder, which `peft` applies to the model that they were trained on.

    Args:
        folder: Folder of the two files.
        adapters: A tree of the structure of params, with {"A": (L, inputs, R), "B": (L, R, outputs)} for each adapted
            matrix and None for all other leaves.
        alpha: Scale: the product of two factors is multiplied by alpha / rank.
        rank: Rank R of the factors.
        params: Parameters of the base, whose digest is written.
        cfg: Config of the base.
        base: Name of the base, for `peft`.

    Raises:
        UserError: USAGE if the base is no GPT-2 or the folder is not empty; DISK if it cannot be written.
    """
    folder = Path(folder)
    gpt2.require_gpt2(cfg)
    files.require_empty(folder)
    tensors, ranks = {}, {}
    factors = leaves.named(adapters)
    for module, parts in MATRICES.items():
        if f"blocks.{parts[0]}.A" not in factors:
            continue
        pairs = [[factors[f"blocks.{part}.{letter}"] for letter in "AB"] for part in parts]
        ranks[module] = rank * len(parts)
        for layer in range(cfg.n_layers):
            name = f"{PREFIX}transformer.h.{layer}.{module}.lora_"
            A_RI = jnp.concatenate([A[layer].reshape(-1, rank).T for A, _ in pairs])
            B_OR = block_diag(*[B[layer].reshape(rank, -1).T for _, B in pairs])
            tensors |= {f"{name}A.weight": A_RI, f"{name}B.weight": B_OR}
    rank_pattern = {module: total for module, total in ranks.items() if total != rank}
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
        "rank_pattern": rank_pattern,
        "alpha_pattern": {module: alpha * total / rank for module, total in rank_pattern.items()},
    }
    safetensors.write(folder / WEIGHTS, tensors, {DIGEST: gpt2.digest(params, cfg)})
    files.write_json(folder / CONFIG, config)


def load(folder: str | Path, architecture: ModuleType, params: Params, cfg: Config) -> Params:
    """Return the parameters of a model with the adapters of a folder merged into its matrices, W_0 + alpha / r (B A)^T.

    Raises UserError: USAGE if the base is no GPT-2; CHECKPOINT if the folder is missing or damaged, is of another
    model, or holds a pickle or a variant of LoRA. It is of another model if names, shapes or ranks differ, or the
    digest of the base, if one was written.
    """
    folder = Path(folder)
    if architecture.__name__ != "apformer.model":
        raise UserError(f"--adapter {folder} is for a GPT-2, and this model is none: drop the flag")
    gpt2.require_gpt2(cfg, "an adapter is for a GPT-2: drop --adapter")
    config, tensors = _read_config(folder / CONFIG), model_folder.read(folder, WEIGHTS)
    digest = tensors.metadata.get(DIGEST)
    if digest and digest != gpt2.digest(params, cfg):
        raise UserError(f"{folder} was trained on another base: {BASE}", CHECKPOINT)
    names = {name.removeprefix(PREFIX).removeprefix("transformer."): name for name in tensors.headers}
    if not names:
        raise UserError(f"{tensors.path} holds no adapter: {BASE}", CHECKPOINT)
    weights = gpt2_tensors.from_params(params, cfg)
    for place in (f"h.{layer}.{module}" for layer in range(cfg.n_layers) for module in MATRICES):
        pair, W_IO = [f"{place}.lora_{letter}.weight" for letter in "AB"], weights[f"{place}.weight"]
        if {*pair} <= names.keys():
            weights[f"{place}.weight"] = _adapt(W_IO, tensors, [names.pop(name) for name in pair], config, place)
    if names:
        fault = f"holds {min(names.values())}, which has no partner or adapts no matrix of this model"
        raise UserError(f"{tensors.path} {fault}: {BASE}, or merge it with `peft`", CHECKPOINT)
    return gpt2_tensors.to_params(weights.__getitem__, cfg)


def _adapt(W_IO: Array, tensors: model_folder.Tensors, pair: list[str], config: files.Json, place: str) -> Array:
    """Return W + alpha / r (B A)^T for a matrix of GPT-2; with rsLoRA (Kalajdzievski 2023) alpha / sqrt(r).

    Raises UserError (exit CHECKPOINT) unless A and B hold floating-point numbers in the shapes of the config and the
    model, and the result is finite.
    """
    rank, (inputs, outputs) = _setting(config, "rank_pattern", "r", place), W_IO.shape
    for name, shape in zip(pair, ((rank, inputs), (outputs, rank)), strict=True):
        _, actual, dtype = tensors.headers[name]
        if dtype not in model_folder.FLOATS or actual != shape:
            needed = f"{CONFIG} and this model need floating-point numbers of shape {shape}"
            raise UserError(f"{tensors.path}: {name} is {dtype} {actual}, and {needed}: {BASE}", CHECKPOINT)
    A_RI, B_OR = (tensors.read(name, np.float32) for name in pair)
    alpha = _setting(config, "alpha_pattern", "lora_alpha", place)
    with np.errstate(over="ignore", invalid="ignore"):
        product_IO = A_RI.T @ (B_OR.T * np.float32(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)))
        adapted_IO = W_IO + product_IO.astype(W_IO.dtype)
    if not np.isfinite(adapted_IO).all():
        raise UserError(f"{tensors.path}: {place} with {' and '.join(pair)} is not finite: {BASE}", CHECKPOINT)
    return adapted_IO


def _read_config(path: Path) -> files.Json:
    """Return the dict in adapter_config.json, with its options, ranks and alphas checked."""
    config = model_folder.read_json(path, f"give a folder with {CONFIG} and {WEIGHTS}")
    if config.get("peft_type") != "LORA":
        fault = f'{path}: peft_type is {json.dumps(config.get("peft_type"))}, and only "LORA" is supported'
        raise UserError(f"{fault}: {AGAIN}", CHECKPOINT)
    for name, fitting in VALUES.items():
        if config.get(name) not in fitting:
            fault = f"{path}: {name} is {json.dumps(config[name])}, and only {json.dumps(fitting[-1])} is supported"
            raise UserError(f"{fault}: {MERGE}", CHECKPOINT)
    numbers: dict[str, Any] = {name: config.get(name) for name in ("r", "lora_alpha")}
    for pattern in ("rank_pattern", "alpha_pattern"):
        config[pattern] = config.get(pattern) or {}
        if not isinstance(config[pattern], dict) or not all(re.fullmatch(r"[\w.]+", name) for name in config[pattern]):
            raise UserError(f"{path}: {pattern} names no matrix by its name: {MERGE}", CHECKPOINT)
        numbers |= {f"{pattern} {name}": number for name, number in config[pattern].items()}
    for name, number in numbers.items():
        if type(number) not in (int, float) or not 0 < number < 1e9:
            raise UserError(f"{path}: {name} {json.dumps(number)} is not a positive number: {AGAIN}", CHECKPOINT)
    return config


def _setting(config: files.Json, pattern: str, default: str, place: str) -> Any:
    """Return the rank or alpha of a matrix: the first value of a pattern whose key ends its name, or the default."""
    values = [value for name, value in config[pattern].items() if f".transformer.{place}".endswith(f".{name}")]
    return values[0] if values else config[default]
