"""Train a translator on its pairs, and on the translations of other translators (data diversification).

    forward  reads the sources and writes targets                          pairs (source, forward(source))
    backward reads the targets and writes sources                          pairs (backward(target), target)
    draws    other sources of each target, drawn by the backward run       pairs (drawn, forward(drawn))
    run      learns from these pairs and those of the files, and from no other text

    python experiments/diversify.py train.en train.de --validation val.en val.de --test test.en test.de --out FOLDER

Nguyen et al. 2020, arXiv 1911.01986. The script trains the runs FOLDER/forward, FOLDER/backward and FOLDER/run. The
teachers never see the test part. With --forward and --backward, the runs that you name are the teachers instead. To
translate together they need one vocabulary, such as last runs have that learned from the same texts. After a stop, give
the same command: it does not repeat what is done.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from apformer import files, flags
from apformer.errors import DATA, USAGE, UserError
from apformer.runs import directory, recipes
from apformer.tasks.translation import corpus

APFORMER = [sys.executable, "-m", "apformer"]
TOGETHER = ("--beams", 4, "--mbr", 0)  # few beams, none compared: each run of an ensemble adds its whole time
DRAW = ("--temperature", 0.75)  # with 1, smoothed labels would make one token in ten any token at all


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
    forward: tuple[str, ...] = ()
    """Runs that translate the sources together, as an ensemble. The default is one that is trained first."""
    backward: tuple[str, ...] = ()
    """Runs that translate the targets together. The default is one that is trained first."""
    draws: int = 0
    """Number of sources that the backward run draws for each target. The forward run translates them."""
    seed: int = 1
    """Random seed of the three runs."""
    teacher_steps: int = 9_000
    """Training steps of the forward and the backward run."""
    steps: int = 14_000
    """Training steps of the last run."""
    init_from: str | None = None
    """Run whose model the last run begins with. The default is a new model."""
    learning_rate: float | None = None
    """Peak learning rate of the last run. The default is that of the recipe."""
    d_ff: int | None = None
    """Width of the feed-forward layers of the last run. The default is 512, or that of --init_from."""
    dropout: float = 0.2
    """Dropout of the last run: more pairs want less of it."""
    teacher_memory: int | None = None
    """Number of training pairs that the forward run looks up for each source that it translates; 0 for none. The
    default is 512, and 0 with several --forward."""
    beams: int = 12
    """Number of beams with which the last run is scored."""
    mbr: int = 8
    """Number of the best beams of which a translation of the last run is the one that agrees most with the others; 0
    for the best beam."""
    memory: int = 512
    """Number of training pairs that each sentence looks up where the last run is scored; 0 for none."""


def run(args):
    """Train both teachers, have them translate, train the last run. Raises UserError where a command fails."""
    out = Path(args.out)
    texts = texts_of("train", args)
    names = ("init_from", "learning_rate", "d_ff", "dropout", "beams", "mbr", "memory")
    asked = {name: getattr(args, name) for name in names}
    if args.init_from is None and args.d_ff is None:
        asked["d_ff"] = 512
    given = [word for name, value in asked.items() if value is not None for word in (f"--{name}", value)]
    last = words_of(texts, args.validation, args.test, args.seed, args.steps, *given)
    begin(out, args, last)
    for path, side in zip(texts, zip(*pairs_of(args), strict=True), strict=True):
        path.write_text("".join(line + "\n" for line in side), encoding="utf-8")
    train(out / "run", last)


def begin(out, args, last):
    """Make the folder and keep the flags in it, once they are known to be right.

    last: the words of the command that trains the last run. Raises UserError for a flag or a file that does not fit,
    and for a folder that holds what other flags made (exit USAGE).
    """
    flags.require("draws", args.draws >= 0, args, "0 or more")
    flags.require("teacher_memory", args.teacher_memory is None or args.teacher_memory >= 0, args, "0 or more")
    if args.teacher_memory and len(args.forward) > 1:
        raise UserError("--teacher_memory serves one forward run alone: name one, or drop it", USAGE)
    flags.require("teacher_steps", args.teacher_steps > 0, args, "1 or more")
    recipes.parse(last)
    for run in (*args.forward, *args.backward):
        directory.find(run)
    for pair in (args.files, args.validation, args.test):
        corpus.read_files(pair)
    file, asked = out / "asked.json", json.loads(json.dumps(vars(args) | {"out": None}))
    if not file.exists():
        files.require_empty(out)
        files.write_json(file, asked)
    elif files.read_json(file) != asked:
        raise UserError(f"--out {out} was begun with other flags, see {file}: give those, or another --out", USAGE)


def texts_of(name, args):
    """The texts that hold pairs of a kind: of the sources, of the targets."""
    sides = zip(("source", "target"), args.files, strict=True)  # two files may have one suffix
    return [Path(args.out) / f"{name}.{side}{Path(file).suffix}" for side, file in sides]


def pairs_of(args):
    """All pairs for the last run, those of the files first."""
    source, target = map(corpus.lines_of, args.files)
    found = list(zip(source, target, strict=True))
    forward = args.forward or [teacher("forward", args.files, args.validation, args)]
    by_default = 512 if len(forward) == 1 else 0
    memory = ("--memory", by_default if args.teacher_memory is None else args.teacher_memory)
    found += kept(source, told(forward, args.files[0], texts_of("forward", args)[1], *memory))
    backward = args.backward or [teacher("backward", args.files[::-1], args.validation[::-1], args)]
    found += kept(told(backward, args.files[1], texts_of("backward", args)[0], "--memory", 0), target)
    for seed in range(1, args.draws + 1):
        drawn, answers = texts_of(f"draw{seed}", args)
        found += kept(
            told(backward, args.files[1], drawn, *DRAW, "--memory", 0, "--seed", seed),
            told(forward, drawn, answers, *memory),
        )
    return found


def teacher(name, texts, validation, args):
    """A run that is trained, and validated in place of a test: no teacher sees the test part."""
    path = Path(args.out) / name
    train(path, words_of(texts, validation, validation, args.seed, args.teacher_steps))
    return path


def words_of(texts, validation, test, seed, steps, *others):
    """The flags of `apformer train` for a run."""
    pairs = ["--source", texts[0], "--target", texts[1], "--validation", *validation, "--test", *test]
    words = ["--recipe", "translate", *pairs, "--seed", seed, "--steps", steps, *others, "--too_long", "cut"]
    return [str(word) for word in words]


def train(path, words):
    """A run, unless it is there; one that was stopped goes on."""
    if (path / "evaluation.json").exists():
        return print(f"{path} is there")
    if (path / "config.json").exists():
        return command("resume", path)
    command("train", *words, "--run_dir", path)


def told(runs, file, into, *others):
    """The lines of the file `into`, which runs together write of each line of `file`, unless it is there."""
    if not into.exists():
        part = into.with_name(into.name + ".part")
        first, *more = runs
        together = [word for run in more for word in ("--ensemble", run)]
        with part.open("w", encoding="utf-8") as lines:
            command("translate", first, "--file", file, *together, *(TOGETHER if more else ()), *others, stdout=lines)
        part.replace(into)
    lines, asked = corpus.lines_of(into), corpus.lines_of(file)
    if len(lines) != len(asked):
        fault = f"{into} has {len(lines):,} lines and {file} has {len(asked):,}"
        raise UserError(f"{fault}, so the text has changed: give another --out", DATA)
    return lines


def kept(sources, targets):
    """The pairs but those where one side is far longer: there a teacher has said the same again and again."""
    pairs = list(zip(sources, targets, strict=True))
    alike = [pair for pair in pairs if max(map(len, pair)) <= 2 * min(map(len, pair)) + 20]
    print(f"{len(pairs) - len(alike):,} of {len(pairs):,} pairs are left out: one side is far longer", file=sys.stderr)
    return alike


def command(*words, **streams):
    """Run an `apformer` command. Raises UserError, with its exit code, if it fails; it has said why."""
    words = [str(word) for word in words]
    print("apformer", *words, file=sys.stderr, flush=True)
    code = subprocess.run([*APFORMER, *words], **streams).returncode
    if code < 0:
        raise UserError(f"apformer {words[0]} was killed by signal {-code}: give the same command again", 128 - code)
    if code:
        raise UserError(f"apformer {words[0]} ended with exit code {code}: see what it said", code)


def main():
    """Run; the exit code of the process."""
    return flags.script("diversify.py", Diversify, run)


if __name__ == "__main__":
    sys.exit(main())
