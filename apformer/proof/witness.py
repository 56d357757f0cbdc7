"""More witnesses of a certificate: what numpy computes in float64, beside what XLA computes, after every string.

XLA is known to have compiled wrong programs without a word. So each logit is computed twice, by two programs that
have nothing in common but the weights. Rounding does not explain a difference above FAULT: no certificate then.
Where logits are large, rounding is too, and `certify` allows more.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from apformer.decoding.bind import call
from apformer.errors import USAGE, UserError
from apformer.formats import weights as weights_file
from apformer.proof import check, network, page
from apformer.report import progress, twin

PROGRAMS = [Path(__file__).with_name(name) for name in ("check.py", "network.py", "bounds.py", "rounding.py")]
FAULT = 1e-4
BATCH_TOKENS = 4096


def compare(model, settings, contexts):
    """[{"witness", "strings", "errors", "smallest_margin", "largest_gap"}] of numpy, which is asked after every string.

    The page is a second entry, where node is installed and the page runs such models: its gap is that from numpy.
    contexts: the module of the task that lists them. Raises UserError (exit USAGE) for a model that network.py does not
    compute.
    """
    cfg, data = asdict(settings.model), asdict(settings.data)
    if fault := contexts.fault(data, cfg) or network.beyond(cfg, contexts):
        raise UserError(f"--check computes another model than this one: {fault}", USAGE)
    named = stored(model.params)
    weights = network.complete(named, cfg, contexts)
    gap, least, wrong, strings, chosen = 0.0, np.inf, 0, 0, page.Chosen()
    with progress.bar(unit="context", unit_scale=True, desc="check") as bar:
        for columns in contexts.slices(data, cfg, weights):
            codes_N, _, ours_NV, margin_N = check.ask(*contexts.strings(columns, data, cfg), weights, cfg, contexts)
            gap = max(gap, _largest_gap(model, contexts.rows(codes_N, cfg, weights), ours_NV))
            wrong, least = wrong + int((margin_N <= 0).sum()), min(least, float(margin_N.min()))
            strings += len(margin_N)
            chosen.see(codes_N, ours_NV, margin_N)
            bar.update(columns.shape[1])
    found = {"strings": strings, "errors": wrong, "smallest_margin": least, "largest_gap": gap}
    runs = settings.architecture == "model" and twin.refusal("model", settings.model) is None
    by_page = page.compare(named, cfg, contexts, chosen) if runs else None
    return [{"witness": f"numpy {np.__version__}, float64"} | found, *([by_page] if by_page else [])]


def stored(params):
    """{name: float64 array} of parameters, by their names in a file of weights."""
    return {name: np.asarray(leaf, np.float64) for name, leaf in weights_file.named(params).items()}


def _largest_gap(model, rows, ours_NV):
    """The largest difference of a logit from that of `model.apply`, after the last token of each of these rows."""
    gap = 0.0
    for numbers_B, tokens_BT in rows:
        size = min(max(1, BATCH_TOKENS // tokens_BT.shape[1]), len(tokens_BT))
        for first in range(0, len(tokens_BT), size):
            some = np.minimum(np.arange(first, first + size), len(tokens_BT) - 1)  # the last may repeat
            theirs_BV = np.asarray(call(model.apply, tokens_BT[some])[:, -1], np.float64)
            gap = max(gap, float(np.abs(theirs_BV - ours_NV[numbers_B[some]]).max(initial=0.0)))
    return gap
