"""A run of hostile names and texts, opened in a browser, runs nothing, loads nothing, and shows them as they are."""

import math
import re
import shutil
from itertools import cycle

import numpy as np
import pytest

from apformer.report import template
from tests.report.test_page import read

pytestmark = pytest.mark.long

IMAGE = "<img src=x onerror=canary('image')>"
HOSTILE = (
    "</script><script>canary('script')</script>",
    IMAGE,
    "<svg onload=canary('drawing')></svg>",
    "\"><iframe src='javascript:canary(7)'></iframe>",
    "javascript:canary('address')",
    "<!-- the weights --> <!-- the run --> <!--<script>",
    "${canary('template')} {{canary('braces')}} $& $1 \\u003cimg src=x onerror=canary(8)\\u003e",
    "\u2028canary('line')\u2029 \u202eright to left\u202c \0 ]]> &lt;b&gt; %3Cscript%3E",
    "__proto__ constructor hasOwnProperty toString",
    "half \ud800 of a character",
)
SAID = {"hostile": HOSTILE[0], "__proto__": {"hostile": 1}} | {line: line for line in HOSTILE}
PROGRAM = "architecture model leaves kind plays judges part byte_pairs".split()  # what the page computes by


def spoil(value, lines):
    """Put a hostile line in the place of every text of a run."""
    if isinstance(value, str):
        return next(lines)
    if isinstance(value, list):
        return [spoil(each, lines) for each in value]
    if isinstance(value, dict):
        return {name: each if name in PROGRAM else spoil(each, lines) for name, each in value.items()}
    return value


def write_hostile(page):
    """Write a page anew with hostile texts everywhere, and without its policy, which would hide a fault."""
    data, weights = read(page)
    hostile = spoil(data, cycle(HOSTILE)) | {"name": IMAGE}
    hostile |= dict.fromkeys(("versions", "source", "missing"), SAID)
    hostile["task"]["prompt"]["terms"] = data["task"]["prompt"]["terms"]
    numbers = {"certified": True, "contexts": 1, "errors": 0, "smallest_margin": None}
    hostile["certificate"] = SAID | numbers | {"claim": " ".join(HOSTILE), "witnesses": [{"witness": IMAGE}]}
    sizes = [math.prod(leaf["shape"]) for leaf in data["leaves"]]
    parts = np.split(weights, np.cumsum(sizes)[:-1])
    leaves = {leaf["name"]: part.reshape(leaf["shape"]) for leaf, part in zip(data["leaves"], parts, strict=True)}
    unguarded, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", template.fill(hostile, leaves))
    assert count == 1 and unguarded.count("<script") == 3
    page.write_text(unguarded, "utf-8")


@pytest.mark.parametrize("kind", ["progressions", "pairs"])
def test_a_hostile_run_runs_nothing_in_the_browser(browse, made_run, kind, tmp_path):
    run = shutil.copytree(made_run(kind), tmp_path / "run")
    write_hostile(run / "report.html")
    seen = browse(run, "poke", "canaries")["canaries"]
    assert seen["ran"] == [] and seen["scripts"] == 3 and not seen["polluted"]
    assert seen["strange"] == seen["listeners"] == seen["addresses"] == []
    assert IMAGE in seen["title"]
    assert all(line in seen["text"] for line in HOSTILE)


def test_a_canary_that_runs_is_seen_and_the_policy_lets_none_run(browse, made_run, tmp_path):
    run = shutil.copytree(made_run("progressions"), tmp_path / "run")
    page = (run / "report.html").read_text("utf-8")
    page = page.replace("</body>", "<script>canary('planted')</script></body>")
    (run / "report.html").write_text(page, "utf-8")
    with pytest.raises(AssertionError, match="Content Security Policy"):
        browse(run, "canaries")
    (run / "report.html").write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page), "utf-8")
    seen = browse(run, "canaries")["canaries"]
    assert seen["ran"] == ["planted"] and seen["scripts"] == 4
