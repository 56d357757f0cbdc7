"""The byte pairs of a translator: one vocabulary that source and target share, or one for each.

tokenizer.json                                    shared
source_tokenizer.json, target_tokenizer.json      apart
"""

import hashlib
from pathlib import Path

from apformer.tasks import further
from apformer.tasks.translation import corpus
from apformer.tokenizers import pretrained
from apformer.tokenizers.text import train_byte_pairs

SHARED = "tokenizer.json"
APART = ("source_tokenizer.json", "target_tokenizer.json")
FLAGS = ("byte_pairs", "vocabularies")  # those of the data that decide a vocabulary


def learn(lines, cfg):
    """(of the source, of the target): byte pairs of the lines of both sides together, or of each side alone."""
    if cfg.vocabularies == "apart":
        return tuple(train_byte_pairs("\n".join(side), cfg.byte_pairs) for side in lines[:2])
    return (train_byte_pairs("\n".join([*lines.sources, *lines.targets]), cfg.byte_pairs),) * 2


def load(path):
    """(of the source, of the target) of the run at a Path. Raises UserError that names a file at fault."""
    if (path / APART[0]).exists():
        return tuple(pretrained.load(path / name) for name in APART)
    return (pretrained.load(path / SHARED),) * 2


def of_run(folder):
    """What a run of a translator says of its model, a further.Source. Raises UserError if the folder holds none."""
    return further.read(folder, "translation", corpus.Config, ("to translate", "name a run of --recipe translate"))


def given(folder, cfg):
    """(of the source, of the target) of a run whose model is trained further, on the sentences of a Config.

    Raises UserError (exit USAGE) for a flag that asks for others.
    """
    further.require_same(cfg, of_run(folder).data, FLAGS, folder)
    return load(Path(folder))


def files(tokenizers):
    """{name: text} of what a run directory keeps."""
    source, target = tokenizers
    if source is target:
        return {SHARED: source.to_json()}
    return dict(zip(APART, (source.to_json(), target.to_json()), strict=True))


def sha256(tokenizers):
    """The sha256 of the texts of those files, one after the other."""
    return hashlib.sha256("".join(files(tokenizers).values()).encode()).hexdigest()
