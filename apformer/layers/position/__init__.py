"""How a transformer knows where a token stands. A scheme is a file of this folder, found by its name.

The file defines `Scheme`, a frozen dataclass. Its fields are the options of the scheme. It has those of the methods
below that it needs, and `parameters`, {name: layers.leaves.Role}, if its bias has parameters. A new scheme is one new
file: nothing else lists it.

The functions of this module are the protocol. Each calls the scheme's method of its name, or does what serves a scheme
without it. Positions are data: any length works, and a key in the cache keeps the position it was read at.
"""

import pkgutil
from importlib import import_module

import jax.numpy as jnp
from flax import linen as nn

from apformer.layers.masks import causal_mask


def names():
    """The schemes there are: the files of this folder."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name):
    """The Scheme of that name, a class. Raises ValueError, which lists the known ones."""
    if name not in names():
        raise ValueError(f"position {name} is none of {', '.join(names())}")
    return import_module(f"{__name__}.{name}").Scheme


def _own(scheme, method, otherwise):
    return getattr(scheme, method, otherwise)


def parameters(scheme):
    """{name: Role} of the parameters that `bias` makes."""
    return _own(scheme, "parameters", {})


def check(scheme, cfg):
    """Raises ValueError that names the field of a model.Config that does not fit the scheme."""
    _own(scheme, "check", lambda cfg: None)(cfg)


def max_tokens(scheme, max_len):
    """The most tokens a row may have; None if there is no such bound."""
    return _own(scheme, "max_tokens", lambda max_len: None)(max_len)


def reach(scheme, window):
    """How many tokens back one layer reads, if its scores depend on offsets alone; None if there is no such bound."""
    return _own(scheme, "reach", lambda window: None)(window)


def init_cache(scheme, batch_size):
    """What the scheme keeps of the tokens read so far: {name: array}, batch first."""
    return _own(scheme, "init_cache", lambda batch_size: {})(batch_size)


def read(scheme, tokens_BT, positions_BT, cache):
    """(What the scheme reads off the tokens, its cache after them): before the first layer, once a pass.

    tokens_BT: -1 where there is no token. cache: of `init_cache`, or None where the rows begin with these tokens.
    """
    return _own(scheme, "read", lambda tokens_BT, positions_BT, cache: (None, {}))(tokens_BT, positions_BT, cache)


def mask(scheme, positions_BT, positions_BS, window, found):
    """(Which keys a query may see BTS, what `bias` wants to know of them), from what `read` found."""

    def causal(positions_BT, positions_BS, window, found):
        return causal_mask(positions_BT, positions_BS, window), None

    return _own(scheme, "mask", causal)(positions_BT, positions_BS, window, found)


def offsets(scheme, window, found):
    """The offsets of all keys that a query may see, (B, T, O), where these are few: -1 for none. None if they are not.

    found: of `read`. Each offset stands there once. So generation gathers a few keys (cache.py), and needs no others
    but those that `look` finds itself, which are nearer than the farthest offset.
    """
    return None if window else _own(scheme, "offsets", lambda found: None)(found)


def farthest(scheme, window, period):
    """The greatest of these offsets in text of this period, for a scheme that reads periods; None if there are none."""
    offset_11O = offsets(scheme, window, jnp.array([[period]], jnp.int32))
    return None if offset_11O is None else int(offset_11O.max())


def sees_window_alone(scheme):
    """Whether a query sees all keys of its window and no others, and nothing is read off the tokens."""
    return _own(scheme, "mask", None) is None and _own(scheme, "read", None) is None


def knows_by_bias_alone(scheme):
    """Whether, within a window, positions change the scores by `bias` alone, and `bias` depends on offsets alone."""
    others = ("layer", "rotate", "perturb", "look")
    own = any(_own(scheme, method, None) for method in others)
    return not own and sees_window_alone(scheme) and _own(scheme, "reach", None) is not None


def layer(scheme, view, number):
    """What the layer of that number, from 0, sees of what all layers see: a masks.View."""
    return _own(scheme, "layer", lambda view, number: view)(view, number)


def rotate(scheme, x_BTHK, positions_BT):
    """Queries or keys, turned by their position."""
    return _own(scheme, "rotate", lambda x_BTHK, positions_BT: x_BTHK)(x_BTHK, positions_BT)


def wants_key(scheme):
    """Whether `perturb` or `look` draws at random when it is given a key, as in training."""
    return _own(scheme, "wants_key", lambda: False)()


def perturb(scheme, q_BTHK, bias_BHTS, key):
    """Queries (B, T, H, K) and biases (B, H, T, S), with noise if there is a key, as in training; else without."""
    return _own(scheme, "perturb", lambda q_BTHK, bias_BHTS, key: (q_BTHK, bias_BHTS))(q_BTHK, bias_BHTS, key)


def look(scheme, y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key, cache):
    """(What heads read, (B, T, H, K); their weights, (B, H, T, S)), where a head may read in a way of its own.

    key as in `perturb`. cache: all keys and values of the layer, at view.cached_BS, of which k_BSHK and v_BSHK may hold
    a few; None without a cache. With one, the weights that are returned are not used.
    """

    def ordinary(y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key, cache):
        return y_BTHK, weights_BHTS

    return _own(scheme, "look", ordinary)(y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key, cache)


class Embedding(nn.Module):
    """The embeddings with what the scheme adds to them: scheme.embed(param, x_BTD, positions_BT, max_len).

    param(name, initializer, shape) is a parameter of the scheme, here and in `Bias`.
    """

    scheme: object
    max_len: int

    @nn.compact
    def __call__(self, x_BTD, positions_BT):
        plain = lambda param, x_BTD, positions_BT, max_len: x_BTD  # noqa: E731
        return _own(self.scheme, "embed", plain)(self.param, x_BTD, positions_BT, self.max_len)


class Bias(nn.Module):
    """What the scheme adds to the scores, (B, H, T, S), or None: scheme.bias(param, view, cfg, dtype).

    cfg is an attention.Config, view a masks.View; dtype is that of scores.
    """

    scheme: object
    cfg: object

    @nn.compact
    def __call__(self, view, dtype):
        return _own(self.scheme, "bias", lambda param, view, cfg, dtype: None)(self.param, view, self.cfg, dtype)
