"""A language model from the folder it lies in: a run of a text, or a GPT-2 folder."""

from pathlib import Path
from typing import NamedTuple

from apformer import model, recurrent
from apformer.errors import USAGE, UserError
from apformer.formats import gpt2
from apformer.runs import directory, pretrained, restore
from apformer.tokenizers import pretrained as tokenizer_file
from apformer.tokenizers import text


class LanguageModel(NamedTuple):
    """Its architecture, its parameters, and the tokenizer of its vocabulary."""

    cfg: model.Config | recurrent.Config
    params: dict
    tokenizer: text.Characters | text.BytePairs


def load(folder=None, member=None):
    """The LanguageModel in a folder; that of the latest run if not given. Raises UserError that names what is amiss.

    member: that of a population; the best on validation if not given.
    """
    cfg, params, path = load_params(folder, member)
    tokenizer = tokenizer_file.load(path)
    text.check_vocabulary(tokenizer, cfg.vocab_size, str(path))
    return LanguageModel(cfg, params, tokenizer)


def load_params(folder=None, member=None):
    """(cfg, params, path) of the model in a folder, as `load`, where there need be no tokenizer."""
    if folder is not None and pretrained.is_gpt2(folder):
        if member is not None:
            raise UserError(f"--member {member} is of a population, and {folder} is a GPT-2 folder: drop it", USAGE)
        return *gpt2.load(folder), Path(folder)
    path = directory.find(folder)
    settings = restore.load_settings(path)
    pretrained.require_text(settings, path)
    params, _, _ = restore.load_params(path, settings, member)
    return settings.model, params, path
