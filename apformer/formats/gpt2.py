"""Read and write GPT-2: the published sizes, and the folders that `transformers` reads and writes.

    config.json          the architecture
    model.safetensors    h.3.mlp.c_fc.weight ..., each name with or without the prefix `transformer.`; perhaps in
                         several files, see model_folder.py

GPT-2 (Radford et al. 2019) is our decoder with learned positions, biases, an output projection, GELU and a final norm.
PyTorch is not needed, and nothing in a folder is executed.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import model
from apformer.errors import CHECKPOINT, UserError
from apformer.files import AnyPath, Json, require_empty, write_json
from apformer.formats import gpt2_tensors, model_folder, safetensors
from apformer.model import Config, Params


def _size(d_model: int, n_heads: int, n_layers: int) -> Config:
    return Config(
        vocab_size=50257,
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        max_len=1024,
        position="learned",
        tie_embeddings=True,
        attention_bias=True,
        output_projection=True,
        activation="gelu_tanh",
        final_norm=True,
        head_bias=False,
        dropout=0.1,
        attention_dropout=0.1,
    )


SIZES = {
    "gpt2": _size(768, 12, 12),
    "gpt2-medium": _size(1024, 16, 24),
    "gpt2-large": _size(1280, 20, 36),
    "gpt2-xl": _size(1600, 25, 48),
}

FIELDS = {  # {field of our Config: name in config.json}
    "vocab_size": "vocab_size",
    "d_model": "n_embd",
    "n_heads": "n_head",
    "n_layers": "n_layer",
    "d_ff": "n_inner",
    "max_len": "n_positions",
    "norm_epsilon": "layer_norm_epsilon",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "tie_embeddings": "tie_word_embeddings",
}
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
}
SIMILARITIES = {True: "scaled_dot", False: "dot"}  # by scale_attn_weights
EXPRESSIBLE = {*FIELDS, "activation", "similarity", "attention_bias", "embedding_std"}  # in which a GPT-2 may differ
SUPPORTED = {  # values in config.json, the default first
    "model_type": ("gpt2",),
    "activation_function": tuple(ACTIVATIONS),
    "scale_attn_weights": (True, False),
    "scale_attn_by_inverse_layer_idx": (False, True),
    "add_cross_attention": (False,),
}
OTHER_NAMES = {  # synonyms in config.json, which `transformers` reads too
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
PREFIX = "transformer."
PREFIXES = r"^((_orig_mod|module|pretrained_model|transformer)\.)+"  # of compiled, parallel and wrapped models
PARTS = r"(h|wte|wpe|ln_f|lm_head)\."  # tensors with other names belong to heads for other tasks
BUFFERS = r"h\.\d+\.attn\.(masked_)?bias$"  # the causal mask, which old files contain
AGAIN = "fetch both files again, or save the model again with `model.save_pretrained(folder)`"


def load(folder: AnyPath) -> tuple[Config, Params]:
    """Load (cfg, params) from a GPT-2 folder, with tied or untied embeddings.

    float16 and bfloat16 become float32 parameters; float64 stays if JAX has 64-bit numbers enabled. Heads for other
    tasks are left out. Raises UserError (exit CHECKPOINT) if the model is not a GPT-2, if `model_folder.read` raises
    it, or if tensors are missing, extra or of another shape; it names each of them.
    """
    folder = Path(folder)
    cfg, tensors = read_config(folder / "config.json"), model_folder.read(folder)
    names = _check_tensors(tensors, cfg)
    float64 = all(tensors.headers[name].dtype == "F64" for name in names.values())
    inverse = _read_json(folder / "config.json").get("scale_attn_by_inverse_layer_idx")

    def read(name: str) -> np.ndarray:
        tensor = tensors.read(names[name], np.float64 if float64 else np.float32)
        if inverse and ".c_attn." in name:  # the scores of layer l are divided by l + 1; here its queries are
            tensor = tensor / np.repeat([int(name.split(".")[1]) + 1, 1, 1], cfg.d_model).astype(tensor.dtype)
        return tensor

    head, table = "lm_head.weight", "wte.weight"
    if cfg.tie_embeddings and head in names and not np.array_equal(read(head), read(table)):
        fault = f"{tensors.path}: {names[head]} is not {names[table]}, but config.json ties them"
        raise UserError(f'{fault}: set "tie_word_embeddings" to false in it to use both', CHECKPOINT)
    return cfg, gpt2_tensors.to_params(read, cfg)


def save(folder: AnyPath, params: Params, cfg: Config, ends: Sequence[int] = ()) -> None:
    """Save a model to a new or empty folder, for `load` and `transformers`. Missing biases become zeros.

    ends: tokens that end a text, such as 50256, GPT-2's.

    Raises UserError: USAGE if GPT-2 has no such architecture (it names the field) or the folder is not empty; DISK if
    it cannot be written. Raises ValueError if the parameters do not match cfg.
    """
    folder = Path(folder)
    require_gpt2(cfg)
    expected = jax.eval_shape(lambda: model.init(jax.random.key(0), cfg))
    if jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, expected):
        raise ValueError("params are not those of cfg: names or shapes differ from model.init")
    require_empty(folder)
    tensors = gpt2_tensors.from_params(params, cfg)
    named = {name if name == "lm_head.weight" else PREFIX + name: tensor for name, tensor in tensors.items()}
    safetensors.write(folder / model_folder.WEIGHTS, named, {"format": "pt"})
    write_json(folder / "config.json", config_of(cfg, params["embedding"]["table"].dtype, ends))


def require_gpt2(cfg: Config, remedy: str = "export it with --to safetensors") -> None:
    """Raise UserError (exit USAGE) that names the first field of a Config whose value no GPT-2 has."""
    for field, expected in vars(SIZES["gpt2"]).items():
        value = getattr(cfg, field)
        if field not in EXPRESSIBLE and value != expected:
            raise UserError(f"GPT-2 has {field} {expected}, and this model has {value}: {remedy}")
    if cfg.similarity not in SIMILARITIES.values():
        raise UserError(f"GPT-2 has no --similarity {cfg.similarity}, as this model was trained with: {remedy}")


def digest(params: Params, cfg: Config) -> str:
    """Return the SHA-256 of all tensors of a GPT-2 in the order of their names, which does not depend on the file."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(gpt2_tensors.from_params(params, cfg).items()):
        sha256.update(name.encode() + np.asarray(tensor, np.float32).tobytes())
    return sha256.hexdigest()


def config_of(cfg: Config, dtype: np.dtype | str, ends: Sequence[int]) -> Json:
    """Return the content of config.json. Arguments: see `save`."""
    first = next(iter(ends), None)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{name: getattr(cfg, field) for field, name in FIELDS.items()},
        "activation_function": next(name for name, value in ACTIVATIONS.items() if value == cfg.activation),
        "scale_attn_weights": cfg.similarity == "scaled_dot",
        "embd_pdrop": cfg.dropout,
        "bos_token_id": first,
        "eos_token_id": [*ends] if len(ends) > 1 else first,
        "dtype": str(dtype),
    }


def read_config(path: Path) -> Config:
    """Return the Config of a config.json; the defaults are those of the smallest GPT-2."""
    config = _read_json(path)
    for name, choices in SUPPORTED.items():
        value = config.get(name, None if name == "model_type" and not {"n_embd", "n_layer"} & {*config} else choices[0])
        if value not in choices:
            fitting = " or ".join(json.dumps(choice) for choice in choices)
            fault = f"{path}: {name} is {json.dumps(value)}, and only {fitting} is supported"
            raise UserError(f"{fault}: give a model of that kind", CHECKPOINT)
    values: dict[str, Any] = {
        "activation": ACTIVATIONS[config.get("activation_function", "gelu_new")],
        "similarity": SIMILARITIES[config.get("scale_attn_weights", True)],
    }
    try:
        for field, name in FIELDS.items():
            default = getattr(SIZES["gpt2"], field)
            values[field] = value = config.get(name, default)
            kinds = {type(default), bool if isinstance(default, bool) else int}  # a float may be written as an int
            if type(value) not in kinds or not abs(value or 0) < 2**31:
                raise ValueError(f"{name} is {json.dumps(value)}")
        if not 0 < values["norm_epsilon"] < 1:
            raise ValueError(f"layer_norm_epsilon {values['norm_epsilon']} is not between 0 and 1")
        return dataclasses.replace(SIZES["gpt2"], **values)
    except ValueError as error:
        raise UserError(f"{path} describes no GPT-2 ({error}): fetch it anew", CHECKPOINT) from None


def _read_json(path: Path) -> Json:
    config = model_folder.read_json(path, "give a folder with config.json and model.safetensors")
    return {OTHER_NAMES.get(name, name): value for name, value in config.items()}


def _check_tensors(tensors: model_folder.Tensors, cfg: Config) -> dict[str, str]:
    """Return {GPT-2's name: name in the file} for the tensors of a file.

    Raises UserError that names every tensor that is missing, extra, of another shape or not of floating-point numbers.
    """
    names, faults = {}, []
    for full in tensors.headers:
        name = re.sub(PREFIXES, "", full)
        name = re.sub(r"(ln_\w)\.gamma$", r"\1.weight", re.sub(r"(ln_\w)\.beta$", r"\1.bias", name))
        if name in names:
            faults.append(f"{full} is {names[name]} once more")
        if re.match(PARTS, name) and not re.match(BUFFERS, name):
            names[name] = full
    if f"h.{cfg.n_layers - 1}.ln_1.weight" not in names:  # checked first, since n_layer may be vast
        fault = f"{tensors.path} holds no layer {cfg.n_layers - 1}, and config.json has n_layer {cfg.n_layers}"
        raise UserError(f"{fault}: {AGAIN}", CHECKPOINT)
    shapes = jax.eval_shape(lambda: gpt2_tensors.from_params(model.init(jax.random.key(0), cfg), cfg))
    if cfg.tie_embeddings and "lm_head.weight" in names:  # some files contain both, some only lm_head
        shapes["lm_head.weight"] = shapes["wte.weight"]
        names.setdefault("wte.weight", names["lm_head.weight"])
    faults += [f"{name} is missing" for name in shapes if name not in names]
    faults += [f"{names[name]} is extra" for name in names.keys() - shapes.keys()]
    for name in names.keys() & shapes.keys():
        _, shape, dtype = tensors.headers[names[name]]
        if shape != shapes[name].shape:
            faults.append(f"{names[name]} has shape {shape} instead of {shapes[name].shape}")
        elif dtype not in model_folder.FLOATS:
            faults.append(f"{names[name]} holds {dtype} instead of floating-point numbers")
    if faults:
        fault = f"{tensors.path} is not what config.json says: {', '.join(sorted(faults))}"
        raise UserError(f"{fault}: {AGAIN}", CHECKPOINT)
    return names
