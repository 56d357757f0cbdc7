"""Pages of the site that stand elsewhere, tables of the records, and the command line as `--help` says it."""

import importlib
import posixpath
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "experiments"))
tables = importlib.import_module("tables")
sys.path.pop(0)
PAGES = {"experiments/README.md": "results.md", "experiments/LOG.md": "log.md"}
PROGRAM = re.compile(r"<!-- program: (\S+) -->")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]*)(#[^)]*)?\)")


def on_files(files, config):
    """Add the pages and the figures they show."""
    for source, page in PAGES.items():
        text = LINK.sub(partial(_link, posixpath.dirname(source)), (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    for path in (ROOT / "experiments/figures").glob("*.png"):
        files.append(File.generated(config, f"figures/{path.name}", content=path.read_bytes()))
    files.append(File.generated(config, "command-line.md", content=command_line()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Write the tables of a page from the records, and the files that it names."""
    markdown = PROGRAM.sub(lambda found: f"```python\n{(ROOT / found[1]).read_text()}```", markdown)
    return tables.write(markdown, results=tables.full_table)


def _link(folder, found):
    """A link to another page of the site; of what the site does not have, the words alone."""
    path = posixpath.normpath(posixpath.join(folder, found[2]))
    target = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
    return f"[{found[1]}]({target}{found[3] or ''})" if target else found[1]


def command_line():
    """The page of the command line: `apformer --help`, then each command's."""
    text = _help()
    parts = ["# Command line", f"```text\n{text}```"]
    for name in re.findall(r"^  (\w+) {2,}", text, re.MULTILINE):
        parts += [f"## apformer {name}", f"```text\n{_help(name)}```"]
    return "\n\n".join(parts) + "\n"


def _help(*words):
    command = [sys.executable, "-m", "apformer", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
