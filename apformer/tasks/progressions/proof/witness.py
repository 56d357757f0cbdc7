"""The second witness of a certificate: what numpy computes in float64, beside what XLA computes, after every string.

XLA is known to have compiled wrong programs without a word. So each logit is computed twice, by two programs that
have nothing in common but the weights, and a difference above FAULT is said to be what it is: not of rounding.
"""

from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.report import progress
from apformer.tasks.progressions.proof import check

PROGRAM = Path(__file__).with_name("check.py")
FAULT = 1e-4
BATCH_TOKENS = 4096


def compare(model, settings):
    """{"witness", "strings", "errors", "smallest_margin", "largest_gap"} of every string that is asked.

    model: decoding.bind.Model. Raises UserError (exit USAGE) for a model that check.py does not compute.
    """
    cfg, data = asdict(settings.model), asdict(settings.data)
    if fault := check.beyond(cfg):
        raise UserError(f"--check computes another model than this one: {fault}", USAGE)
    named = jax.tree_util.tree_leaves_with_path(model.params)
    weights = {".".join(entry.key for entry in path): np.asarray(leaf, np.float64) for path, leaf in named}
    reach, gap, least, wrong, strings = cfg["n_layers"] * (cfg["window"] - 1), 0.0, np.inf, 0, 0
    with progress.bar(unit="context", unit_scale=True, desc="check") as bar:
        for columns in check.slices(data, reach):
            codes, truth = check.strings(columns, data["digits"], reach)
            pairs = np.unique(codes * 12 + truth)
            codes_N, inverse_N = np.unique(pairs // 12, return_inverse=True)
            ours_NV = check.logits(codes_N, weights, cfg)
            gap = max(gap, _largest_gap(model, codes_N, ours_NV, reach + 1))
            margins = check.margins(ours_NV[inverse_N], pairs % 12)
            wrong, least, strings = (
                wrong + int((margins <= 0).sum()),
                min(least, float(margins.min())),
                strings + len(pairs),
            )
            bar.update(columns.shape[1])
    found = {"strings": strings, "errors": wrong, "smallest_margin": least, "largest_gap": gap}
    return {"witness": f"numpy {np.__version__}, float64"} | found


def _largest_gap(model, codes_N, ours_NV, length):
    """The largest difference of a logit from that of `model.apply`, whose rows begin where the strings begin."""
    tokens_NT = np.stack([codes_N // 12**back % 12 for back in reversed(range(length))], axis=1).astype(np.int32)
    before_N, gap = (tokens_NT == check.START).sum(1), 0.0
    for before in np.unique(before_N):
        rows_N = np.flatnonzero(before_N == before)
        size = min(BATCH_TOKENS // int(length - before), len(rows_N))
        for first in range(0, len(rows_N), size):
            rows = rows_N[np.minimum(np.arange(first, first + size), len(rows_N) - 1)]  # the last may repeat
            theirs_BV = np.asarray(call(model.apply, tokens_NT[rows, before:])[:, -1], np.float64)
            gap = max(gap, float(np.abs(theirs_BV - ours_NV[rows]).max(initial=0.0)))
    return gap
