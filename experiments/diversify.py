"""Train a translator on its pairs, and on what two others of its kind say of them (data diversification).

    forward  reads the sources and writes targets      pairs (source, forward(source))
    backward reads the targets and writes sources      pairs (backward(target), target)
    run      learns from these pairs and those of the files: three times as many, and no other text

    python experiments/diversify.py train.en train.de --validation val.en val.de --test test.en test.de --out FOLDER

Nguyen et al. 2020, arXiv 1911.01986. The three runs are FOLDER/forward, FOLDER/backward and FOLDER/run. What is done is
not done again: after a stop, give the same command. No teacher sees the test part. With --forward and --backward, runs
that are there already say it, as many as you like: so a last run may teach the next.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from apformer import flags
from apformer.errors import UserError

APFORMER = [sys.executable, "-m", "apformer"]


@dataclass(frozen=True)
class Diversify:
    """Train a translator on its pairs, and on what two others of its kind say of them."""

    files: Positional[tuple[str, str]]
    """Text files with one sentence a line: the sources, and their translations."""
    validation: tuple[str, str]
    """Two such files that choose the best checkpoint."""
    test: tuple[str, str]
    """Two such files that score the last run."""
    out: str
    """Folder for the three runs and the texts."""
    forward: tuple[str, ...] = ()
    """Runs that translate the sources. The default is one that is trained first."""
    backward: tuple[str, ...] = ()
    """Runs that translate the targets. The default is one that is trained first."""
    seed: int = 1
    """Random seed of the three runs."""
    teacher_steps: int = 18_000
    """Training steps of the forward and the backward run."""
    steps: int = 18_000
    """Training steps of the last run."""
    init_from: str | None = None
    """Run whose model the last run begins with. The default is a new model."""
    learning_rate: float | None = None
    """Peak learning rate of the last run. The default is that of the recipe."""
    d_ff: int | None = None
    """Width of the feed-forward layers of the last run. The default is 512, or that of --init_from."""
    dropout: float = 0.2
    """Dropout of the last run; three times as many pairs want less of it."""


def run(args):
    """Train both teachers, have them translate, train the last run. Raises UserError where a command fails."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    source, target = map(lines_of, args.files)
    pairs = list(zip(source, target, strict=True))
    for told in told_by("forward", args.forward, args.files, args.validation, args):
        pairs += kept(source, told)
    for told in told_by("backward", args.backward, args.files[::-1], args.validation[::-1], args):
        pairs += kept(told, target)
    more = [out / f"train{Path(file).suffix}" for file in args.files]
    for path, side in zip(more, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(line + "\n" for line in side), encoding="utf-8")
    asked = {name: getattr(args, name) for name in ("init_from", "learning_rate", "d_ff", "dropout")}
    if args.init_from is None and args.d_ff is None:
        asked["d_ff"] = 512
    flags = [word for name, value in asked.items() if value is not None for word in (f"--{name}", value)]
    train(out / "run", more, args.validation, args.test, args.seed, args.steps, *flags, "--too_long", "cut")


def told_by(name, runs, files, validation, args):
    """The lines that each of these runs makes of the first file; of one that is trained now, if there is none."""
    out = Path(args.out)
    if not runs:
        train(out / name, files, validation, validation, args.seed, args.teacher_steps)
    names = [name] if len(runs) < 2 else [f"{name}{number}" for number in range(len(runs))]
    for run, text in zip(runs or (out / name,), names, strict=True):
        yield lines_of(translated(run, files[0], out / f"{text}{Path(files[1]).suffix}"))


def train(path, files, validation, test, seed, steps, *others):
    """A run, unless it is there; one that was stopped goes on."""
    if (path / "evaluation.json").exists():
        return print(f"{path} is there")
    if path.exists():
        return command("resume", path)
    pairs = ["--source", files[0], "--target", files[1], "--validation", *validation, "--test", *test]
    command("train", "--recipe", "translate", *pairs, "--seed", seed, "--steps", steps, *others, "--run_dir", path)


def translated(path, file, into):
    """The file `into`, of what a run says of each line of `file`, unless it is there."""
    if not into.exists():
        part = into.with_name(into.name + ".part")
        with part.open("w", encoding="utf-8") as lines:
            command("translate", path, "--file", file, stdout=lines)
        part.replace(into)
    return into


def lines_of(file):
    """The lines of a text."""
    return Path(file).read_text(encoding="utf-8").removesuffix("\n").split("\n")


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
    if code:
        raise UserError(f"apformer {words[0]} ended with exit code {code}: see what it said", code)


def main():
    """Run; the exit code of the process."""
    return flags.script("diversify.py", Diversify, run)


if __name__ == "__main__":
    sys.exit(main())
