"""The programs of README.md and docs/ run, and print what stands under them; all of Markdown is short."""

import ast
import contextlib
import io
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from apformer.runs import recipes

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(path for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")) if "```python" in path.read_text())


def outputs(text):
    """[(what a block of Python prints, what the block of text under it says, or None)], the programs in one session."""
    names = {"__name__": "docs"}
    found = []
    blocks = BLOCK.findall(text)
    for (kind, program), (below, said) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(program, "docs", "exec"), names)
            found.append((out.getvalue(), said if below == "text" else None))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_program_prints_what_stands_under_it(path, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    for word, kind in (("runs.load(", "progressions"), ("translation.translate(", "pairs")):
        if word in path.read_text():
            (tmp_path / "runs").mkdir()
            (tmp_path / "runs/latest").symlink_to(request.getfixturevalue("made_run")(kind))
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # as a user has it
        found = outputs(path.read_text())
    for printed, said in found:
        assert said is None or printed == said


def test_every_public_name_of_the_reference_has_an_example():
    """A program of its page says `module.name`, or imports the name; a page lists the members that it shows."""
    shown = 0
    missing = []
    for path in ROOT.glob("docs/api/*.md"):
        text = path.read_text()
        programs = [ast.parse(program) for kind, program in BLOCK.findall(text) if kind == "python"]
        nodes = [node for program in programs for node in ast.walk(program)]
        of = {
            name.asname or name.name: f"{node.module}.{name.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        used = {of.get(node.id) for node in nodes if isinstance(node, ast.Name)} | {
            f"{of.get(node.value.id)}.{node.attr}"
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        members = re.findall(r"^::: ([\w.]+)\n    options:\n      members: (.*)$", text, re.MULTILINE)
        assert len(members) == text.count("\n:::"), f"{path.name}: a module without a list of members"
        for module, names in members:
            public = [module] if names == "true" else [f"{module}.{name}" for name in re.findall(r"\w+", names)]
            shown += len(public)
            missing += [name for name in public if name not in used or not pkgutil.resolve_name(name).__doc__]
    assert missing == [] and shown > 100


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


def test_completion_knows_commands_and_flags_recipes_and_values():
    function = re.search(r"^_apformer.*?^}$", (ROOT / "docs/your-own.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    program = f"""apformer() {{ {sys.executable} -m apformer "$@"; }}
        {function}
        for line in neigh --ver "train --recipe te" "train --recipe text --lora_r" "export runs/a --to st"; do
            COMP_WORDS=(apformer $line) COMP_CWORD=$(wc -w <<<"$line")
            _apformer apformer "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"; echo $COMPREPLY
        done"""
    done = subprocess.check_output(["bash", "-c", program], text=True)
    assert done.split() == ["neighbours", "--version", "text", "--lora_rank", "stablehlo"]


def test_all_of_markdown_is_short():
    """What git has; an unpacked archive without git has nothing to count."""
    git = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in git.stdout.split() if (ROOT / name).exists()]
    assert sum(len(path.read_text().split()) for path in paths) <= 18_000
    assert len((ROOT / "README.md").read_text().split()) <= 700
