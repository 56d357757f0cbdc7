"""The programs of README.md and docs/ run, and print what stands under them; all of Markdown is short."""

import contextlib
import importlib
import io
import re
import shlex
import subprocess
from pathlib import Path

import jax
import pytest

from apformer.runs import recipes

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\w+")
NEEDS_RUN = re.compile(r"<!-- needs a run -->\n```.*?^```$", re.MULTILINE | re.DOTALL)  # .ci/run has one
PAGES = sorted(path for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")) if "```python" in path.read_text())


def outputs(text):
    """[(what a block of Python prints, what the block of text under it says, or None)], the programs in one session."""
    names, found, blocks = {"__name__": "docs"}, [], BLOCK.findall(NEEDS_RUN.sub("", text))
    for (kind, program), (below, said) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(program, "docs", "exec"), names)
            found.append((out.getvalue(), said if below == "text" else None))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_program_prints_what_stands_under_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # as a user has it
        found = outputs(path.read_text())
    for printed, said in found:
        assert said is None or printed == said


def test_every_module_of_the_reference_has_an_example():
    missing = []
    for path in ROOT.glob("docs/api/*.md"):
        text = path.read_text()
        words = {word for kind, program in BLOCK.findall(text) if kind == "python" for word in WORD.findall(program)}
        for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE):
            own = vars(importlib.import_module(name)).items()
            if not words & {
                name.split(".")[-1],
                *(key for key, value in own if getattr(value, "__module__", 0) == name),
            }:
                missing.append(name)
    assert missing == []


def test_every_command_that_trains_has_flags_that_there_are():
    """All but the models that `--init_from` names, which are the reader's."""
    commands = []
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        for kind, block in BLOCK.findall(path.read_text()):
            lines = block.replace("\\\n", " ").splitlines() if kind == "bash" else []
            commands += [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("apformer train ")]
    assert len(commands) > 10
    for words in commands:
        for flag in ("--init_from", "--lora_rank", "--coordinator", "--processes", "--process"):
            if flag in words:
                del words[words.index(flag) : words.index(flag) + 2]
        recipes.parse(words)


def test_all_of_markdown_is_short():
    """What git has; an unpacked archive without git has nothing to count."""
    git = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in git.stdout.split() if (ROOT / name).exists()]
    assert sum(len(path.read_text().split()) for path in paths) <= 18_000
    assert len((ROOT / "README.md").read_text().split()) <= 700
