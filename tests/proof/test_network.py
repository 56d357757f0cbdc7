"""The network of numpy is that of the library."""

from dataclasses import replace

import numpy as np
import pytest

from apformer import model
from apformer.analysis import certificate
from apformer.proof import network
from apformer.runs.restore import bind_run
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.proof import contexts

LAYERS = model.Config(
    d_model=16,
    n_heads=2,
    n_layers=2,
    d_ff=24,
    position="relative",
    window=5,
    output_projection=True,
    attention_sink=True,
    final_norm=True,
)
BARE = replace(
    LAYERS,
    similarity="dot",
    output_projection=False,
    attention_sink=False,
    final_norm=False,
    norm="none",
    tie_embeddings=True,
)


@pytest.mark.parametrize("cfg", [LAYERS, BARE, replace(BARE, head_bias=False)])
def test_it_computes_what_apply_computes(random_params, cfg):
    """After every string there is; float32 differs from float64 by rounding alone."""
    params, data = random_params(cfg), Config(digits=2, max_difference=40)
    settings = Settings("progressions", "model", Training(), cfg, data, Options())
    case = certificate.case(settings, contexts, params)
    found = [*certificate.compare(case, bind_run(settings, params))]
    assert case.fault is None and case.bounded and max(gap for _, gap in found) < 2e-3
    assert sum(strings for strings, _ in found) == 3 * contexts.count(vars(data), vars(cfg))
    assert certificate.case(settings, contexts, random_params(replace(cfg, d_ff=8))).fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_layers", 10**9),
        ("norm_epsilon", 1e39),
        ("window", None),
        ("position", "sinusoidal"),
        ("vocab_size", 20),
        ("activation", "gelu"),
        ("norm_position", "post"),
        ("similarity", "cosine"),
    ],
)
def test_what_is_not_computed_or_reads_too_far_is_refused_before_anything_is_made(name, value):
    cfg = vars(LAYERS)
    assert contexts.fault({}, cfg) is None is network.unsupported(cfg, contexts)
    cfg = cfg | {name: value}
    found = contexts.fault({}, cfg) or network.unsupported(cfg, contexts)
    assert found.startswith(
        (f"{name} is {value}, and only ", f"position is {cfg['position']}, window", "a prediction depends")
    )


@pytest.mark.parametrize("numbers", [[], [[3]], [[5, 3], [3, -1]]])
def test_distinct_numbers_come_in_order(numbers):
    numbers = np.array(numbers, np.int64)
    assert network.distinct(numbers).tolist() == np.unique(numbers).tolist()
