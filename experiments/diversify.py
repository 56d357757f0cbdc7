"""Train a translator on its pairs, and on what others of its kind say of them (data diversification).

    forward  reads the sources and writes targets      pairs (source, forward(source))
    backward reads the targets and writes sources      pairs (backward(target), target)
    draws    other sources of each target, at random   pairs (drawn, forward(drawn))
    run      learns from these pairs and those of the files, and from no other text

    python experiments/diversify.py train.en train.de --validation val.en val.de --test test.en test.de --out FOLDER

Nguyen et al. 2020, arXiv 1911.01986. The script trains the runs FOLDER/forward, FOLDER/backward and FOLDER/run. The
teachers never see the test part. With --forward and --backward, the runs that you name are the teachers instead: so the
last runs of several seeds can teach the next. After a stop, give the same command: it does not repeat what is done.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from apformer import files, flags
from apformer.errors import USAGE, UserError

APFORMER = [sys.executable, "-m", "apformer"]
TOGETHER = ("--beams", 4)  # several runs take several times as long
DRAW = ("--temperature", 0.75)  # with 1, smoothed labels would make one token in ten any token at all


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
    """Runs that translate the sources together, as an ensemble. The default is one that is trained first."""
    backward: tuple[str, ...] = ()
    """Runs that translate the targets together. The default is one that is trained first."""
    draws: int = 0
    """Number of sources that the backward run draws for each target. The forward run translates them."""
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
    """Dropout of the last run: more pairs want less of it."""


def run(args):
    """Train both teachers, have them translate, train the last run. Raises UserError where a command fails."""
    out = Path(args.out)
    begin(out, args)
    sides = zip(*pairs_of(out, args), strict=True)
    texts = [out / f"train{Path(file).suffix}" for file in args.files]
    for path, side in zip(texts, sides, strict=True):
        path.write_text("".join(line + "\n" for line in side), encoding="utf-8")
    asked = {name: getattr(args, name) for name in ("init_from", "learning_rate", "d_ff", "dropout")}
    if args.init_from is None and args.d_ff is None:
        asked["d_ff"] = 512
    given = [word for name, value in asked.items() if value is not None for word in (f"--{name}", value)]
    train(out / "run", texts, args.validation, args.test, args.seed, args.steps, *given, "--too_long", "cut")


def pairs_of(out, args):
    """All pairs for the last run, those of the files first."""
    source, target = map(lines_of, args.files)
    of_source, of_target = (Path(file).suffix for file in args.files)
    forward = args.forward or [teacher("forward", args.files, args.validation, args)]
    found = list(zip(source, target, strict=True))
    found += kept(source, lines_of(translated(forward, args.files[0], out / f"forward{of_target}")))
    backward = args.backward or [teacher("backward", args.files[::-1], args.validation[::-1], args)]
    found += kept(lines_of(translated(backward, args.files[1], out / f"backward{of_source}")), target)
    for seed in range(1, args.draws + 1):
        drawn = translated(backward, args.files[1], out / f"draw{seed}{of_source}", *DRAW, "--seed", seed)
        found += kept(lines_of(drawn), lines_of(translated(forward, drawn, out / f"draw{seed}{of_target}")))
    return found


def begin(out, args):
    """Make the folder, and keep the flags in it. Raises UserError (exit USAGE) if it holds what other flags made."""
    flags.require("draws", args.draws >= 0, args, "0 or more")
    out.mkdir(parents=True, exist_ok=True)
    asked, file = json.loads(json.dumps(vars(args))), out / "asked.json"
    if file.exists() and files.read_json(file) != asked:
        raise UserError(f"--out {out} holds texts that other flags made, see {file}: give another --out", USAGE)
    files.write_json(file, asked)


def teacher(name, texts, validation, args):
    """A run that is trained, and validated in place of a test: no teacher sees the test part."""
    path = Path(args.out) / name
    train(path, texts, validation, validation, args.seed, args.teacher_steps)
    return path


def train(path, texts, validation, test, seed, steps, *others):
    """A run, unless it is there; one that was stopped goes on."""
    if (path / "evaluation.json").exists():
        return print(f"{path} is there")
    if path.exists():
        return command("resume", path)
    pairs = ["--source", texts[0], "--target", texts[1], "--validation", *validation, "--test", *test]
    command("train", "--recipe", "translate", *pairs, "--seed", seed, "--steps", steps, *others, "--run_dir", path)


def translated(runs, file, into, *others):
    """The file `into`, of what runs together say of each line of `file`, unless it is there."""
    if not into.exists():
        part = into.with_name(into.name + ".part")
        first, *more = runs
        together = ["--ensemble", *more, *TOGETHER] if more else []
        with part.open("w", encoding="utf-8") as lines:
            command("translate", first, "--file", file, *together, *others, stdout=lines)
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
