"""Read sentences and their translations: two texts with parallel lines, or number words.

    source line n   A dog runs.          target line n   Ein Hund rennt.

There are three parts: training, validation (to choose the best checkpoint) and test (to score the model). Without files
for the last two, each gets about one source line in fifty by a hash of the line, so no source is in two parts.
"""

import shlex
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from apformer.errors import DATA, UserError, tell
from apformer.files import FilePath
from apformer.flags import require_whole
from apformer.report import progress
from apformer.tasks.text import corpus
from apformer.tasks.translation import number_words

VALIDATION_NUMBERS = 1000
LETTERS = "letters.txt"  # file of a run with each letter of the training sources


@dataclass(frozen=True)
class Config:
    """The sentences, and their conversion to tokens.

    Attributes:
        source: Text file with one sentence a line. The default is number words.
        target: Text file with the translation of each line.
        validation: Two such files that choose the best checkpoint. The default is about one line in fifty of --source.
        test: Two such files that score the model. The default is about another line in fifty.
        from_language: Language of the number words to read: one that num2words knows, or figures.
        to_language: Language of the number words to write. With files, the language by which translations are scored,
            as two letters, unless --target has a suffix such as train.de; without either, English.
        largest: Largest number in number words.
        numbers: Number of different number words to train on.
        test_sentences: Number of other number words that score the model. With files, all test lines are used.
        byte_pairs: Largest size of the vocabulary of both languages, or of each with --vocabularies apart.
        vocabularies: Byte pairs of both languages together, with one embedding table, or apart, with an embedding table
            for each.
        longest: Largest number of tokens in a sentence, its end token included.
        too_long: Treatment of longer sentences: refuse or cut.
        widths: Lengths in tokens to which sentences are padded. The default is six that suit the data.
    """

    source: FilePath | None = None
    target: FilePath | None = None
    validation: tuple[FilePath, FilePath] | None = None
    test: tuple[FilePath, FilePath] | None = None
    from_language: str = "en"
    to_language: str = "fr"
    largest: int = 999_999
    numbers: int = 30_000
    test_sentences: int = 5000
    byte_pairs: int = 4000
    vocabularies: Literal["shared", "apart"] = "shared"
    longest: int = 128
    too_long: Literal["refuse", "cut"] = "refuse"
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Options:
    """Training of an encoder-decoder on pairs of sentences, and its search for translations.

    Attributes:
        init_from: Run of a translator whose model is trained further, with its vocabulary. The default is a new model.
        label_smoothing: Share of the probability of each target token that is spread over the vocabulary.
        beams: Number of beams in the search for translations. With 1, the most likely token is always taken.
        alpha: Length penalty of the search: 0 for none, more for longer translations.
    """

    init_from: FilePath | None = None
    label_smoothing: float = 0.1
    beams: int = 5
    alpha: float = 0.6


class Lines(NamedTuple):
    """Sentences of one part, and the names of their files or languages."""

    sources: list[str]
    targets: list[str]
    names: tuple[str, str]

    def choose(self, numbers: Sequence[int]) -> "Lines":
        """Return the pairs with these indices."""
        return Lines([self.sources[n] for n in numbers], [self.targets[n] for n in numbers], self.names)


def check(cfg: Config) -> None:
    """Raise UserError (exit USAGE) for a flag that is out of range or contradicts another."""
    if (cfg.source is None) != (cfg.target is None):
        raise UserError("--source and --target belong together: give two files, or none for number words")
    if cfg.source is None:
        if cfg.validation or cfg.test:
            raise UserError("--validation and --test go with --source and --target: give these too")
    else:
        for flag in ("largest", "numbers", "test_sentences"):
            if getattr(cfg, flag) != getattr(Config, flag):
                raise UserError(f"--{flag} is of number words, and --source gives the sentences: drop one of the two")
    require_whole("largest", cfg, 99, 10**15 - 1)
    require_whole("numbers", cfg, 1, 1_000_000)
    require_whole("test_sentences", cfg, 1, 1_000_000)
    require_whole("byte_pairs", cfg, 256, 2**20 - 1)
    require_whole("longest", cfg, 2, 2**16 - 1)
    if any(not 1 <= width <= cfg.longest for width in cfg.widths) or list(cfg.widths) != sorted({*cfg.widths}):
        widths = " ".join(map(str, cfg.widths))
        raise UserError(f"--widths {widths} do not rise from 1 to --longest {cfg.longest}: give some that do")


def read(cfg: Config) -> dict[str, Lines]:
    """Return the Lines of each part.

    Raises:
        UserError: Exit code DATA for files that are not parallel, USAGE for an unknown language.
    """
    if cfg.source is None or cfg.target is None:
        return _number_words(cfg)
    held_out = {"validation": cfg.validation, "test": cfg.test}
    parts = {name: read_files(files) for name, files in held_out.items() if files}
    missing = [name for name in held_out if name not in parts]
    pairs = read_files((cfg.source, cfg.target))
    part_of = dict(enumerate(missing))
    part_N = [part_of.get(zlib.crc32(sentence.encode()) % 50, "train") for sentence in pairs.sources]
    for name in ("train", *missing):
        parts[name] = pairs.choose([n for n, part in enumerate(part_N) if part == name])
        if not parts[name].sources:
            remedy = "give more lines" if name == "train" else f"give more lines, or --{name} files"
            raise UserError(f"{cfg.source} leaves no line for {name}: {remedy}", DATA)
    counts = ", ".join(f"{name} {len(parts[name].sources):,}" for name in number_words.SPLITS)
    shares = f"; {' and '.join(missing)}: about one line in fifty of {cfg.source}, by its hash" if missing else ""
    tell(f"pairs of sentences: {counts}{shares}")
    return {name: parts[name] for name in number_words.SPLITS}


def read_files(files: tuple[str, str]) -> Lines:
    """Return the Lines of two files without the pairs whose source is empty, and report empty lines.

    Raises UserError (exit DATA) that names a file.
    """
    source, target = files
    sources, targets = map(lines_of, files)
    if len(sources) != len(targets):
        counts = f"{source} has {len(sources):,} lines and {target} has {len(targets):,} lines"
        raise UserError(f"{counts}: give two files whose lines belong together", DATA)
    filled = [n for n, sentence in enumerate(sources) if sentence.strip()]
    blank = sorted({*range(len(sources))} - {*filled})
    untranslated = [n for n in filled if not targets[n].strip()]
    for file, lines, use in (source, blank, "left out, with their translations"), (target, untranslated, "kept"):
        if lines:
            some = ", ".join(str(n + 1) for n in lines[:5]) + (", ..." if len(lines) > 5 else "")
            tell(f"{file}: {len(lines):,} empty lines ({some}) are {use}")
    if not filled:
        raise UserError(f"{source} has only empty lines: give a sentence a line", DATA)
    return Lines(sources, targets, files).choose(filled)


def lines_of(file: str | Path) -> list[str]:
    """Return the lines of a text in UTF-8 with Unix or Windows line ends. Raises UserError (exit DATA) if empty."""
    text = corpus.read_file(file).replace("\r\n", "\n")
    if not text:
        raise UserError(f"{file} is empty: give a sentence a line", DATA)
    return text.removesuffix("\n").split("\n")


def example(cfg: Config, run: str) -> str:
    """Return a sentence to try: a number word, or the first that the evaluation of the run translated."""
    if cfg.source is None:
        return number_words.speaker(cfg.from_language)(min(cfg.largest, 705))
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(*shlex.split(run), "translations.tsv").read_text("utf-8").split("\n")[1:]
        return next(source for line in lines if (source := line.split("\t")[0].strip()))
    return "A dog runs."


def _number_words(cfg: Config) -> dict[str, Lines]:
    """Return the Lines of number words of each part; no number is in two parts."""
    speakers = [number_words.speaker(language) for language in (cfg.from_language, cfg.to_language)]
    counts = {"train": cfg.numbers, "validation": VALIDATION_NUMBERS, "test": cfg.test_sentences}
    parts = {}
    seen = set()
    for seed, (name, count) in enumerate(counts.items()):
        numbers = number_words.draw(seed, count, cfg.largest, name)
        bar = progress.bar(numbers, desc=f"{name} numbers in words", unit="number", leave=False)
        pairs = [[speak(number) for speak in speakers] for number in bar]
        pairs = [pair for pair in pairs if seen.isdisjoint(pair)]  # num2words writes some numbers alike, as in Turkish
        seen.update(*pairs)
        sources, targets = zip(*pairs, strict=True)
        parts[name] = Lines(list(sources), list(targets), (cfg.from_language, cfg.to_language))
    return parts
