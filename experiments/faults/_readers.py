"""Readers of apformer, to be called with the path of a hostile file, or with hostile bytes.

A reader uses what it has read as apformer does. It returns, or raises UserError (check.py: Ended).
"""

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stderr
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
from faults import _mutate

from apformer import files, flags, tasks
from apformer.analysis.certificate import FORMAT
from apformer.commands import export, report
from apformer.formats import gpt2, model_folder, safetensors
from apformer.proof import check
from apformer.report import figures, sections, template
from apformer.runs import directory, metrics, selection
from apformer.tasks.progressions import crops, text_file
from apformer.tasks.progressions.proof import contexts
from apformer.tasks.text import corpus, shards
from apformer.tasks.text import training as texts
from apformer.tasks.words import corpus as words
from apformer.tasks.words import nearest
from apformer.tokenizers import merges, pretrained


def config_of_page(path):
    write_page({key: directory.recorded(path.parent, key) for key in ("versions", "flags")})


def write_page(value):
    """Write a value into a page, where numbers that are not finite become null."""
    template.fill({"x": value})


def metrics_of_page(path):
    write_page(metrics.read_metrics(path.parent))


def curves(path):
    import matplotlib.pyplot as plt

    try:
        figures.loss_curve(metrics.read_metrics(path.parent))
    finally:
        plt.close("all")


def cut_back(path):
    if path.is_dir():
        return
    files.truncate_after(path, 100)
    if path.exists() and path.stat().st_size:
        metrics.read_metrics(path.parent)  # the remaining lines are valid


def read_missed(path):
    crops.from_records(metrics.read_missed(path.parent), 8)


def verify(checkpoint):
    folder = checkpoint.parent
    try:
        selection.read_facts(checkpoint)
    except selection.Damaged as damage:
        selection.refuse(checkpoint, damage)
    selection.best(selection.read_all(folder))
    selection.scheduled(selection.read_all(folder))


def reseal(path):
    try:
        facts = json.loads(path.read_bytes())
        facts.pop("sha256")
        path.write_text(json.dumps(check.with_digest(facts)))
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return
    verify(path.parents[1])


def partial(path, identity):
    saved = check.load_partial(path, identity)
    assert not saved or saved["seconds"] == 1.5


def of_page(path):
    data = {"step": 0, "member": 0, "parameters_sha256": "0", "missing": {}}
    write_page([report._of_this_model(path, data, "certify", {"format": FORMAT}, report.CERTIFICATE), data])


def export_proof(path, settings):
    try:
        export.write_proof(path.parent / "out", path.parent, settings)
    finally:
        shutil.rmtree(path.parent / "out", ignore_errors=True)


def evaluation(path, run, settings):
    """Write the section of a run's evaluation into a page."""
    data = {"step": 0, "member": 0, "parameters_sha256": "0", "missing": {}}
    write_page(report._of_task(path.parent, settings, None, None, data))


def vocabulary(path):
    with mock.patch.object(nearest, "nearest", lambda params, vocabulary, given, count: {"x": []}):
        nearest.neighbours(None, path.parent, [], 3)


def tensors(path):
    with safetensors.reading(path) as file:
        file.metadata()
        for name in file.keys():
            facts = file.get_slice(name)
            facts.get_shape(), facts.get_dtype()
            if facts.get_dtype() in model_folder.FLOATS:
                file.get_tensor(name)


def gpt2_file(path):
    gpt2.load(path.parent)


INDEX = f"{model_folder.WEIGHTS}.index.json"


def in_shards(folder, out):
    """Copy a GPT-2 folder with its tensors split into two files, and return the bytes of the index."""
    from safetensors.numpy import load_file, save_file

    out.mkdir()
    shutil.copy(folder / "config.json", out)
    tensors = load_file(folder / model_folder.WEIGHTS)
    shard_of = {name: f"{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for shard in {*shard_of.values()}:
        save_file({name: tensor for name, tensor in tensors.items() if shard_of[name] == shard}, out / shard)
    files.write_json(out / INDEX, {"metadata": {"total_size": 1}, "weight_map": shard_of})
    return (out / INDEX).read_bytes()


PREFIXES = ("transformer.", "_orig_mod.", "module.transformer.")


def with_prefixes(folder):
    """Return the weights of a GPT-2 folder as bytes, once for each prefix of the tensor names."""
    from safetensors.numpy import load_file, save

    tensors = load_file(folder / model_folder.WEIGHTS)
    return [save({prefix + name: tensor for name, tensor in tensors.items()}) for prefix in PREFIXES]


def run_check(path):
    """Run check.py until it has read its files. Raises Ended if it exits."""
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        try:
            check.main(path.parent, SimpleNamespace(**vars(contexts) | {"slices": _begin}))
        except Begun:
            pass  # all was read, and the proof would begin
        except SystemExit as end:
            raise Ended(stderr.getvalue().removesuffix("\n"), end.code) from None


class Begun(BaseException):
    """Raised once check.py has read its files."""


def _begin(data, cfg, bits_of):
    raise Begun


class Ended(Exception):
    """Raised when a program exits, with its message and exit code."""

    def __init__(self, sentence, exit_code):
        super().__init__(sentence)
        self.exit_code = exit_code


def of_tokenizer_json(rng, seed, rounds):
    """Mutate tokenizer.json, more often outside its vocabulary and merges, which are most of the file."""
    content = json.loads(seed)
    if rng.random() < 0.6:
        vocabulary, rules = content["model"].pop("vocab"), content["model"].pop("merges")
        content = _mutate.mutate_json(rng, content, rounds)
        if isinstance(content, dict) and type(content.get("model")) is dict:
            content = content | {"model": content["model"] | {"vocab": vocabulary, "merges": rules}}
        return _mutate.as_json(content)
    return _mutate.as_json(_mutate.mutate_json(rng, content, rounds))


def tokenizer(path):
    tokenizer = pretrained.load(path)
    sound = tokenizer.characters if tokenizer.by_characters else "the 9 <|endoftext|>"
    assert tokenizer.decode(tokenizer.encode(sound, allowed_special="all")) == sound
    merges.texts(tokenizer)
    if not tokenizer.by_characters:
        write_page(sections.attempt({}, "x", lambda: merges.of(tokenizer)))


def whole_text(path, pieces):
    settings = tasks.load("text").RECIPES["text"]()
    rows = texts.read_rows(replace(settings, data=corpus.Config(text=str(path), context=8)))
    content = corpus.read(path)
    assert rows.tokenizer.decode([*rows.train, *rows.validation]) == content
    if len(content) < 10_000:
        assert pieces.decode(pieces.encode(content)) == content


def folder_of_texts(path):
    assert corpus.read_folder(path.parent)


def words_file(path):
    words.read(words.Config(text=str(path), min_count=2))


def shards_file(path):
    found = shards.read(path.parent)
    if len(found.train) >= 9:
        found.train.windows(np.array([0, len(found.train) - 9]), 9)


def prompt(read):
    """Return a reader of prompts as the command line decodes them: invalid UTF-8 becomes lone surrogates."""
    return lambda content: read(os.fsdecode(content).replace("\0", ""))


def standard_input(content):
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
        flags.prompts([], "-", "prompt", "x", None)


def terms(line):
    """Read a prompt of terms."""
    return text_file.read_numbers([line], "the prompt")
