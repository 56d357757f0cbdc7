"""Learn and load the byte pairs of a translator: one vocabulary for source and target, or one for each.

tokenizer.json                                    shared
source_tokenizer.json, target_tokenizer.json      apart
"""

from pathlib import Path

from apformer.settings import Settings
from apformer.tasks import source_run
from apformer.tasks.translation import corpus
from apformer.tokenizers import pretrained
from apformer.tokenizers.text import Tokenizer, train_byte_pairs

Pair = tuple[Tokenizer, Tokenizer]  # of the source, of the target
SHARED = "tokenizer.json"
APART = ("source_tokenizer.json", "target_tokenizer.json")
FLAGS = ("byte_pairs", "vocabularies")  # flags of the data that decide a vocabulary


def learn(lines: corpus.Lines, cfg: corpus.Config, folder: str | None = None) -> Pair:
    """Learn byte pairs of the lines of both sides together, or of each side alone; or load those of a run.

    folder: the run of --init_from. Raises UserError (exit USAGE) for flags that contradict it.
    """
    if folder is not None:
        source_run.require_same(cfg, of_run(folder).data, FLAGS, folder)
        return load(Path(folder))
    if cfg.vocabularies == "apart":
        source, target = (train_byte_pairs("\n".join(side), cfg.byte_pairs) for side in lines[:2])
        return source, target
    tokenizer = train_byte_pairs("\n".join([*lines.sources, *lines.targets]), cfg.byte_pairs)
    return tokenizer, tokenizer


def load(path: Path) -> Pair:
    """Return the byte pairs stored in a run. Raises UserError that names a file at fault."""
    source, target = (path / name for name in APART)
    if source.exists():
        return pretrained.load(source), pretrained.load(target)
    tokenizer = pretrained.load(path / SHARED)
    return tokenizer, tokenizer


def of_run(folder: str) -> Settings:
    """Read the model and data of a run of a translator. Raises UserError if the folder holds none."""
    return source_run.read(folder, "translation")


def files(tokenizers: Pair) -> dict[str, str]:
    """Return {name: text} of the tokenizer files."""
    source, target = tokenizers
    if source is target:
        return {SHARED: source.to_json()}
    return {name: tokenizer.to_json() for name, tokenizer in zip(APART, tokenizers, strict=True)}
