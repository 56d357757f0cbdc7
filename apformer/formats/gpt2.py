"""GPT-2 in and out: the published sizes, and the folders that `transformers` reads and writes.

    config.json          the architecture
    model.safetensors    h.3.mlp.c_fc.weight ... with `transformer.` before each name, or without; or several files, see
                         sharded.py

GPT-2 (Radford et al. 2019) is our decoder with learned positions, biases, an output projection, GELU and a last norm.
PyTorch is not needed, and nothing in a folder is executed: weights that are a pickle are refused.
"""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import model
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.files import require_empty, write_json
from apformer.formats import gpt2_tensors, safetensors, sharded


def _size(d_model, n_heads, n_layers):
    return model.Config(
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

# Our fields, and how config.json calls them.
FIELDS = {
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
SIZE_FIELDS = ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len")
ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
SIMILARITIES = {True: "scaled_dot", False: "dot"}  # scale_attn_weights
BUFFERS = r"h\.\d+\.attn\.(masked_)?bias"  # the causal mask, which old files hold


def load(folder):
    """(cfg, params) of a GPT-2 folder, tied or with a head of its own.

    float16 and bfloat16 become float32 parameters; float64 stays where 64-bit numbers are on. Raises UserError (exit
    CHECKPOINT): not a GPT-2, weights that are a pickle or damaged, shards that are not what their index says, or
    tensors that are missing, extra, or of another shape, each named.
    """
    folder = Path(folder)
    cfg, listed = read_config(folder / "config.json"), sharded.headers(folder)
    if listed is None:
        raise UserError(_what_else_is_there(folder), CHECKPOINT)
    path, held = listed
    prefix = "transformer." if any(name.startswith("transformer.") for name in held) else ""
    found = {name.removeprefix(prefix): name for name in held if name.startswith((prefix, "lm_head."))}
    stray = [name for name in held if name not in found.values()]
    headers = {ours: held[name] for ours, name in found.items() if not re.fullmatch(BUFFERS, ours)}

    def tensor(name):
        return sharded.read(headers[name], found[name])

    _check_layers(path, headers, cfg)
    if cfg.tie_embeddings and {"lm_head.weight", "wte.weight"} <= headers.keys():  # some files hold both
        if not np.array_equal(tensor("lm_head.weight"), tensor("wte.weight")):
            raise UserError(f"{path}: lm_head.weight is not wte.weight, but config.json ties them", CHECKPOINT)
        del headers["lm_head.weight"]
    _check_tensors(path, headers, stray, cfg)
    wide = all(header.dtype == "F64" for header in headers.values())
    dtype = np.float64 if wide else np.float32

    def read(name):
        array = tensor(name).astype(dtype, copy=False)
        if not np.isfinite(array).all():
            fault = f"{headers[name].path}: {name} holds numbers that are not finite"
            raise UserError(f"{fault}: fetch the file again", CHECKPOINT)
        return array

    return cfg, gpt2_tensors.to_params(read, cfg)


def save(folder, params, cfg, end_of_text=None):
    """Write a folder that `load` and `transformers` open; a new or an empty one. Missing biases become zeros.

    end_of_text: the token that ends a text. The default is GPT-2's, if the vocabulary has the size of GPT-2's.

    Raises UserError: USAGE, naming the field, if GPT-2 has no such part, or if the folder holds something; DISK if it
    cannot be written. ValueError if the parameters are not those of cfg.
    """
    folder = Path(folder)
    require_sayable(cfg)
    expected = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    if jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, expected):
        raise ValueError("params are not those of cfg: names or shapes differ from model.init")
    require_empty(folder)
    tensors = gpt2_tensors.from_params(params, cfg)
    tensors = {name if name == "lm_head.weight" else f"transformer.{name}": x for name, x in tensors.items()}
    safetensors.write(folder / "model.safetensors", tensors, {"format": "pt"})
    write_json(folder / "config.json", _config(cfg, params["embedding"]["table"].dtype, end_of_text))


def require_sayable(cfg, remedy="export it with --to safetensors"):
    """Raises UserError (exit USAGE) that names the first field of a Config which GPT-2 has no word for."""
    spoken = {*FIELDS, "activation", "similarity", "attention_bias"}
    for field in (field.name for field in dataclasses.fields(cfg) if field.name not in spoken):
        ours, theirs = getattr(cfg, field), getattr(SIZES["gpt2"], field)
        if ours != theirs:
            has = f"no {field}" if theirs is None else f"{field} {theirs}"
            raise UserError(f"GPT-2 has {has}, and this model was trained with --{field} {ours}: {remedy}", USAGE)
    if cfg.similarity not in SIMILARITIES.values():
        raise UserError(f"GPT-2 has no --similarity {cfg.similarity}, as this model was trained with: {remedy}", USAGE)


def digest(params, cfg):
    """What tells the parameters of a GPT-2 from those of any other, however they were saved: sha256 of all tensors."""
    found = hashlib.sha256()
    for name, tensor in sorted(gpt2_tensors.from_params(params, cfg).items()):
        found.update(name.encode() + np.asarray(jax.device_get(tensor), np.float32).tobytes())
    return found.hexdigest()


def _config(cfg, dtype, end_of_text):
    """What config.json says of a cfg."""
    if end_of_text is None and cfg.vocab_size == SIZES["gpt2"].vocab_size:
        end_of_text = cfg.vocab_size - 1
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{theirs: getattr(cfg, ours) for ours, theirs in FIELDS.items()},
        "activation_function": next(name for name, ours in ACTIVATIONS.items() if ours == cfg.activation),
        "scale_attn_weights": cfg.similarity == "scaled_dot",
        "embd_pdrop": cfg.dropout,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "dtype": str(dtype),
    }


def read_config(path):
    """The Config that a config.json means; what it leaves out is as in the smallest GPT-2."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = "give a folder with config.json and model.safetensors"
        raise UserError(f"cannot read {path} ({error.strerror}): {remedy}", CHECKPOINT) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}): fetch it anew", CHECKPOINT) from None
    config = config if isinstance(config, dict) else {}
    supported = {
        "model_type": ("gpt2",),
        "activation_function": tuple(ACTIVATIONS),
        "scale_attn_weights": (True, False),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }
    for name, choices in supported.items():
        value = config.get(name, None if name == "model_type" else choices[0])
        if value not in choices:
            fitting = " or ".join(json.dumps(choice) for choice in choices)
            raise UserError(f"{path}: {name} is {json.dumps(value)}, and supported is {fitting}", CHECKPOINT)
    values = {ours: config.get(theirs, getattr(SIZES["gpt2"], ours)) for ours, theirs in FIELDS.items()}
    values["activation"] = ACTIVATIONS[config.get("activation_function", "gelu_new")]
    values["similarity"] = SIMILARITIES[config.get("scale_attn_weights", True)]
    try:
        for ours, theirs in FIELDS.items():  # whole numbers serve where others are expected
            kind = type(getattr(SIZES["gpt2"], ours))
            if not isinstance(values[ours], int | kind) or (isinstance(values[ours], bool) and kind is not bool):
                raise ValueError(f"{theirs} is {json.dumps(values[ours])}")
        for ours in SIZE_FIELDS:
            if values[ours] is not None and values[ours] >= 2**31:
                raise ValueError(f"{FIELDS[ours]} {values[ours]} is more than 2147483647")
        if not 0 < values["norm_epsilon"] < 1:
            raise ValueError(f"layer_norm_epsilon {values['norm_epsilon']} is not between 0 and 1")
        return dataclasses.replace(SIZES["gpt2"], **values)
    except ValueError as error:
        raise UserError(f"{path} describes no GPT-2 ({error}): fetch it anew", CHECKPOINT) from None


def _what_else_is_there(folder):
    """Why a folder without model.safetensors is not read, and what to do."""
    remedy = "save it as safetensors, with `model.save_pretrained(folder)`"
    pickles = sorted(file.name for file in folder.glob("*") if file.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt"))
    if pickles:
        return f"{folder / pickles[0]} is a pickle, which may execute anything and is not opened: {remedy}"
    return f"{folder} holds no model.safetensors: give a folder with config.json and model.safetensors"


def _check_layers(path, headers, cfg):
    """Raises UserError if config.json asks for more layers than the file has; a vast number would take long to name."""
    numbers = {int(match[1]) for name in headers if (match := re.match(r"h\.(\d{1,9})\.", name))}
    if cfg.n_layers > len(numbers):
        sizes = f"{path} holds {len(numbers)} layers where config.json has n_layer {cfg.n_layers}"
        raise UserError(f"{sizes}: fetch both files again", CHECKPOINT)


def _check_tensors(path, headers, stray, cfg):
    """Raises UserError that names every tensor that is missing, extra, of another shape or of no floats."""
    expected = jax.eval_shape(lambda key: gpt2_tensors.from_params(model.init(key, cfg), cfg), jax.random.key(0))
    faults = [f"{name} is missing" for name in expected.keys() - headers.keys()]
    faults += [f"{name} is extra" for name in {*stray, *(headers.keys() - expected.keys())}]
    for name in expected.keys() & headers.keys():
        shape, dtype = headers[name].shape, headers[name].dtype
        if shape != expected[name].shape:
            faults.append(f"{name} has shape {shape} instead of {expected[name].shape}")
        elif dtype not in safetensors.FLOATS:
            faults.append(f"{name} holds {dtype} instead of floating-point numbers")
    if faults:
        raise UserError(f"{path} is not what config.json says: {', '.join(sorted(faults))}", CHECKPOINT)
