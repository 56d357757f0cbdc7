"""Compare the JavaScript model in a run's page with JAX: logits of every character of 1,000 prompts.

    python experiments/bench/page_logits.py RUN        a run of progressions, with its report.html; needs node

Prompts are the beginnings of held-out progressions, cut anywhere after the second term.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import jax
import numpy as np
from tyro.conf import Positional

from apformer import flags
from apformer.errors import USAGE, UserError
from apformer.runs import directory, restore
from apformer.settings import architecture_of
from apformer.tasks.progressions import generator, training

PROMPTS, TERMS = 1000, 5
IN_NODE = """
const [page, prompts] = [process.argv[1], process.argv[2]].map((file) => require("fs").readFileSync(file, "utf8"));
const scripts = [...page.matchAll(/<script>([\\s\\S]*?)<\\/script>/g)];
require("vm").runInThisContext(scripts[scripts.length - 1][1]);
const block = (id) => page.match(new RegExp(`<script id="${id}"[^>]*>([\\\\s\\\\S]*?)</script>`))[1];
const { apply, readParams } = globalThis.apformer;
const run = JSON.parse(block("run"));
const params = readParams(run, block("weights"));
const start = performance.now();
const logits = (tokens) => apply(params, tokens, run).logits_TV.map((z_V) => [...z_V]);
const found = JSON.parse(prompts).map(logits);
process.stdout.write(JSON.stringify({ found, ms: performance.now() - start }));
"""


@dataclass(frozen=True)
class Bench:
    """Compare the logits of the JavaScript model in a run's page with those of JAX."""

    run: Positional[str]
    """Run of progressions with its report.html."""


def main(args):
    """Print the largest difference of a logit, and the speed of the page."""
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    if settings.task != "progressions":
        raise UserError(f"{path} is of the task {settings.task}: give a run of progressions", USAGE)
    params, *_ = restore.load_params(path, settings, None)
    test_settings = replace(settings, options=replace(settings.options, test_sequences=PROMPTS))
    rows = training.test_rows(test_settings, None)
    tokens_BT = np.asarray(generator.encode_rows(rows, settings.data.digits, TERMS).tokens_BT)
    full_length_B = np.minimum(rows.terms_B, TERMS) * (settings.data.digits + 1) - 1
    shortest = 2 * (settings.data.digits + 1) - 1
    length_B = np.random.default_rng(0).integers(shortest, full_length_B + 1)
    with jax.default_matmul_precision("highest"):
        apply = jax.jit(architecture_of(settings).apply, static_argnums=2)
        expected_BTV = np.asarray(apply(params, tokens_BT, settings.model))

    prompts = [tokens_T[:length].tolist() for tokens_T, length in zip(tokens_BT, length_B, strict=True)]
    prompts_file = path / "prompts.json"
    try:
        prompts_file.write_text(json.dumps(prompts))
        command = ["node", "-e", IN_NODE, str(path / "report.html"), str(prompts_file)]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    finally:
        prompts_file.unlink(missing_ok=True)
    pairs = [(np.array(z_TV), expected_BTV[i, : len(z_TV)]) for i, z_TV in enumerate(answer["found"])]
    n_equal = sum((ours.argmax(-1) == theirs.argmax(-1)).all() for ours, theirs in pairs)
    difference = max(np.abs(ours - theirs).max() for ours, theirs in pairs)
    size, ms = (path / "report.html").stat().st_size, answer["ms"] / sum(map(len, prompts))
    print(
        f"the same argmax at every character of {n_equal} of {len(prompts)} prompts; "
        f"logits differ by {difference:.1e} at most"
    )
    print(f"{ms:.2f} ms a character; the page has {size / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(flags.script("page_logits.py", Bench, main))
