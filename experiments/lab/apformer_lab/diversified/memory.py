"""Look up training pairs while translating (nearest neighbours; Khandelwal et al. 2021, arXiv 2010.00710).

    p(y | h) = (1 - s) p_model(y | h) + s sum_i a_i [y_i = y],        a_i = softmax_i(-|h - h_i|^2 / T)

h is the decoder's last state. The sum is over the target tokens y_i of some training pairs, and h_i is the state from
which the model would predict y_i. So the second part is attention whose values are tokens. The pairs are those whose
sources have most in common with the sentence, tokens weighted by their rarity (tf-idf, cosine).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from apformer import seq2seq
from apformer.decoding import buckets
from apformer.report import progress
from apformer.settings import Settings
from apformer.tasks.translation import batches, training

SHARE, TEMPERATURE = 0.5, 40.0  # s and T, chosen on validation sentences of Multi30k
TOKENS = 2048  # tokens of pairs whose states are computed at once, about
MULTIPLE = 16  # their widths are multiples of this, so that few programs are compiled
KEYS = 1024  # the number of tokens that a batch looks up is a multiple of this, too


class Index(NamedTuple):
    """Index of training pairs by their sources."""

    sources: list[bytes]  # the source tokens of each pair
    has_PV: Any  # sparse, by columns: rarity of each token in a source, divided by the norm of its row
    rarity_V: np.ndarray  # log(pairs / pairs whose source has the token)


class Memory(NamedTuple):
    """Concatenated target tokens of all pairs that any sentence looks up; the first entry is padding."""

    state_ND: np.ndarray  # h_i
    token_N: np.ndarray  # y_i
    places: list[np.ndarray]  # for each sentence, the indices of the tokens of its pairs


class Lookup(NamedTuple):
    """The K target tokens that each sentence of a batch looks up."""

    state_BKD: jax.Array
    token_BK: jax.Array
    real_BK: jax.Array  # whether a token is no padding


def build(params: Any, settings: Settings, rows: dict[str, Any], sentences: Sequence[np.ndarray], count: int) -> Memory:
    """Return the Memory of a run's training pairs for some sentences.

    Args:
        params: Parameters of the model.
        settings: Settings of its run.
        rows: As `translation.training.load` returns them.
        sentences: int32 tokens of each source, with the end token.
        count: Number of pairs that each of them looks up.
    """
    sources, targets = training.encode(rows["tokenizers"], rows["lines"]["train"], settings.data)
    pair_index = index(sources, settings.model.source_vocab_size)
    nearest_N = [nearest(pair_index, sentence_S, count) for sentence_S in sentences]
    distinct = sorted({pair for pairs in nearest_N for pair in pairs})
    sides = ([sources[pair] for pair in distinct], [targets[pair] for pair in distinct])
    state_ND = np.concatenate([np.zeros((1, settings.model.d_model), np.float32), *states(params, settings, sides)])
    token_N = np.concatenate([[0], *sides[1]]).astype(np.int32)
    ends = np.cumsum([1, *map(len, sides[1])])
    place = {pair: np.arange(*ends[n : n + 2]) for n, pair in enumerate(distinct)}
    return Memory(state_ND, token_N, [np.concatenate([np.arange(0), *map(place.get, pairs)]) for pairs in nearest_N])


def index(sources: Sequence[np.ndarray], vocabulary: int) -> Index:
    """Return the Index of pairs with these source tokens, which are below `vocabulary`."""
    kinds = [np.unique(source_S) for source_S in sources]
    ends = np.cumsum([0, *map(len, kinds)])
    has_PV = csr_array((np.ones(ends[-1]), np.concatenate(kinds), ends), (len(kinds), vocabulary))
    rarity_V = np.log(len(kinds) / np.maximum(has_PV.sum(0), 1))
    norm_P = np.maximum(np.sqrt(has_PV @ rarity_V**2), 1e-9)
    has_PV = (has_PV * rarity_V[None] * (1 / norm_P)[:, None]).tocsc()
    return Index([source_S.tobytes() for source_S in sources], has_PV, rarity_V)


def nearest(pair_index: Index, source_S: np.ndarray, count: int) -> list[int]:
    """Return the `count` pairs whose sources have most in common with a source, nearest first.

    Pairs with the same source are left out, so that training sentences do not find themselves, as are pairs that share
    only tokens that all sources have.
    """
    tokens = np.unique(source_S)
    score_P = pair_index.has_PV[:, tokens] @ pair_index.rarity_V[tokens]
    itself = source_S.tobytes()
    nearest_P = np.argsort(-score_P, kind="stable")[: np.count_nonzero(score_P)]
    return [*islice((n for n in nearest_P.tolist() if pair_index.sources[n] != itself), count)]


def states(params: Any, settings: Settings, sides: tuple[list, list]) -> list[np.ndarray]:
    """Return h_TD of each pair: the decoder states from which its target tokens are predicted."""
    cfg, longest = settings.model, settings.data.longest  # learned positions end at longest
    width_N = np.minimum(-(-batches.longest_of(sides) // MULTIPLE) * MULTIPLE, longest)
    found: list[Any] = [None] * len(width_N)
    with progress.bar(total=len(found), desc="training pairs read", unit="pair", leave=False) as bar:
        for fresh_B, row_B, width in buckets.batches(width_N, TOKENS):
            (part,) = batches.pad(tuple([side[n] for n in row_B] for side in sides), (width,))
            for n, state_TD in zip(fresh_B, np.asarray(_states(params, part, cfg)), strict=False):
                found[n] = state_TD[: len(sides[1][n])]
            bar.update(len(fresh_B))
    return found


@partial(jax.jit, static_argnames="cfg")
def _states(params: Any, part: batches.Padded, cfg: seq2seq.Config) -> jax.Array:
    with jax.default_matmul_precision("highest"):  # as in the search
        end_B1 = jnp.full_like(part.target_NT[:, :1], cfg.target_vocab_size - 1)
        before_BT = jnp.concatenate([end_B1, part.target_NT[:, :-1]], axis=1)
        params, with_states = _with_states(params, cfg)
        found = seq2seq.apply(params, part.source_NS, before_BT, with_states, source_lengths_B=part.source_lengths_N)
        return found[..., : cfg.d_model]


def _with_states(params: Any, cfg: seq2seq.Config) -> tuple[Any, seq2seq.Config]:
    """Return the model with a head that outputs the decoder's last state, and then the logits."""
    table_VD = params["decoder"].get("embedding", params["encoder"].get("embedding"))["table"]
    head_DV = table_VD.T if cfg.tie_embeddings else params["head"]["output"]["weight"]
    weight_DU = jnp.concatenate([jnp.eye(cfg.d_model, dtype=head_DV.dtype), head_DV], axis=1)
    wider = replace(cfg, target_vocab_size=weight_DU.shape[1], share_embeddings=False, tie_embeddings=False)
    return params | {"head": {"output": {"weight": weight_DU}}}, wider


def look_up(memory: Memory, row_B: np.ndarray) -> Lookup:
    """Return the target tokens that the given sentences look up."""
    places = [memory.places[n] for n in row_B]
    place_BK = np.zeros((len(places), -(-max(1, *map(len, places)) // KEYS) * KEYS), np.int32)
    for row_K, place in zip(place_BK, places, strict=True):
        row_K[: len(place)] = place
    return Lookup(memory.state_ND[place_BK], memory.token_N[place_BK], place_BK > 0)


def extend(params: Any, cfg: seq2seq.Config, found: Lookup) -> Callable:
    """Return extend(tokens_BT, cache) -> (log p(y | h), cache). The rows of a batch are the beams of each sentence.

    For a sentence without pairs, the share s is 0.
    """
    params, wider = _with_states(params, cfg)
    share_B11 = jnp.where(found.real_BK.any(1), SHARE, 0.0)[:, None, None]

    def step(tokens_BT: jax.Array, cache: dict, lengths_B: jax.Array | None = None) -> tuple[jax.Array, dict]:
        both_BTU, cache = seq2seq.extend(params, tokens_BT, cache, wider, lengths_B=lengths_B)
        h_BTD, logits_BTV = jnp.split(both_BTU, [cfg.d_model], axis=-1)
        h_BTD = h_BTD.reshape(len(found.token_BK), -1, cfg.d_model)  # T: all tokens of a sentence's beams
        distance_BTK = (
            jnp.square(h_BTD).sum(-1)[:, :, None]
            + jnp.square(found.state_BKD).sum(-1)[:, None]
            - 2.0 * jnp.einsum("BTD,BKD->BTK", h_BTD, found.state_BKD)
        )
        scores_BTK = jnp.where(
            found.real_BK[:, None], -distance_BTK / TEMPERATURE, -1e30
        )  # not -inf: all may be padding
        a_BTK = jax.nn.softmax(scores_BTK, axis=-1)
        model_BTV = jax.nn.softmax(logits_BTV).reshape(*h_BTD.shape[:2], -1)
        p_BTV = jax.vmap(lambda p_TV, token_K, a_TK: p_TV.at[:, token_K].add(a_TK))(
            (1.0 - share_B11) * model_BTV, found.token_BK, share_B11 * a_BTK
        )
        return jnp.log(p_BTV).reshape(logits_BTV.shape), cache

    return step
