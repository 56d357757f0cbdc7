"""Train a translator on its pairs, and on the translations of other translators (data diversification).

    forward  reads the sources and writes targets        pairs (source, forward(source))
    backward reads the targets and writes sources        pairs (backward(target), target)
    run      learns from these pairs and those of the files

    python experiments/lab/studies/diversify.py train.en train.de --validation val.en val.de --test test.en test.de \\
        --out FOLDER

Nguyen et al. 2020, arXiv 1911.01986. The script trains the runs FOLDER/forward, FOLDER/backward and FOLDER/run. The
first two are the teachers, which never see the test part. With --forward or --backward, the run that you name is the
teacher instead. After a stop, give the same command again: it does not repeat what is done.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tyro.conf import Positional

from apformer import files, flags
from apformer.errors import DATA, USAGE, UserError
from apformer.runs import directory, recipes
from apformer.tasks.translation import corpus

TEACHER_STEPS = 9_000
SHAPE = ("--d_ff", 512, "--dropout", 0.2)  # more pairs need less dropout


@dataclass(frozen=True)
class Diversify:
    """Train a translator on its pairs, and on the translations of other translators."""

    files: Positional[tuple[str, str]]
    """Text files with one sentence a line: the sources, and their translations."""
    validation: tuple[str, str]
    """Two such files that choose the best checkpoint."""
    test: tuple[str, str]
    """Two such files that score the last run."""
    out: str
    """Folder for the three runs and the texts."""
    forward: str | None = None
    """Run that translates the sources. The default is one that is trained first."""
    backward: str | None = None
    """Run that translates the targets. The default is one that is trained first."""
    seed: int = 1
    """Random seed of the three runs."""
    steps: int = 14_000
    """Training steps of the last run."""
    teacher_memory: int = 512
    """Number of training pairs that the forward run looks up for each source that it translates; 0 for none."""
    beams: int = 12
    """Number of beams with which the last run is scored."""
    mbr: int = 8
    """Number of the best beams that are compared; the last run takes the one most like the others. 0 for none."""
    memory: int = 512
    """Number of training pairs that each sentence looks up where the last run is scored; 0 for none."""


def run(args: Diversify) -> None:
    """Train both teachers, translate with them, and train the last run. Raises UserError if a command fails."""
    out = Path(args.out)
    texts = [
        out / f"train.{side}{Path(file).suffix}" for side, file in zip(("source", "target"), args.files, strict=True)
    ]
    search = [word for name in ("beams", "mbr", "memory") for word in (f"--{name}", getattr(args, name))]
    flag_words = words("diversified", texts, args.validation, args.test, args.seed, args.steps, *SHAPE, *search)
    begin(out, args, flag_words)
    for path, side in zip(texts, zip(*pairs(args, out), strict=True), strict=True):
        path.write_text("".join(line + "\n" for line in side), encoding="utf-8")
    train(out / "run", flag_words)


def begin(out: Path, args: Diversify, flag_words: list[str]) -> None:
    """Check the flags and the files, then make the folder and write the flags into it.

    Raises:
        UserError: For a flag or a file that does not fit, and for a folder begun with other flags (exit code USAGE).
    """
    flags.require("teacher_memory", args.teacher_memory >= 0, args, "0 or more")
    recipes.parse(flag_words)
    for teacher in filter(None, (args.forward, args.backward)):
        directory.find(teacher)
    for sides in (args.files, args.validation, args.test):
        corpus.read_files(sides)
    file, flag_values = out / "flags.json", json.loads(json.dumps(vars(args) | {"out": None}))
    if not file.exists():
        files.require_empty(out)
        files.write_json(file, flag_values)
    elif files.read_json(file) != flag_values:
        raise UserError(f"--out {out} was begun with other flags, see {file}: give those, or another --out", USAGE)


def pairs(args: Diversify, out: Path) -> list[tuple[str, str]]:
    """Return the pairs for the last run: those of the files, then those that the teachers translate."""
    sources, targets = map(corpus.lines_of, args.files)
    translations = []
    for name, teacher, step in (("forward", args.forward, 1), ("backward", args.backward, -1)):
        texts, path = args.files[::step], teacher or out / name
        if teacher is None:  # the validation part serves as the test part too
            validation = args.validation[::step]
            train(path, words("translate", texts, validation, validation, args.seed, TEACHER_STEPS))
        into = out / f"{name}{Path(texts[1]).suffix}"
        translations.append(translate(path, texts[0], into, args.teacher_memory if name == "forward" else 0))
    forward, backward = translations
    return (
        list(zip(sources, targets, strict=True))
        + drop_unbalanced(sources, forward)
        + drop_unbalanced(backward, targets)
    )


def words(
    recipe: str, texts: Sequence, validation: Sequence, test: Sequence, seed: int, steps: int, *more: object
) -> list[str]:
    """Return the flags of `apformer train` for a run."""
    data = ["--source", texts[0], "--target", texts[1], "--validation", *validation, "--test", *test]
    return list(map(str, ["--recipe", recipe, *data, "--seed", seed, "--steps", steps, *more, "--too_long", "cut"]))


def train(path: Path, flag_words: list[str]) -> None:
    """Train a run if it does not exist; resume it if it was stopped."""
    if not (path / "config.json").exists():
        command("apformer", "train", *flag_words, "--run_dir", path)
    elif not (path / "evaluation.json").exists():
        command("apformer", "resume", path)


def translate(run: Path | str, file: str, into: Path, memory: int) -> list[str]:
    """Return the translations of the lines of `file` by a run, which are written to `into` unless it exists."""
    if not into.exists():
        part = into.with_name(into.name + ".part")
        with part.open("w", encoding="utf-8") as lines:
            command("apformer_lab.translate", run, "--file", file, "--memory", memory, stdout=lines)
        part.replace(into)
    translations, sources = corpus.lines_of(into), corpus.lines_of(file)
    if len(translations) != len(sources):
        fault = f"{into} has {len(translations):,} lines and {file} has {len(sources):,}"
        raise UserError(f"{fault}, so the text has changed: give another --out", DATA)
    return translations


def drop_unbalanced(sources: list[str], targets: list[str]) -> list[tuple[str, str]]:
    """Return the pairs without those of which one side is far longer, where a teacher has repeated itself."""
    found = list(zip(sources, targets, strict=True))
    balanced = [pair for pair in found if max(map(len, pair)) <= 2 * min(map(len, pair)) + 20]
    print(
        f"{len(found) - len(balanced):,} of {len(found):,} pairs are left out: one side is far longer", file=sys.stderr
    )
    return balanced


def command(module: str, *args: object, stdout: IO[str] | None = None) -> None:
    """Run a command, which prints its own errors. Raises UserError with its exit code if it fails."""
    call = [module, *map(str, args)]
    print(*call, file=sys.stderr, flush=True)
    code = subprocess.run([sys.executable, "-m", *call], stdout=stdout).returncode
    if code:
        fault = f"{module} ended with exit code {code}: see what it said, and give the same command again"
        raise UserError(fault, abs(code) + 128 * (code < 0))


if __name__ == "__main__":
    sys.exit(flags.script("diversify.py", Diversify, run))
