"""Pages of the site that stand elsewhere in the repository, and the command line as `--help` says it."""

import posixpath
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {
    "experiments/README.md": "results.md",
    "experiments/PROOF.md": "proof.md",
    "experiments/BOARD.md": "board.md",
    "experiments/RELIABILITY.md": "reliability.md",
    "experiments/LOG.md": "log.md",
    "experiments/bench/README.md": "speed.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]*)(#[^)]*)?\)")
FIGURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)")


def on_files(files, config):
    """Add the pages and the figures they show."""
    figures = {"figures/page.png": ROOT / "experiments/figures/page.png"}
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        figures |= {_figure(name): (ROOT / source).parent / name for _, name in FIGURE.findall(text)}
        text = FIGURE.sub(lambda found: f"![{found[1]}]({_figure(found[2])})", text)
        text = LINK.sub(partial(_link, posixpath.dirname(source)), text)
        files.append(File.generated(config, page, content=text))
    for name, path in figures.items():
        files.append(File.generated(config, name, content=path.read_bytes()))
    files.append(File.generated(config, "command-line.md", content=command_line()))
    return files


def _figure(name):
    return f"figures/{Path(name).name}"


def _link(folder, found):
    """A link to another page of the site; of what the site does not have, the words alone."""
    target = PAGES.get(posixpath.normpath(posixpath.join(folder, found[2])))
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
