"""No float32 computation leaves the bounds, whatever its order; bounds are of use; and what may fail is not proven."""

from functools import reduce

import numpy as np
import pytest

from apformer.proof import bounds, network, rounding
from apformer.tasks.progressions.proof import contexts

F32 = np.float32
CFG = {
    "n_layers": 2, "d_model": 24, "n_heads": 3, "d_ff": 40, "window": 4, "position": "relative", "vocab_size": 11,
    "similarity": "scaled_dot", "norm": "layer", "norm_epsilon": 1e-5, "final_norm": True,
    "attention_sink": True, "output_projection": True, "feedforward_bias": True, "head_bias": True,
    "tie_embeddings": False,
}  # fmt: skip
BARE = CFG | {"norm": "none", "final_norm": False, "similarity": "dot"}
LEAST = BARE | {"similarity": "none", "attention_sink": False, "output_projection": False, "tie_embeddings": True}
DATA = {"digits": 2, "min_difference": 3, "max_difference": 7}
each = pytest.mark.parametrize("cfg", [CFG, BARE], ids=["norms", "no norms"])


def weights_of(cfg, seed, scale=0.35):
    """Weights that float32 holds, as float64."""
    rng = np.random.default_rng(seed)
    shapes = network.shapes(cfg, contexts).items()
    drawn = {name: F32(scale * rng.standard_normal(shape) + name.endswith(".scale")) for name, shape in shapes}
    return network.complete(drawn, cfg, contexts)


def strings():
    """(codes, right characters)"""
    asked = [contexts.strings(columns, DATA, CFG) for columns in contexts.slices(DATA, CFG)]
    codes, truth = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*asked, strict=True))
    codes, truth = codes[truth < contexts.START], truth[truth < contexts.START]
    codes, first = np.unique(codes, return_index=True)
    return codes, truth[first]


class Shuffled:
    """Arithmetic in float32, each sum in an order of its own, one product after the other."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def sum(self, parts):
        """Along the first axis."""
        return reduce(np.add, self.rng.permutation(parts))

    def dot(self, a, b):
        """(N, I) times (I, J)"""
        return self.sum(a.T[:, :, None].astype(F32) * b[:, None].astype(F32))

    def mean(self, x):
        return self.sum(x.T) / F32(x.shape[1])

    def norm(self, x, w, name, epsilon):
        if f"{name}.scale" not in w:
            return x
        x = x - self.mean(x)[:, None]
        x = x / np.sqrt(self.mean(x * x) + F32(epsilon))[:, None]
        return x * w[f"{name}.scale"].astype(F32) + w[f"{name}.bias"].astype(F32)

    def block(self, x, seen, w, cfg, onto=None):
        D, H, W = cfg["d_model"], cfg["n_heads"], seen.shape[1]
        K, n = D // H, self.norm(x, w, "attention_norm", cfg["norm_epsilon"])
        q, k, v = (
            self.dot(n, w[f"attention.{name}"].reshape(D, D)).reshape(-1, H, K) for name in ("query", "key", "value")
        )
        q = q / F32(K**0.5) if cfg["similarity"] == "scaled_dot" else q
        own, score = seen[:, 0], np.full((W + 1, len(seen), H), -np.inf, F32)
        for o in range(W):
            product = self.sum(np.moveaxis(q[own] * k[seen[:, o]], -1, 0)) + w["bias"][:, o].astype(F32)
            score[o] = np.where(seen[:, o, None] < 0, F32(-np.inf), product)
        score[W] = w.get("attention.sink", -np.inf)
        weight = np.exp(score - score.max(0))
        share = weight[:W] / self.sum(weight)
        mean = self.sum(share[..., None] * v[seen.T])
        y = self.dot(mean.reshape(-1, D), w["attention.output"].reshape(D, D))
        y = y + (x[own] if onto is None else onto.astype(F32))
        h = self.dot(self.norm(y, w, "feedforward_norm", cfg["norm_epsilon"]), w["feedforward.expand.weight"])
        h = np.maximum(h + w["feedforward.expand.bias"].astype(F32), F32(0))
        z = self.dot(h, w["feedforward.contract.weight"]) + w["feedforward.contract.bias"].astype(F32)
        return y + z if onto is None else z

    def logits(self, states, weights, cfg):
        n = self.norm(states, weights, "final_norm", cfg["norm_epsilon"])
        return self.dot(n, weights["head.output.weight"]) + weights["head.output.bias"].astype(F32)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("cfg", [CFG, BARE, LEAST], ids=["norms", "no norms", "tied, no queries"])
@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_float32_leaves_the_bounds(cfg, residual, seed):
    """States by their length, margins by their ratio. The worst case is far from the usual one, but not boundless."""
    weights = weights_of(cfg, seed)
    (codes, _) = strings()
    rng = np.random.default_rng(seed)
    tokens, above = network.layers(codes, weights, cfg, contexts)
    x, e = weights["embedding.table"][tokens], np.zeros(len(tokens))
    single = x.astype(F32)
    arithmetic = Shuffled(seed)
    for number, (seen, w) in enumerate(above):
        onto = None if residual else rng.standard_normal((len(seen), cfg["d_model"])).astype(F32).astype(np.float64)
        single = arithmetic.block(single, seen, w, cfg, onto)
        exact = network.block(x, seen, w, cfg, onto)
        x, e = bounds.bound_block(x, e, seen, w, cfg, onto)
        np.testing.assert_allclose(x, exact, rtol=1e-12, atol=1e-12)
        off = bounds.length(single - x)
        assert (0 < off).any() and (off <= e).all()
        assert number or np.median(e / np.maximum(off, 1e-9)) < 1e4
    if not residual:
        return
    computed, exact = arithmetic.logits(single, weights, cfg), network.logits(codes, weights, cfg, contexts)
    rows, right = np.arange(len(codes)), exact.argmax(1)
    ratios = rounding.bounded_logits(codes, right, weights, cfg, contexts)[1]
    for other in range(11):
        margin = exact[rows, right] - exact[:, other]
        moved = np.abs(computed[rows, right] - computed[:, other] - margin)
        assert (moved[right != other] < (margin / ratios)[right != other]).all()
    assert ratios.max() > 0


@each
def test_a_state_that_errs_within_its_bound_stays_within_the_next(cfg):
    """Whatever the state below was off by, in any direction, and not by rounding alone."""
    weights = weights_of(cfg, 5)
    (codes, _) = strings()
    rng = np.random.default_rng(0)
    tokens, above = network.layers(codes, weights, cfg, contexts)
    x = weights["embedding.table"][tokens]
    for size in (1e-4, 1e-2, 0.3):
        off = rng.standard_normal(x.shape)
        off *= size / bounds.length(off)[:, None]
        (seen, w), e = above[0], np.full(len(x), size)
        exact, far = bounds.bound_block(x, e, seen, w, cfg)
        assert (bounds.length(network.block(x + off, seen, w, cfg) - exact) <= far).all()


def test_the_last_layer_too_keeps_what_is_below_it_within_its_bounds(monkeypatch):
    """The margin of each string, when the states below the last layer are off in any direction."""
    weights = weights_of(CFG, 6, scale=0.15)
    (codes, _) = strings()
    rng = np.random.default_rng(1)
    exact = network.logits(codes, weights, CFG, contexts)
    right, rows = exact.argmax(1), np.arange(len(codes))
    tokens, ((seen_1, w_1), (seen_2, w_2)) = network.layers(codes, weights, CFG, contexts)
    below = network.block(weights["embedding.table"][tokens], seen_1, w_1, CFG)
    for size in (1e-5, 1e-3, 1e-2):
        with monkeypatch.context() as patched:
            patched.setattr(bounds, "bound_block", lambda *_, size=size: (below, np.full(len(below), size)))
            ratios = rounding.bounded_logits(codes, right, weights, CFG, contexts)[1]
        for _ in range(20):
            off = rng.standard_normal(below.shape)
            off *= size / bounds.length(off)[:, None]
            z = network.norm(network.block(below + off, seen_2, w_2, CFG), weights, "final_norm", CFG["norm_epsilon"])
            found = z @ weights["head.output.weight"] + weights["head.output.bias"]
            others = np.where(np.arange(11) == right[:, None], -np.inf, found)
            margin = found[rows, right] - others.max(1)
            assert (margin[ratios > 1] > 0).all()
        assert (ratios > 1).any()


def test_the_second_order_of_a_norm_is_bounded_and_the_bound_is_reached():
    D, rng = 24, np.random.default_rng(2)
    y, v = rng.standard_normal((2, 50, D))
    u, v = (x - x.mean(1, keepdims=True) for x in (y, v))
    s = np.sqrt((u * u).mean(1, keepdims=True))
    r, dot = u / s, lambda a, b: (a * b).sum(1, keepdims=True)
    v -= r * dot(r, v) / D
    dy = s * (r * 3**-0.5 + v * (2 / 3 * D / dot(v, v)) ** 0.5)
    for size in (1e-3, -1e-3, 0.2, -0.2):
        d, norm = size * dy, lambda x: x / np.sqrt((x * x).mean(1, keepdims=True))
        rest = bounds.length(norm(u + d) - r - (d - r * dot(r, d) / D) / s)
        bound = rounding.remainder(bounds.length(d), s[:, 0] * (1 - abs(size)), D)
        assert (rest <= bound).all() and (rest > bound * (0.99 if abs(size) < 0.1 else 0.3)).all()


def test_the_error_of_a_score_counts_though_its_weight_underflows():
    """A score is 110 below another, and errs by 83; the value is 1e12. Values err by 1e5, and so does their sum."""
    values, tokens = np.array([[[0.0]], [[1e12]]]), np.zeros((7, 2, 1), F32)
    tokens[2, 1], tokens[5] = 9.1, 1e5
    heads = network.Heads(0 * values, 0 * values, values)
    below = bounds.HeadBounds(
        heads, tokens[0, :, 0], tokens, np.full((4, 2, 1), F32(9.1)), F32(values), np.eye(1), 1, 1, 1
    )
    weights = {"bias": np.array([[0.0, -110.0]]), "attention.output": np.eye(1)}
    found = bounds.bound_attention(below, np.array([[0, 1]]), np.zeros((1, 1)), np.zeros(1), weights)
    assert found.mean > 1e12 * np.exp(9.1**2 - 110) + 1e5 * 2 * bounds.FUNCTION and found.rest > bounds.gamma(1) * 1e5


@each
def test_no_term_of_the_bounds_is_lost_and_a_small_margin_is_not_proven(cfg):
    """The sum of the ratios pins each term: rounding itself stays so far below the bounds that it would miss most.

    Then the same network with far larger logits, and the same margins: what was safe is so no longer.
    """
    weights, (codes, _) = weights_of(cfg, 7), strings()
    right = network.logits(codes, weights, cfg, contexts).argmax(1)

    def ratios(weights, right=right):
        return rounding.bounded_logits(codes, right, weights, cfg, contexts)[1]

    assert round(ratios(weights).sum()) in (8204, 23468)
    near = weights["head.output.bias"] + 2.0**25  # float32 rounds such sums to multiples of 4
    assert ratios(weights | {"head.output.bias": near}).max() <= 1 and ratios(weights, (right + 1) % 11).max() <= 0


def test_what_may_overflow_or_underflow_is_not_proven():
    """States 2^70 times as large, whose squares float32 cannot hold, and weights below 2^-126.

    The exact network says the same.
    """
    weights, (codes, _) = weights_of(CFG, 7, scale=0.15), strings()
    exact = network.logits(codes, weights, CFG, contexts)
    right = exact.argmax(1)
    output, contract = "blocks.attention.output", "blocks.feedforward.contract"
    large, values, head = (
        {name: array * 2.0 ** powers.get(name, 0) for name, array in weights.items()}
        for powers in (
            dict.fromkeys(("embedding.table", output, f"{contract}.weight", f"{contract}.bias"), 70),
            {"blocks.attention.value": -125, output: 125},
            {"final_norm.scale": 125, "final_norm.bias": 125, "head.output.weight": -125},
        )
    )
    assert (network.logits(codes, large, CFG, contexts).argmax(1) == right).mean() > 0.9
    assert (rounding.bounded_logits(codes, right, weights, CFG, contexts)[1] > 1).any()
    for same in (values, head):
        np.testing.assert_allclose(network.logits(codes, same, CFG, contexts).max(1), exact.max(1))
    for changed, cfg in ((large, CFG), (values, CFG), (head, CFG), (weights, CFG | {"norm_epsilon": 1e-50})):
        assert not (rounding.bounded_logits(codes, right, changed, cfg, contexts)[1] > 1).any()
