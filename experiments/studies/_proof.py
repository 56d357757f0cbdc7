"""What numpy says of a model that continues terms of any width, least significant digit first, in exact arithmetic."""

from dataclasses import asdict, replace

import numpy as np

from apformer.proof import check, witness
from apformer.runs import fit
from apformer.tasks.digits.proof import contexts
from apformer.train import trained

SPACE, START = contexts.SPACE, contexts.START


def strings(settings):
    """(codes, truth) of every context that the proof asks, each (contexts,): see tasks/digits/proof/contexts.py."""
    data, cfg = asdict(settings.data), asdict(settings.model)
    (columns,) = contexts.slices(data, cfg)
    codes, truth = contexts.strings(columns, data, cfg)
    return codes[:, 0], truth[:, 0]


def learn(settings, seed, rows=None):
    """The parameters after the last step of a training with this seed, on these rows, or else on drawn ones."""
    state = fit.initial_state(replace(settings, training=replace(settings.training, seed=seed)))
    state, _ = fit.run_steps(state, rows, settings, settings.training.steps)
    return trained(state)


def judge(params, settings):
    """(The strings that are continued wrongly, the smallest margin), by the first line of apformer/proof/check.py."""
    codes_N, _, found_NV, margin_N = check.ask(*strings(settings), witness.stored(params), asdict(settings.model))
    return codes_N[~(margin_N > check.SAFE * np.abs(found_NV).max())], float(margin_N.min())


def kinds(codes_N):
    """The kind of each string, as a number of KINDS."""
    token = [codes_N // 12**o % 12 for o in range(6)]  # 0, P, P - 1, 2P, 2P - 1 and 2P - 2 tokens ago
    space, lowest, top = token[2] == SPACE, token[0] == SPACE, token[5] == SPACE
    return np.select([space, lowest, top], [3, 2, 1], 0)


KINDS = ("a digit between others", "the highest digit", "the lowest digit", "the space after a term")
