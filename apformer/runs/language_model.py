"""A language model from the folder it lies in: a run of a text, or a GPT-2 folder."""

from pathlib import Path
from typing import NamedTuple

from apformer import files, model, tasks
from apformer.decoding.bind import Model, bind
from apformer.errors import USAGE, UserError
from apformer.formats import gpt2, peft
from apformer.machine import devices
from apformer.runs import directory, restore, settings_file
from apformer.settings import architecture_of
from apformer.tasks.text import folders, lora
from apformer.tokenizers import pretrained, text


class LanguageModel(NamedTuple):
    """Its parameters bound, the most tokens that it reads (None: no bound), and the tokenizer of its vocabulary.

    ends: the tokens that end a text: special tokens, and `eos_token_id` of a config.json, a number or a list.
    """

    model: Model
    max_tokens: int | None
    tokenizer: text.Characters | text.BytePairs
    ends: frozenset


def load(folder=None, member=None, adapter=None):
    """The LanguageModel in a folder; that of the latest run if not given. Raises UserError that names what is amiss.

    member: that of a population; the best on validation if not given. adapter: a folder of low-rank adapters, saved
    alone, which are merged into its matrices.
    """
    architecture, cfg, params, path = _load(folder, member)
    if adapter is not None:
        params = lora.merge(params, peft.load(adapter, architecture, params, cfg), 1.0)
    tokenizer = pretrained.load(path)
    text.check_vocabulary(tokenizer, cfg.vocab_size, str(path))
    bound = bind(architecture, params, cfg, devices.mesh())
    ends = tokenizer.special_tokens | _end_tokens(files.read_json(path / "config.json"))
    return LanguageModel(bound, architecture.max_tokens(cfg), tokenizer, ends)


def _end_tokens(config):
    said = config.get("eos_token_id")
    return frozenset(token for token in (said if isinstance(said, list) else [said]) if type(token) is int)


def window(folder, found):
    """How many tokens the LanguageModel of a folder reads at once: all it can, or as many as in training."""
    if found.max_tokens is not None:
        return found.max_tokens
    return settings_file.read(directory.find(folder)).data.context


def _load(folder, member):
    """(architecture, cfg, params, path)"""
    if folder is not None and folders.is_gpt2(folder):
        if member is not None:
            raise UserError(f"--member {member} is of a population, and {folder} is a GPT-2 folder: drop it", USAGE)
        return model, *gpt2.load(folder), Path(folder)
    path = directory.find(folder)
    settings = settings_file.read(path)
    tasks.ability(settings, "generate", path)
    params, _, _ = restore.load_params(path, settings, member)
    return architecture_of(settings), settings.model, params, path
