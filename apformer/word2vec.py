"""word2vec: vectors of words, learned from the words that stand near each word.

A word w has an input vector v_w, for where it is read, and an output vector u_w, for where it is predicted. The context
of the word at place t of a text is the words at t + j, 0 < |j| <= r, with r drawn uniformly from 1 .. window, so that
near words count more. One is predicted from the other:

    skip_gram   h = v of the centre                    predicts each word of the context
    cbow        h = mean of v over the context         predicts the centre       (continuous bag of words)

    softmax     - log p(o),   p(o) = exp(u_o . h) / sum_w exp(u_w . h)
    negative    - log sigmoid(u_o . h) - sum_{n=1..N} log sigmoid(-u_n . h),   n drawn with P(n) ~ count(n)^(3/4)

for every word o that is predicted. The variants are those of Mikolov, Chen, Corrado and Dean 2013a (arXiv
1301.3781), which approximates the full softmax by a tree; the losses are equations 2 and 4 of Mikolov, Sutskever, Chen,
Corrado and Dean 2013b (arXiv 1310.4546). Negative sampling converges, if d_model is large enough, to (Levy
and Goldberg 2014):

    u_o . v_i = log( #(i, o) / (N #(i) P(o)) )         pointwise mutual information, shifted, for P ~ count
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import config, precise

Params = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """Direction, loss and size of the model; frozen and hashable, a static argument of jit.

    Attributes:
        vocab_size: Number of words. A run takes that of its vocabulary.
        d_model: Width of a vector.
        variant: Direction: cbow predicts the centre of a window from its context, skip_gram the context from the
            centre.
        loss: Loss: softmax over all words, or negative, against a few words that are drawn.
        negatives: Number of words drawn against each predicted word (--loss negative).
    """

    vocab_size: int = 11
    d_model: int = 100
    variant: Literal["cbow", "skip_gram"] = "skip_gram"
    loss: Literal["softmax", "negative"] = "negative"
    negatives: int = 5

    def __post_init__(self) -> None:
        config.check(self)


def init(key: Array, cfg: Config) -> Params:
    """Return parameters, a dict of float arrays: `input` (v) and `output` (u), both (V, D).

    As in the authors' program: v small and uniform, u zero.
    """
    shape_VD, bound = (cfg.vocab_size, cfg.d_model), 0.5 / cfg.d_model
    return {"input": jax.random.uniform(key, shape_VD, minval=-bound, maxval=bound), "output": jnp.zeros(shape_VD)}


def apply(params: Params, windows: tuple[Array, Array, Array], cfg: Config) -> Array:
    """Return the logits of the predicted words, (B, V). Computes in the dtype of the parameters.

    Args:
        params: Parameters, see `init`.
        windows: centre_B, context_BW, and inside_BW, the slots of the context that are filled. skip_gram reads the
            centre alone, cbow the context. Words are below vocab_size.
        cfg: Config of the model.
    """
    h_BD, _, _ = _read(params, windows, cfg)
    return jnp.einsum("BD,VD->BV", h_BD, params["output"])


def loss(
    params: Params, windows: tuple[Array, Array, Array], key: Array | None, cfg: Config, noise_V: Array
) -> tuple[Array, dict[str, Array]]:
    """Return the mean loss of the predicted words, in nats, and {"loss": the same}. It is 0 if no word is predicted.

    Args:
        params: Parameters, see `init`.
        windows: Windows as in `apply`.
        key: Randomness of the negatives. Without it, the expectation over all draws is computed.
        cfg: Config of the model.
        noise_V: Distribution of the negatives, see `noise`.
    """
    (h_BD, targets_BO, predicted_BO), output_VD = _read(params, windows, cfg), params["output"]
    if cfg.loss == "softmax":
        logits_BV = precise(jnp.einsum("BD,VD->BV", h_BD, output_VD))
        nats_BO = -jnp.take_along_axis(jax.nn.log_softmax(logits_BV), targets_BO, axis=1)
    else:
        right_BO = precise(jnp.einsum("BD,BOD->BO", h_BD, output_VD[targets_BO]))
        if key is None:
            wrong_BV = precise(jnp.einsum("BD,VD->BV", h_BD, output_VD))
            wrong_BO = cfg.negatives * jnp.einsum("BV,V->B", jax.nn.log_sigmoid(-wrong_BV), noise_V)[:, None]
        else:
            negatives_BON = draw(key, noise_V, (*targets_BO.shape, cfg.negatives))
            wrong_BON = precise(jnp.einsum("BD,BOND->BON", h_BD, output_VD[negatives_BON]))
            wrong_BO = jax.nn.log_sigmoid(-wrong_BON).sum(-1)
        nats_BO = -jax.nn.log_sigmoid(right_BO) - wrong_BO
    mean = jnp.where(predicted_BO, nats_BO, 0.0).sum() / jnp.maximum(predicted_BO.sum(dtype=nats_BO.dtype), 1.0)
    return mean, {"loss": mean}


def noise(counts_V: Any) -> Array:
    """Return the distribution of negatives, count^(3/4) over its sum, (V,) float32."""
    noise_V = jnp.asarray(counts_V, jnp.float32) ** 0.75
    return noise_V / noise_V.sum()


def draw(key: Array, noise_V: Array, shape: tuple[int, ...]) -> Array:
    """Draw words of a shape, int32, independently from a distribution, by the inverse of its cumulative sum."""
    cumulative_V = jnp.cumsum(noise_V)
    places = jax.random.uniform(key, shape, noise_V.dtype) * cumulative_V[-1]
    words = jnp.searchsorted(cumulative_V, places, side="right").astype(jnp.int32)
    return jnp.minimum(words, len(noise_V) - 1)  # a product may round up to the sum


def nearest(params: Params, words_T: Any, signs_T: Any, k: int) -> tuple[Array, Array]:
    """Return the k words nearest to a sum of words, such as king - man + woman, and their cosines, (k,) each.

    The sum is of the words' input vectors, each at length 1 and times its factor (Mikolov et al. 2013).

    Args:
        params: Parameters, see `init`.
        words_T: Words of the sum; none of them is returned.
        signs_T: Factor of each word: 1 or -1, or their sum for a word that occurs several times.
        k: Number of words.
    """
    unit_VD, words_T = unit(params["input"]), jnp.asarray(words_T)
    sum_D = unit(jnp.einsum("T,TD->D", jnp.asarray(signs_T, unit_VD.dtype), unit_VD[words_T]))
    cosine_V = jnp.einsum("D,VD->V", sum_D, unit_VD).at[words_T].set(-jnp.inf)
    cosine_K, nearest_K = jax.lax.top_k(cosine_V, k)
    return nearest_K, cosine_K


def unit(vectors_VD: Array) -> Array:
    """Return the vectors at length 1. Any number of axes may stand before the last."""
    return vectors_VD / jnp.linalg.norm(vectors_VD, axis=-1, keepdims=True)


def _read(params: Params, windows: tuple[Array, Array, Array], cfg: Config) -> tuple[Array, Array, Array]:
    """Return h_BD, the words to predict, (B, O), and the mask of those that count. h is zero without a context."""
    centre_B, context_BW, inside_BW = windows
    if cfg.variant == "skip_gram":
        return params["input"][centre_B], context_BW, inside_BW
    v_BWD = params["input"][context_BW]
    counts_BW = inside_BW.astype(v_BWD.dtype)
    h_BD = jnp.einsum("BW,BWD->BD", counts_BW / jnp.maximum(counts_BW.sum(1), 1)[:, None], v_BWD)
    return h_BD, centre_B[:, None], inside_BW.any(1)[:, None]
