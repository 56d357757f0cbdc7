"""Compare a folder with the four published GPT-2 models.

    gpt2 124,439,808     gpt2-medium 354,823,168     gpt2-large 774,030,080     gpt2-xl 1,557,611,200 parameters

The sizes are those of Radford et al. 2019 and of `transformers`; the 50,257 tokens are 256 bytes, 50,000 merges and
<|endoftext|>. The SHA-256 are those of the files of openai-community/gpt2 and openai-community/gpt2-xl on
huggingface.co, which many public projects have pinned; `tiktoken` pins those of vocab.json and merges.txt. We know of
none for gpt2-medium and gpt2-large. Another SHA-256 is a fault here, although the same numbers may be saved as other
bytes.
"""

import json
from dataclasses import replace
from pathlib import Path

import optax

from apformer.errors import CHECKPOINT, DATA, Finding, UserError, found
from apformer.files import sha256
from apformer.formats import gpt2, model_folder
from apformer.model import Config
from apformer.tokenizers import pretrained

WEIGHTS = {  # SHA-256 of model.safetensors
    "gpt2": "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    "gpt2-xl": "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a",
}
TOKENIZER = {  # SHA-256 of the files, the same for all sizes
    "tokenizer.json": "8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6",
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
VOCABULARY, MERGES = 50_257, 50_000
KNOWN_TOKENS = ("hello world", [31373, 995])  # from the documentation of `tiktoken`


def findings(folder: str | Path) -> list[Finding]:
    """Compare each part of a folder with the published one."""
    folder = Path(folder)
    try:
        cfg = gpt2.read_config(folder / "config.json")
    except UserError as fault:
        name, findings = "gpt2", [Finding("config.json", str(fault), fault.exit_code)]
    else:
        name = min(gpt2.SIZES, key=lambda name: len(_differences(cfg, name)))
        findings = [found("config.json", _config, cfg, name), found("weights", weights, folder)]
        if not findings[-1].code:
            findings.append(found("sha256", _sums, folder, name))
    findings.append(found("tokenizer", _tokenizer, folder))
    return [_with_command(finding, folder, name) for finding in findings]


def _with_command(finding: Finding, folder: Path, name: str) -> Finding:
    """Add the command that fetches the published file to the sentence of a fault."""
    if not finding.code or "hf download" in finding.says:
        return finding
    file = {"config.json": "config.json", "tokenizer": "tokenizer.json"}.get(finding.what, model_folder.WEIGHTS)
    # A file that exists is not overwritten, since it may have been trained further.
    target = f"{folder}-published" if (folder / file).exists() else folder
    return finding._replace(says=f"{finding.says}; `hf download {name} {file} --local-dir {target}` fetches it")


def _differences(cfg: Config, name: str) -> dict[str, str]:
    """Return {field of config.json: its value instead of the published one}."""
    sizes = (replace(each, d_ff=each.d_ff or 4 * each.d_model) for each in (cfg, gpt2.SIZES[name]))
    ours, published = (gpt2.config_of(each, "", ()) for each in sizes)
    return {field: f"{field} {ours[field]} instead of {x}" for field, x in published.items() if ours[field] != x}


def _config(cfg: Config, name: str) -> str:
    differs = _differences(cfg, name)
    if not differs:
        return f"{name}: every field as published"
    nearest = f"{name}, with {', '.join(differs.values())}"
    if differs.keys() <= {"resid_pdrop", "embd_pdrop", "attn_pdrop"}:  # settings of training, not of the model
        return f"as {nearest}"
    raise UserError(f"none of the published sizes; nearest is {nearest}", CHECKPOINT)


def weights(folder: Path) -> str:
    """Return a sentence about the weights of a GPT-2 folder. Raises UserError as `gpt2.load` does."""
    _, params = gpt2.load(folder)
    return f"{optax.tree.size(params):,} parameters, all names and shapes as in config.json, all finite"


def _sums(folder: Path, name: str) -> str:
    file = folder / model_folder.WEIGHTS
    if not file.exists() or name not in WEIGHTS:
        return f"not compared: apformer knows no sum of {name} in {file.name if file.exists() else 'several files'}"
    if sha256(file) != WEIGHTS[name]:
        reason = "it was saved again, trained further, or is damaged"
        raise UserError(f"{model_folder.WEIGHTS} is not the published one: {reason}", CHECKPOINT)
    return f"{model_folder.WEIGHTS}: the published one"


def _tokenizer(folder: Path) -> str:
    tokenizer = pretrained.load(folder)
    if tokenizer.by_characters:
        raise UserError(f"{folder} has a tokenizer of characters", DATA)
    tokens = tokenizer.encode(KNOWN_TOKENS[0]).tolist()
    merges = len(json.loads(tokenizer.to_json())["model"].get("merges", ()))
    if (tokenizer.vocab_size, merges, tokens) != (VOCABULARY, MERGES, KNOWN_TOKENS[1]):
        counts = f"{tokenizer.vocab_size:,} tokens and {merges:,} merges, and {KNOWN_TOKENS[0]!r} becomes {tokens}"
        raise UserError(f"{counts}; GPT-2's has {VOCABULARY:,} and {MERGES:,}, and makes {KNOWN_TOKENS[1]} of it", DATA)
    changed = [name for name in TOKENIZER if (folder / name).exists() and sha256(folder / name) != TOKENIZER[name]]
    sums = f"{', '.join(changed)} saved again, with other bytes" if changed else "the published files"
    return f"{VOCABULARY:,} tokens, {MERGES:,} merges, {sums}"
