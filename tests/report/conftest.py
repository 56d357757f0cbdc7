"""One browser for all tests that open a page."""

import json
import shutil
import subprocess
from pathlib import Path
from threading import Timer

import pytest

from apformer.report import template

PAGE = Path(__file__).parents[1] / "page"
SOURCE = Path(template.__file__).parent / "page"
PATIENCE = 300  # seconds


@pytest.fixture(scope="session")
def browse():
    """A function (run, *steps) to what a browser has seen that opened the page of a run and took these steps.

    Skips without Chromium, node, or `npm ci` in apformer/report/page.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    missing = [
        *([] if browser else ["Chromium"]),
        *([] if shutil.which("node") else ["node"]),
        *([] if (SOURCE / "node_modules" / "playwright-core").is_dir() else ["`npm ci` in apformer/report/page"]),
    ]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    process = None

    def browse(run, *steps):
        nonlocal process
        if process is None or process.returncode is not None:
            pipe = subprocess.PIPE
            command = ["node", str(PAGE / "browser.mjs"), browser]
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        late = Timer(PATIENCE, process.kill)
        late.start()
        process.stdin.write(json.dumps({"page": str(run / "report.html"), "steps": ["open", *steps]}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        late.cancel()
        assert answer, process.communicate()[1]  # it has ended
        seen = json.loads(answer)
        assert seen["errors"] == [] and seen["requests"] == []
        assert not seen["open"]["wide"], "the page is wider than its window"
        return seen

    yield browse
    if process is not None:
        process.communicate()
