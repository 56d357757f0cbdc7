"""List every parser of apformer, with valid inputs to mutate.

A parser takes the path of a file with arbitrary content; the other files of its folder are valid. Parsers of prompts
and of standard input take bytes.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from faults import _mutate
from faults import _readers as readers

from apformer import files, model, tasks
from apformer.analysis.certificate import FORMAT
from apformer.commands import certify, evaluate, train
from apformer.formats import gpt2, peft, weights
from apformer.proof import check
from apformer.report import trackers
from apformer.runs import metrics, provenance, selection
from apformer.settings import Settings, Training
from apformer.tasks import progressions, settings_file
from apformer.tasks.progressions import text_file
from apformer.tasks.text import folders, lora, shards
from apformer.tasks.translation import corpus as pairs
from apformer.tasks.translation import training
from apformer.tasks.words import corpus as words
from apformer.tokenizers import byte_pairs, chunks, digits, pretrained, text

TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))
LINES = ("007 010 013 016 019\n990 980 970\n000 000\n", "00012 00010 00008\n", "1 2 3 4 5 6\n")


class Parser(NamedTuple):
    """A parser to test. It gets cases in proportion to `share`, and at least one."""

    name: str
    share: float
    file: str | None  # name of the file; None for a parser of bytes
    seeds: list[bytes]
    structure: Callable | None  # mutator that parses the seed, such as _mutate.of_json
    read: Callable
    beside: Path | None = None  # folder whose content is copied next to the file


def parsers(folder):
    """Return all parsers; write the files that they need into `folder`."""
    return [*_of_runs(folder), *_of_models(folder), *_of_tokenizers(folder), *_of_data(folder), *_of_prompts(folder)]


def _as(value):
    return json.dumps(value, indent=1).encode()


def _of_runs(folder):
    run, configs = _run(folder / "run"), []
    for recipe, task in tasks.recipes().items():
        configs.append(
            _as(settings_file.to_dict(tasks.load(task).RECIPES[recipe]()) | {"versions": {"apformer": "0.3"}})
        )
    line = {"step": 0, "loss": 1.5, "exact": 0.5, "learning_rate": 1e-3, "validation_loss": 1.25}
    lines = b"".join(json.dumps(line | {"step": step}).encode() + b"\n" for step in (50, 100, 150))
    sound = _as(selection.sealed(selection.Facts(1, [0.5], False, {"w": "float32[2]"}, {}, "0" * 64)))
    state = check.TALLY | {"slices": 1, "contexts": 5}
    identity = {"step": 1, "member": 0, "parameters_sha256": "0", "judge": "numpy"}
    partial = check.with_digest({"identity": identity, "tally": state, "seconds": 1.5})
    proof = {"format": FORMAT, "certified": True, "claim": "all", "contexts": 9, "errors": 0, "smallest_margin": 1.0}
    proof |= {"step": 0, "member": 0, "parameters_sha256": "0", "parts": {}}
    evaluation = (run / "evaluation.json").read_bytes()
    missed_record = {"step": 50, "first": [471, 103], "difference": [44, 248], "given": [3, 2], "margin": [-0.12, 0.16]}
    missed_line = _as(missed_record).replace(b"\n", b"") + b"\n"
    J, L, facts = _mutate.of_json, _mutate.of_lines, str(selection.FILE)
    settings = settings_file.read(run)
    load_partial = lambda path: readers.partial(path, identity)  # noqa: E731
    export = lambda path: readers.export_proof(path, settings)  # noqa: E731
    read_evaluation = lambda path: readers.evaluation(path, run, settings)  # noqa: E731

    return [
        Parser("any JSON", 5, "x.json", [*configs[:1], b'[1, "a", null]'], J, files.read_json),
        Parser("config.json", 10, "config.json", configs, J, lambda path: settings_file.read(path.parent)),
        Parser("config.json in a page", 2, "config.json", configs, J, readers.config_of_page),
        Parser("metrics.jsonl", 8, "metrics.jsonl", [lines], L, readers.metrics_of_page),
        Parser("metrics.jsonl as curves", 0.2, "metrics.jsonl", [lines], L, readers.curves),
        Parser("metrics.jsonl cut back", 5, "metrics.jsonl", [lines], L, readers.cut_back),
        Parser("missed.jsonl", 0.1, metrics.MISSED, [missed_line], L, readers.read_missed),
        Parser("facts.json", 5, facts, [sound], J, lambda path: readers.verify(path.parents[1])),
        Parser("facts.json sealed anew", 5, facts, [sound], J, readers.reseal),
        Parser("certificate.numpy.partial.json", 5, certify.PARTIAL.format("numpy"), [_as(partial)], J, load_partial),
        Parser("certificate.json in a page", 3, "certificate.json", [_as(proof)], J, readers.of_page),
        Parser("certificate.json to export", 0.02, "certificate.json", [_as(proof)], J, export, run),
        Parser("evaluation.json in a page", 0.1, "evaluation.json", [evaluation], J, read_evaluation),
        Parser("the step of a result", 3, "evaluation.json", [_as(proof)], J, files.read_json),
        Parser("logged.json", 2, "logged.json", [_as({"step": 50, "id": "0" * 12})], J, trackers.read_logged),
        Parser("vocabulary.tsv", 1, words.FILE, [b"the\t9\nof\t7\nale\t5\n"], None, readers.vocabulary),
    ]


def _of_models(folder):
    shape = dict(vocab_size=96, d_model=4, n_heads=2, n_layers=1, max_len=8)
    cfg = model.Config(**{**vars(gpt2.SIZES["gpt2"]), **shape})
    params = model.init(_key(), cfg)
    gpt2.save(folder / "gpt2", params, cfg)
    weights.write_safetensors(folder / "own.safetensors", "model", params, cfg)
    config, tensors = ((folder / "gpt2" / name).read_bytes() for name in ("config.json", "model.safetensors"))
    own, proof = (folder / "own.safetensors").read_bytes(), folder / "proof"
    proof.mkdir()
    shape, data = _small(), progressions.Config(digits=3)
    proof_params = model.init(_key(), shape)
    weights.write_safetensors(proof / "model.safetensors", "model", proof_params, shape)
    configs_json = {"model": asdict(shape), "data": asdict(data)}
    files.write_json(proof / "config.json", configs_json)
    certificate = configs_json | {"contexts": 9, "parameters_sha256": provenance.digest(proof_params)}
    files.write_json(proof / "certificate.json", certificate)
    adapter = folder / "adapter"
    peft.save(adapter, lora.init(_key(), params, 2), 4.0, 2, params, cfg)
    adapter_config, factors = ((adapter / name).read_bytes() for name in (peft.CONFIG, peft.WEIGHTS))
    load_adapter = lambda path: peft.load(path.parent, model, params, cfg)  # noqa: E731
    folders_of = [tensors, *readers.with_prefixes(folder / "gpt2")]
    index = readers.in_shards(folder / "gpt2", folder / "shards of weights")
    own_run = _as(settings_file.to_dict(tasks.load("text").RECIPES["text"]()))
    proof_weights = (proof / "model.safetensors").read_bytes()
    J, T, place = _mutate.of_json, _mutate.of_tensors, folder / "gpt2"
    return [
        Parser("safetensors", 6, "model.safetensors", [tensors, own], T, readers.tensors),
        Parser("GPT-2's config.json", 8, "config.json", [config], J, gpt2.read_config),
        Parser(
            "a folder's config.json", 5, "config.json", [config, own_run], J, lambda p: folders.read_config(p.parent)
        ),
        Parser("a GPT-2 folder, its config", 0.2, "config.json", [config], J, readers.gpt2_file, place),
        Parser(
            "a GPT-2 folder, its weights", 0.3, "model.safetensors", folders_of, T, readers.gpt2_file, folder / "gpt2"
        ),
        Parser(
            "shards: index of weights", 1, readers.INDEX, [index], J, readers.gpt2_file, folder / "shards of weights"
        ),
        Parser("an adapter, its config", 1, peft.CONFIG, [adapter_config], J, load_adapter, adapter),
        Parser("an adapter, its weights", 1, peft.WEIGHTS, [factors], T, load_adapter, adapter),
        Parser("check.py: weights", 4, "model.safetensors", [proof_weights], T, readers.run_check, proof),
        Parser("check.py: config", 0.5, "config.json", [_as(configs_json)], J, readers.run_check, proof),
        Parser("check.py: certificate", 0.5, "certificate.json", [_as(certificate)], J, readers.run_check, proof),
    ]


def _of_tokenizers(folder):
    letters = text.train_characters(TEXT)
    pieces = text.train_byte_pairs(TEXT, 280)
    content = json.loads(pieces.to_json())["model"]
    lists = folder / "lists"
    lists.mkdir()
    (lists / "vocab.json").write_text(json.dumps(content["vocab"]), "utf-8")
    rules = "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in content["merges"])
    (lists / "merges.txt").write_text(rules, "utf-8")
    plain, J = pretrained.load(lists).to_json().encode(), _mutate.of_json
    tokenizer_files = [pieces.to_json().encode(), pieces.with_end()[0].to_json().encode(), plain]
    readable = replace(byte_pairs.train(TEXT, 280), special_tokens={"<|endoftext|>": 300})
    readable.save(lists / "toy.model")
    tokens = [bytes([byte]) for byte in chunks.BYTES] + [readable.vocab[token] for token in range(256, 280)]
    ranks = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
    lists_of = lambda path: pretrained.load(path.parent)  # noqa: E731
    added_tokens = {"<|user|>": 281, "<name>": 282}
    decoder = {"281": {"content": "<|user|>", "special": True}, "282": {"content": "<name>", "lstrip": True}}
    config = {"add_prefix_space": False, "pad_token": "<pad>", "added_tokens_decoder": decoder}
    special = {"eos_token": "<|user|>", "pad_token": {"content": "<pad>"}, "additional_special_tokens": ["<a>"]}
    beside = {"added_tokens.json": added_tokens, "tokenizer_config.json": config, "special_tokens_map.json": special}
    return [
        Parser("tokenizer of characters", 4, "tokenizer.json", [letters.to_json().encode()], J, readers.tokenizer),
        Parser("tokenizer.json", 1.5, "tokenizer.json", tokenizer_files, readers.of_tokenizer_json, readers.tokenizer),
        Parser("vocab.json", 0.1, "vocab.json", [(lists / "vocab.json").read_bytes()], J, lists_of, lists),
        *(Parser(name, 0.1, name, [_as(value)], J, lists_of, lists) for name, value in beside.items()),
        Parser("merges.txt", 0.1, "merges.txt", [rules.encode()], None, lists_of, lists),
        Parser(".tiktoken", 1.5, "small-cl100k.tiktoken", [ranks.encode()], None, readers.tokenizer),
        Parser(
            "byte pairs to be read", 1.5, "toy.model", [(lists / "toy.model").read_bytes()], None, readers.tokenizer
        ),
    ]


def _of_data(folder):
    place, pieces = folder / "shards", text.train_byte_pairs(TEXT, 260)
    place.mkdir()
    writer = shards.Writer(place, pieces, 300)
    writer.add(pieces.encode(TEXT))
    writer.close(pieces.encode(TEXT)[:50], 99)
    manifest, shard = (place / "manifest.json").read_bytes(), (place / "000000.bin").read_bytes()
    last = (place / "validation.bin").read_bytes()
    side = folder / "side"
    side.mkdir()
    (side / "b.txt").write_text(TEXT)
    lines = [line.encode() for line in LINES]
    pair = lambda path: pairs.read(pairs.Config(str(path), str(path.parent / "b.txt")))  # noqa: E731
    return [
        Parser("progressions, a file", 6, "data.txt", lines, None, text_file.read),
        Parser("a text", 5, "data.txt", [TEXT.encode()], None, lambda path: readers.whole_text(path, pieces)),
        Parser("a folder of texts", 2, "a.txt", [TEXT.encode()], None, readers.folder_of_texts, side),
        Parser("a text in words", 0.02, "data.txt", [TEXT.encode()], None, readers.words_file),
        Parser("sentences, a file", 4, "a.txt", [TEXT.encode()], None, pair, side),
        Parser("shards: manifest", 0.5, "manifest.json", [manifest], _mutate.of_json, readers.shards_file, place),
        Parser("shards: tokens", 0.5, "000000.bin", [shard], None, readers.shards_file, place),
        Parser("shards: validation", 0.2, "validation.bin", [last], None, readers.shards_file, place),
    ]


def _of_prompts(folder):
    pieces, letters = text.train_byte_pairs(TEXT, 260).with_end()[0], text.train_characters(TEXT).with_end()[0]
    lines, cfg = [line.split("\n")[0].encode() for line in LINES], pairs.Config(longest=64)
    return [
        Parser("prompts of terms", 6, None, lines, None, readers.prompt(readers.terms)),
        Parser("prompts of digits", 3, None, lines, None, readers.prompt(digits.encode)),
        Parser("prompts of characters", 3, None, [TEXT[:99].encode()], None, readers.prompt(letters.encode)),
        Parser("prompts of byte pairs", 3, None, [TEXT[:99].encode()], None, readers.prompt(pieces.encode)),
        Parser(
            "sentences",
            2,
            None,
            [b"the 9 bottles"],
            None,
            readers.prompt(lambda s: training.encode_side(pieces, [s], "x", cfg)),
        ),
        Parser("standard input", 4, None, [TEXT[:99].encode()], None, readers.standard_input),
    ]


def _key():
    import jax

    return jax.random.key(0)


def _small():
    """Return the Config of a model that check.py computes."""
    return model.Config(d_model=8, n_heads=2, n_layers=2, d_ff=4, position="relative", window=6)


def _run(path):
    """Write an evaluated run with random weights, and return its path."""
    data, options = progressions.Config(max_terms=6), progressions.Options(test_sequences=30)
    settings = Settings("progressions", "model", Training(run_dir=str(path)), _small(), data, options)
    settings, rows = progressions.load(settings)
    train.keep(settings, model.init(_key(), settings.model), rows, (0.5,))
    line = {"step": 0, "loss": 0.1, "exact": 1.0, "learning_rate": 1e-3, "seconds": 1.0}
    files.write_text(path / "metrics.jsonl", json.dumps(line) + "\n")
    found = evaluate.evaluate_run(path, settings, rows)
    near = {"row": "007 010 013 016", "term": 3, "expected": " 013", "predicted": " 014"}
    files.write_json(path / "evaluation.json", found.result | {"errors": [near]})
    return path


def describe_input(content):
    """Describe an input by its length, the start of its SHA-256, and its first bytes."""
    return f"{len(content):,} bytes {hashlib.sha256(content).hexdigest()[:12]}, {content[:300]!r}"
