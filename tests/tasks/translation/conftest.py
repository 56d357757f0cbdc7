"""Two small data sets of pairs, and one run that was trained on the first of them, for all tests of translators."""

import pytest

from apformer import cli

PAIRS = {
    "a.en": ["a dog runs.", "a cat sits.", "two dogs run.", "a man sings."] * 40,
    "a.de": ["ein Hund rennt.", "eine Katze sitzt.", "zwei Hunde rennen.", "ein Mann singt."] * 40,
    "b.en": ["a bird flies.", "two cats sit."] * 40,
    "b.de": ["ein Vogel fliegt.", "zwei Katzen sitzen."] * 40,
}
SHAPE = "--d_model 16 --n_heads 2 --n_encoder_layers 1 --n_decoder_layers 1 --d_ff 16 --byte_pairs 270".split()
FEW = "--steps 6 --log_every 2 --save_every 2 --batch_size 4 --longest 40 --widths 40 --warmup_steps 2 --rule adamw"


def train(name, run, *flags):
    """Train a translator on the pairs of a name, which also choose and score it; return the exit code."""
    files = ["--source", f"{name}.en", "--target", f"{name}.de"]
    sets = ["--validation", f"{name}.en", f"{name}.de", "--test", f"{name}.en", f"{name}.de"]
    return cli.main(["train", "--recipe", "translate", *files, *sets, *FEW.split(), *flags, "--run_dir", str(run)])


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    for name, lines in PAIRS.items():
        (path / name).write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def texts(folder, monkeypatch):
    """The folder of the pairs, in which the test runs."""
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def first(texts, without_pictures):
    """The directory of a run that was trained on the pairs a."""
    run = texts / "first"
    if not run.exists():
        assert train("a", run, *SHAPE, "--ema", "0.9", "--accumulate", "2") == 0
    return run
