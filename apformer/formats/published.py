"""The four published GPT-2: what their folders hold, and whether one on the disk is whole.

    gpt2 124,439,808     gpt2-medium 354,823,168     gpt2-large 774,030,080     gpt2-xl 1,557,611,200 parameters

Sizes are those of Radford et al. 2019 and of `transformers`; 50,257 tokens are 256 bytes, 50,000 merges and
<|endoftext|>. The sums are those of the files of openai-community/gpt2 and openai-community/gpt2-xl on huggingface.co,
which many public projects have pinned; `tiktoken` pins those of vocab.json and merges.txt. We found none that pins
gpt2-medium or gpt2-large. Another sum is a fault here, although the same numbers, saved again, may have other bytes.
"""

import hashlib
import json
import math
from pathlib import Path

import jax

from apformer import model
from apformer.errors import CHECKPOINT, DATA, UserError
from apformer.formats import gpt2, sharded
from apformer.tokenizers import pretrained

PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}
WEIGHTS = {  # sha256 of model.safetensors
    "gpt2": "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    "gpt2-xl": "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a",
}
TOKENIZER = {  # sha256, the same for all sizes
    "tokenizer.json": "8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6",
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
VOCABULARY, MERGES = 50_257, 50_000
KNOWN_TOKENS = ("hello world", [31373, 995])  # of the documentation of `tiktoken`
BLOCK = 1 << 24


def findings(folder, progress=lambda done, total: None):
    """[(what, what is said of it, exit code or 0)] of a folder. progress(done, total): told of bytes that are read."""
    folder = Path(folder)
    try:
        cfg = gpt2.read_config(folder / "config.json")
    except UserError as fault:
        found = [("config.json", f"{fault}; {_fetch('gpt2', 'config.json', folder)}", fault.exit_code)]
        return [*found, *_tokenizer(folder)]
    name, told = _size(cfg, folder)
    return [told, *_weights(folder, cfg, name, progress), *_tokenizer(folder)]


def _fetch(name, file, folder):
    # Into another folder where there is one: it may have been trained further.
    place = f"{folder}-published" if (folder / file).exists() else folder
    return f"`hf download {name} {file} --local-dir {place}` fetches it"


def _size(cfg, folder):
    """(the name of the size that a Config has or is nearest to, what is said of it)."""
    fields = [*gpt2.FIELDS, "activation", "similarity"]

    def other(name):
        return [field for field in fields if _value(cfg, field) != _value(gpt2.SIZES[name], field)]

    name = min(gpt2.SIZES, key=lambda name: len(other(name)))
    if not (differs := other(name)):
        return name, ("config.json", f"{name}: every field as published", 0)
    calls = {**gpt2.FIELDS, "activation": "activation_function", "similarity": "scale_attn_weights"}
    said = ", ".join(f"{calls[f]} {_value(cfg, f)} instead of {_value(gpt2.SIZES[name], f)}" for f in differs)
    # Dropout is only of training, and a folder may say another.
    code = 0 if {*differs} <= {"dropout", "attention_dropout"} else CHECKPOINT
    verdict = f"as {name}, with" if code == 0 else f"none of the published sizes; nearest is {name}, with"
    remedy = "" if code == 0 else f": {_fetch(name, 'config.json', folder)}"
    return name, ("config.json", f"{verdict} {said}{remedy}", code)


def _value(cfg, field):
    return cfg.d_ff or 4 * cfg.d_model if field == "d_ff" else getattr(cfg, field)


def _weights(folder, cfg, name, progress):
    """What is said of the weights: their number and their names, their finiteness, their sum."""
    again = _fetch(name, "model.safetensors", folder)
    try:
        listed = sharded.headers(folder)
        if listed is None:
            return [("weights", f"{folder} holds no {sharded.WHOLE}: {again}", CHECKPOINT)]
        files = sorted({header.path for header in listed[1].values()})
        total = sum(file.stat().st_size for file in files)
        sums = {file.name: _sha256(file, progress, total) for file in files}
        gpt2.load(folder)  # names, shapes, and whether all numbers are finite
    except UserError as fault:
        return [("weights", f"{fault}; {again}", fault.exit_code)]
    shapes = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    expected = PARAMETERS[name]
    if count != expected:
        other = f"{count:,} parameters, and {name} has {expected:,}: {again}"
        return [("weights", other, CHECKPOINT)]
    place = "one file" if len(files) == 1 else f"{len(files)} files"
    found = [("weights", f"{count:,} parameters in {place}, all names and shapes as published, all finite", 0)]
    if len(files) > 1 or name not in WEIGHTS:
        return [*found, ("sha256", f"no sum is known of {name} in {place}: not compared", 0)]
    if sums[files[0].name] == WEIGHTS[name]:
        return [*found, ("sha256", f"{files[0].name}: the published one", 0)]
    other = f"{files[0].name} is not the published one: it was saved again, trained further, or is damaged; {again}"
    return [*found, ("sha256", other, CHECKPOINT)]


def _sha256(file, progress=None, total=0):
    found, done = hashlib.sha256(), 0
    with open(file, "rb") as opened:
        while block := opened.read(BLOCK):
            found.update(block)
            done += len(block)
            if progress:
                progress(done, total)
    return found.hexdigest()


def _tokenizer(folder):
    """What is said of the files of the tokenizer, and of what it makes of two words."""
    there = [name for name in TOKENIZER if (folder / name).exists()]
    again = _fetch("gpt2", "tokenizer.json", folder)
    if "tokenizer.json" not in there and len(there) < 2:
        return [("tokenizer", f"{folder} holds no tokenizer.json, nor vocab.json with merges.txt: {again}", DATA)]
    try:
        tokenizer = pretrained.load(folder)
        tokens = tokenizer.encode(KNOWN_TOKENS[0]).tolist()
        merges = len(json.loads(tokenizer.to_json())["model"]["merges"])
    except UserError as fault:
        return [("tokenizer", f"{fault}; {again}", fault.exit_code)]
    except (KeyError, TypeError):  # of characters
        return [("tokenizer", f"{folder} has a tokenizer of another kind: {again}", DATA)]
    if (tokenizer.vocab_size, merges, tokens) != (VOCABULARY, MERGES, KNOWN_TOKENS[1]):
        counts = f"{tokenizer.vocab_size:,} tokens and {merges:,} merges, and {KNOWN_TOKENS[0]!r} becomes {tokens}"
        expected = f"GPT-2's has {VOCABULARY:,} and {MERGES:,}, and makes {KNOWN_TOKENS[1]} of it"
        return [("tokenizer", f"{counts}; {expected}: {again}", DATA)]
    other = [name for name in there if _sha256(folder / name) != TOKENIZER[name]]
    sums = f"; {', '.join(other)} saved again, with other bytes" if other else ", the published files"
    return [("tokenizer", f"{VOCABULARY:,} tokens, {MERGES:,} merges{sums}", 0)]
