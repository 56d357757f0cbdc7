"""What a logit may depend on: nothing in the future, beyond the window, in other rows, or in the padding."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.helpers.small_models import OPTIONS, SCHEMES, V, apply, close, draw_tokens, small

B, T = 7, 13
POSITIONS = np.broadcast_to(np.arange(T, dtype=np.int32), (B, T))
LENGTHS = np.full(B, T, np.int32)

SCHEMES_AND_WINDOWS = list(itertools.product(SCHEMES, (None, 5)))


def random_configs():
    """Each position scheme with and without a window, the other options drawn at random."""
    rng, options = np.random.default_rng(0), {"n_heads": (1, 3), "n_layers": (1, 2, 5)} | OPTIONS

    def drawn():
        return {name: values[rng.integers(len(values))] for name, values in options.items()}

    return [small(position=position, window=window, **drawn()) for position, window in SCHEMES_AND_WINDOWS]


def plain_configs():
    """Each position scheme once, every other one with a window."""
    return [small(position=scheme, window=(None, 5)[i % 2]) for i, scheme in enumerate(SCHEMES)]


def named(cfg):
    """A test's name: what of the configuration differs from the small default."""
    base = dataclasses.asdict(small())
    return "-".join(str(value) for name, value in dataclasses.asdict(cfg).items() if value != base[name]) or "small"


@pytest.mark.parametrize(
    "cfg",
    plain_configs() + random_configs(),
    ids=named,
)
def test_the_future_changes_nothing(cfg, random_params):
    """Bit for bit, in 420 random configurations: 21 models, each with 20 draws of all tokens and of a cut a row."""
    params = random_params(cfg)
    for seed in range(20):
        tokens, others = draw_tokens(B, T, seed), draw_tokens(B, T, seed + 100)
        cuts = np.random.default_rng(seed).integers(1, T, B)
        past = np.arange(T)[None] < cuts[:, None]
        logits = np.asarray(apply(params, tokens, cfg))
        changed = np.asarray(apply(params, np.where(past, tokens, others), cfg))
        assert np.isfinite(logits).all()
        np.testing.assert_array_equal(changed[past], logits[past])
        assert (changed[~past] != logits[~past]).any()


@pytest.mark.parametrize("position", ["fire", "none", "relative", "rotary"])
def test_tokens_beyond_the_windows_reach_change_nothing(position, random_params):
    """Each of n_layers blocks looks window - 1 tokens back; the token just within reach does count."""
    cfg = small(position=position, window=5)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    reach = 2 * (5 - 1)
    changed = tokens.copy()
    changed[:, : T - 1 - reach] = (changed[:, : T - 1 - reach] + 1) % V
    logits = apply(params, tokens, cfg)
    np.testing.assert_array_equal(apply(params, changed, cfg)[:, -1], logits[:, -1])
    changed[:, T - 1 - reach] = (changed[:, T - 1 - reach] + 1) % V
    assert (np.asarray(apply(params, changed, cfg)[:, -1]) != np.asarray(logits[:, -1])).any(-1).all()


@pytest.mark.parametrize("cfg", plain_configs(), ids=named)
def test_rows_know_nothing_of_each_other(cfg, random_params):
    params, tokens = random_params(cfg), draw_tokens(B, T)
    order = np.random.default_rng(0).permutation(B)
    logits = np.asarray(apply(params, tokens, cfg))
    np.testing.assert_array_equal(apply(params, tokens[order], cfg), logits[order])
    others = np.where(np.arange(B)[:, None] == 3, tokens, draw_tokens(B, T, 1))
    np.testing.assert_array_equal(apply(params, others, cfg)[3], logits[3])


@pytest.mark.parametrize("position", ["sinusoidal", "relative"])
def test_a_row_alone_is_the_row_in_a_batch(position, random_params):
    cfg = small(position=position)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    close(apply(params, tokens[3:4], cfg), apply(params, tokens, cfg)[3:4], 1e-6)


# Padding and positions


@pytest.mark.parametrize("cfg", plain_configs(), ids=named)
def test_what_stands_beyond_a_rows_length_changes_nothing(cfg, random_params):
    """Bit for bit, ids outside the vocabulary included; a row's own tokens have the logits they have unpadded."""
    params, tokens = random_params(cfg), draw_tokens(B, T)
    lengths = np.array([0, 1, 2, 5, 12, 13, 7], np.int32)
    real = np.arange(T)[None] < lengths[:, None]
    logits = np.asarray(apply(params, tokens, cfg, lengths_B=lengths))
    assert np.isfinite(logits).all()
    for garbage in (-1, V, 2**31 - 1, -(2**31), draw_tokens(B, T, 1)):
        padded = np.where(real, tokens, garbage).astype(np.int32)
        again = apply(params, padded, cfg, lengths_B=lengths)
        np.testing.assert_array_equal(again, logits)
    close(logits[real], np.asarray(apply(params, tokens, cfg))[real], 1e-6)


@pytest.mark.parametrize("cfg", plain_configs(), ids=named)
def test_a_shift_of_all_positions(cfg, random_params):
    """Is not felt by what knows offsets only, and is felt by what knows positions."""
    params, tokens = random_params(cfg), draw_tokens(B, T)
    logits = apply(params, tokens, cfg)
    close(apply(params, tokens, cfg, lengths_B=LENGTHS, positions_BT=POSITIONS), logits, 1e-6)
    shifts = np.arange(B, dtype=np.int32)[:, None]
    shifted = apply(params, tokens, cfg, lengths_B=LENGTHS, positions_BT=POSITIONS + shifts)
    if cfg.position in ("sinusoidal", "learned"):
        assert np.abs(np.asarray(shifted - logits)[1:]).max((1, 2)).min() > 1e-2
    elif cfg.position == "rotary" or hasattr(cfg.position_options, "reach"):
        close(shifted, logits, 1e-5)


def test_a_gap_in_the_positions_is_a_gap(random_params):
    """A window goes by positions, so tokens a gap of its width apart do not see each other."""
    cfg = small(position="rotary", window=5)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    gap = POSITIONS + 5 * (np.arange(T, dtype=np.int32) >= 6)[None]
    logits = apply(params, tokens, cfg, lengths_B=LENGTHS, positions_BT=gap)
    close(logits[:, 6:], apply(params, tokens[:, 6:], cfg), 1e-5)


@pytest.mark.parametrize("position", SCHEMES)
def test_the_order_of_the_past_is_felt_by_one_block_with_positions(position, random_params):
    """Without positions it sees a set."""
    cfg = small(position=position, n_layers=1)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    swapped = tokens.copy()
    swapped[:, :-1] = swapped[:, -2::-1]
    felt = np.abs(np.asarray(apply(params, swapped, cfg) - apply(params, tokens, cfg))[:, -1]).max()
    assert felt < 1e-5 if position == "none" else felt > 1e-3
