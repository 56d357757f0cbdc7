"""Flags are the fields of dataclasses; whatever is wrong with them is one sentence."""

import dataclasses
import importlib
import io
import re
import sys
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from tyro.conf import Positional

from apformer import cli, flags, tasks
from apformer.errors import USAGE, UserError
from apformer.files import FilePath
from apformer.settings import Training
from tests.helpers.refusals import refused


@dataclass(frozen=True)
class Inner:
    d_model: int = 64
    """Width."""
    dropout: float = 0.0
    """Share."""

    def __post_init__(self):
        if self.d_model % 2:
            raise ValueError(f"d_model {self.d_model} is odd")


@dataclass(frozen=True)
class Outer:
    """A test."""

    inner: Inner = Inner()
    learning_rate: float = 0.1
    """Rate."""
    mode: Literal["slow", "fast"] = "slow"
    """How."""
    window: int | None = None
    """Tokens."""
    bias: bool = False
    """Add one."""
    words: str | None = None
    """Words."""
    run_dir: FilePath | None = None
    """Folder."""
    pair: tuple[FilePath, FilePath] | None = None
    """Files."""
    few: tuple[int, ...] | None = None


def parse(*args):
    return flags.parse(Outer, list(args), "apformer test")


def test_flags_are_flat_and_take_underscores_or_hyphens():
    expected = Outer(Inner(32), 0.5, "fast", 7, True)
    assert parse("--d_model", "32", "--learning_rate", "5e-1", "--mode", "fast", "--window", "7", "--bias") == expected
    assert parse("--d-model=32", "--learning-rate=0.5", "--mode=fast", "--window=7", "--bias") == expected


def test_a_value_may_begin_with_a_dash_and_words_may_follow_flags():
    @dataclass(frozen=True)
    class Text:
        words: Positional[tuple[str, ...]] = ()
        prompt: str = ""
        stop: str = ""
        tokens: int = 5

    found = flags.parse(Text, ["a", "--prompt", "-5", "--stop", "---", "--tokens", "-3", "b"], "program")
    assert found == Text(("a", "b"), "-5", "---", -3)
    with pytest.raises(UserError, match="--prompt"):
        flags.parse(Text, ["--prompt", "--tokens", "3"], "program")


def test_the_home_directory_is_expanded_in_paths_alone(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    found = parse("--run_dir=~/run", "--pair", "~/a", "~", "--words=~/words")
    assert (found.run_dir, found.pair, found.words) == ("/home/ada/run", ("/home/ada/a", "/home/ada"), "~/words")
    assert flags.first(Outer, ["--run_dir=~/run", "--other"], "apformer test").run_dir == "/home/ada/run"


def test_every_flag_that_is_a_path_is_known_as_one():
    others = {"recipe", "prompt", "stop", "words", "from_language", "to_language", "run_and_prompt", "run_and_words"}
    others |= {"run_and_sentence", "text", "task", "architecture", "characters"}  # `text` of `tokenize` is one itself
    commands = [importlib.import_module(f"apformer.commands.{name}") for name in cli.commands()]
    kinds = [kind for module in commands for kind in vars(module).values() if dataclasses.is_dataclass(kind)]
    kinds += [kind for task in tasks.names() for kind in (tasks.load(task).Config, tasks.load(task).Options)]
    fields = [
        field for kind in [*kinds, Training] for field in dataclasses.fields(kind) if not flags.is_path(field.type)
    ]
    assert {field.name for field in fields if "str" in str(field.type) and "Literal" not in str(field.type)} == others


def test_what_is_not_given_stays_as_the_default_has_it():
    assert parse() == Outer()
    assert parse("--dropout", "0.5") == replace(Outer(), inner=replace(Outer().inner, dropout=0.5))
    assert parse("--window", "None").window is None


@pytest.mark.parametrize("width", ["24", "200"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("args", "pattern"),
    [
        (["--d_modle", "32"], r"unrecognized options: --d_modle, 32; did you mean --d_model\?"),
        (["--qwertyuiop"], "unrecognized options: --qwertyuiop; see"),
        (["a", "b"], "no flag takes the words a b; see"),
        (["--d_model", "x"], "^--d_model x is not a whole number"),
        (["--window", "3.5"], "^--window 3.5 is not a whole number"),
        (["--dropout", "much"], "^--dropout much is not a number"),
        (["--d_model"], "^--d_model wants a value"),
        (["--pair", "a"], "^--pair wants two values"),
        (["--few", "1", "x"], "^--few 1, x are not all whole numbers"),
        (["--mode", "fsat"], "^--mode fsat is none of slow, fast;"),
        (["--d_model", "3"], "d_model 3 is odd"),
    ],
)
def test_a_fault_is_one_sentence(args, pattern, width, encoding, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)  # tyro fits its box into the terminal, and draws it as the encoding allows
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with refused(USAGE, pattern) as caught:
        parse(*args)
    assert re.fullmatch(r"[^\n│╭─]+; .*see `apformer test --help`", str(caught.value))
    assert out.tell() == err.tell() == 0


@pytest.mark.parametrize("words", (["--compilation_cache", "F"], ["--compilation-cache=F"]))
@pytest.mark.parametrize("place", (0, 1, 2))
def test_a_flag_of_every_command_stands_anywhere(words, place):
    args = ["doctor", "--json"]
    assert flags.cut([*args[:place], *words, *args[place:]], "compilation_cache", "a folder") == (args, "F")
    with pytest.raises(UserError, match="^--compilation_cache wants a value: give a folder"):
        flags.cut([*args, words[0].partition("=")[0]], "compilation_cache", "a folder")
