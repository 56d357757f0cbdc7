"""What all certificates share: the margin of a prediction, the tally of an enumeration, and the verdict.

    margin = logit of the right token - the largest other logit          wrong where it is not above 0

Floating-point sums differ with the batch shape and with a cache (rounding.py). So the smallest margin must be SAFETY
times the largest difference between ways of computing the same logits.
"""

import jax.numpy as jnp
import numpy as np

SAFETY = 100
WORST = 20  # contexts named in a certificate


def margins(logits_BTV, truth_BT):
    """Margin of each token: (B, T), float32. It is the least number there is where a logit is not finite."""
    logits_BTV, limits = logits_BTV.astype(jnp.float32), jnp.finfo(jnp.float32)
    right_BT = jnp.take_along_axis(logits_BTV, truth_BT[:, :, None], axis=-1)[..., 0]
    token_V = jnp.arange(logits_BTV.shape[-1], dtype=jnp.int32)
    others_BTV = jnp.where(token_V[None, None] == truth_BT[:, :, None], -jnp.inf, logits_BTV)
    margin_BT = jnp.clip(right_BT - others_BTV.max(-1), limits.min, limits.max)
    # XLA's reductions drop NaN in large batches on a CPU; here it must count as wrong.
    return jnp.where(jnp.isfinite(logits_BTV).all(-1), margin_BT, limits.min)


def part(margin_N: np.ndarray | tuple = (), before: dict | None = None) -> dict:
    """Return the tally of these margins, and of those that the tally `before` counts; JSON can hold it."""
    least = float(np.min(margin_N)) if len(margin_N) else None
    errors = int((np.asarray(margin_N) <= 0).sum())
    fresh = {"contexts": len(margin_N), "errors": errors, "smallest_margin": least}
    return together([before, fresh]) if before else fresh


def together(parts):
    """One tally of several."""
    sums = {name: sum(part[name] for part in parts) for name in ("contexts", "errors")}
    least = [part["smallest_margin"] for part in parts if part["smallest_margin"] is not None]
    return sums | {"smallest_margin": min(least, default=None)}


def nearest(margin_BN):
    """[(row, column, margin)] of the WORST smallest of an array, those that are inf left out."""
    order = np.argpartition(margin_BN, min(WORST, margin_BN.size) - 1, axis=None)[:WORST]
    places = zip(*np.unravel_index(order, margin_BN.shape), strict=True)
    return [(int(b), int(n), float(margin_BN[b, n])) for b, n in places if margin_BN[b, n] != np.inf]


def summary(parts, worst):
    """What a progress bar shows of an enumeration."""
    least = worst[0]["margin"] if worst else np.inf
    return {"errors": together(parts)["errors"], "smallest margin": f"{least:.3g}"}


def verdict(claim, parts, difference, outside, unseen, *, faults=()):
    """The head of a certificate: whether the claim is proven, or what speaks against it.

    parts: {name: tally}. difference: the largest one between ways of computing the same logits. outside: by how much
    logits change with what they must not depend on, which `unseen` names. faults: what else was found.
    """
    of_all, faults = together(parts.values()), list(faults)
    contexts, errors, least = of_all.values()
    if errors:
        faults.append(f"{errors:,} of {contexts:,} contexts are continued wrongly")
    elif not least >= SAFETY * difference:
        apart = f"the {difference:.3g} by which logits differ"
        faults.append(f"the smallest margin, {least:.3g}, is under {SAFETY} times {apart}")
    if outside:
        faults.append(f"{unseen} changes logits by {outside:.3g}")
    differences = {"largest_difference": difference, "outside_difference": outside}
    return {"certified": not faults, "claim": "; ".join(faults) or claim} | of_all | differences
