"""The third witness of a certificate: the model in the page of a run, which node computes in float64.

The page has its own forward pass, in report/page/src. It is too slow for every string. So it is asked after those with
the smallest margins, and after a thousand others.
"""

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from apformer.report import template

WORST, OTHERS = 20, 1000
RUN = """
const [page, asked] = [process.argv[1], 0].map((file) => require("fs").readFileSync(file, "utf8"));
const scripts = [...page.matchAll(/<script>([\\s\\S]*?)<\\/script>/g)];
require("vm").runInThisContext(scripts[scripts.length - 1][1]);
const { apply, readParams } = globalThis.apformer, { model, leaves, weights, rows } = JSON.parse(asked);
const params = readParams({ leaves }, weights);
const logits = rows.map((tokens) => [...apply(params, tokens, model).logits_TV.at(-1)]);
process.stdout.write(JSON.stringify({ version: process.version, logits }));
"""


class Chosen:
    """The strings that the page is asked after, while all of them go by: their codes and their logits."""

    def __init__(self):
        self.random, self.codes, self.logits = np.random.default_rng(0), np.empty(0, np.int64), None
        self.margins, self.lots = np.empty(0), np.empty(0)

    def see(self, codes, logits, margins):
        """Take note of some strings."""
        before = () if self.logits is None else (self.logits,)
        columns = (self.codes, codes), (*before, logits), (self.margins, margins)
        self.codes, self.logits, self.margins = map(np.concatenate, columns)
        self.lots = np.append(self.lots, self.random.random(len(codes)))
        kept = np.union1d(np.argsort(self.margins)[:WORST], np.argsort(self.lots)[:OTHERS])
        parts = (part[kept] for part in (self.codes, self.logits, self.margins, self.lots))
        self.codes, self.logits, self.margins, self.lots = parts


def compare(params, cfg, contexts, chosen):
    """{"witness", "strings", "largest_gap"} of the chosen strings; None where there is no node.

    params: {dotted name: array}. cfg: the Config as a dict. contexts: the module of the task that lists them.
    """
    node = shutil.which("node")
    if node is None:
        return None
    leaves = {name: np.asarray(array, "<f4") for name, array in params.items()}
    found = [
        (which, row)
        for numbers, rows in contexts.rows(chosen.codes, cfg)
        for which, row in zip(numbers, rows, strict=True)
    ]
    asked = {
        "model": {"architecture": "model", "model": cfg},
        "leaves": [{"name": name, "shape": leaf.shape} for name, leaf in leaves.items()],
        "weights": base64.b64encode(b"".join(leaf.tobytes() for leaf in leaves.values())).decode(),
        "rows": [row.tolist() for _, row in found],
    }
    page = Path(template.__file__).with_name("template.html")
    command = [node, "-e", RUN, str(page)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{node} cannot run the page: install Node 20 or later, to have the page as a witness", file=sys.stderr)
        return None
    answer = json.loads(done.stdout)
    gap = np.abs(np.array(answer["logits"]) - chosen.logits[[which for which, _ in found]]).max()
    return {"witness": f"the page, node {answer['version']}", "strings": len(found), "largest_gap": float(gap)}
