"""Load a language model from the folder it lies in: a run of a text, or a GPT-2 folder."""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    """A model with its parameters, the most tokens that it reads (None: no bound), and its tokenizer.

    ends: the tokens that end a text: special tokens, and `eos_token_id` of a config.json, a number or a list.
    """

    model: Model
    max_tokens: int | None
    tokenizer: text.Characters | text.BytePairs
    ends: frozenset

    def __repr__(self) -> str:
        return f"LanguageModel(vocab_size={self.tokenizer.vocab_size}, max_tokens={self.max_tokens})"


def load(folder: str | None = None, member: int | None = None, adapter: str | None = None) -> LanguageModel:
    """Load the LanguageModel in a folder, or that of the latest run. Raises UserError that names what is amiss.

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


def _end_tokens(config: dict) -> frozenset[int]:
    said = config.get("eos_token_id")
    return frozenset(token for token in (said if isinstance(said, list) else [said]) if type(token) is int)


def window(folder: str | None, found: LanguageModel) -> int:
    """Return the number of tokens that the LanguageModel of a folder reads at once: all it can, or as in training."""
    if found.max_tokens is not None:
        return found.max_tokens
    return settings_file.read(directory.find(folder)).data.context


def _load(folder: str | None, member: int | None) -> tuple[ModuleType, Any, Any, Path]:
    """Return (architecture, cfg, params, path)."""
    if folder is not None and folders.is_gpt2(folder):
        if member is not None:
            raise UserError(f"--member {member} is of a population, and {folder} is a GPT-2 folder: drop it", USAGE)
        return model, *gpt2.load(folder), Path(folder)
    path = directory.find(folder)
    settings = settings_file.read(path)
    tasks.ability(settings, "generate", path)
    params, _, _ = restore.load_params(path, settings, member)
    return architecture_of(settings), settings.model, params, path
