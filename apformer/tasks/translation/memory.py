"""A translator that looks up its training pairs while it writes (nearest neighbours; Khandelwal et al. 2021).

    p(y | h) = (1 - s) p_model(y | h) + s sum_i a_i [y_i = y],        a_i = softmax_i(-|h - h_i|^2 / T)

h is the decoder's last state. The sum is over the target tokens y_i of some training pairs, and h_i is the state from
which the model would predict y_i. So the second part is attention whose values are tokens. The pairs are those whose
sources have most in common with the sentence, tokens weighed by their rarity (tf-idf, cosine): few, so a step is cheap.
The model has no more parameters than before; what it looks up are its own states of its own training pairs.
"""

from functools import partial
from itertools import islice
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.report import progress
from apformer.tasks.translation import training

ROWS = 64  # pairs that are read at once
MULTIPLE = 16  # pairs are read at widths that are multiples of this, so that few programs are compiled
KEYS = 1024  # the same for the number of tokens that a batch looks up
LEAST = -1e30  # logit of padding: its softmax is 0 beside a real token, and where all is padding it is not 0 / 0


class Index(NamedTuple):
    """How to find a pair by its source."""

    sources: list  # the source tokens of each pair, as bytes
    holders: dict  # {token: the pairs whose source has it}
    rarity: dict  # {token: log(pairs / holders)}
    norm_P: np.ndarray  # the length of each source's vector of rarities


class Memory(NamedTuple):
    """What some sentences look up: the target tokens of the pairs that any of them needs, one behind the other.

    The first of them stands for none: padding.
    """

    state_ND: np.ndarray  # h_i
    token_N: np.ndarray  # y_i
    places: list  # of each sentence: where the tokens of its pairs are


class Found(NamedTuple):
    """What the sentences of a batch look up: K tokens of each, and which of them are no padding."""

    state_BKD: np.ndarray
    token_BK: np.ndarray
    real_BK: np.ndarray


def build(params, settings, rows, sentences):
    """The Memory of a run's training pairs for these sentences, each an array of source tokens with its end.

    rows: as `training.load` gives them. Only pairs that a sentence looks up are read, so one sentence waits for few.
    """
    sources, targets = training.encode(rows["tokenizers"], rows["lines"]["train"], settings.data)
    known, nearest_N = index(sources), []
    with progress.bar(total=len(sentences), desc="pairs looked for", unit="sentence", leave=False) as bar:
        for sentence_S in sentences:
            nearest_N.append(nearest(known, sentence_S, settings.options.memory))
            bar.update()
    needed = sorted({pair for pairs in nearest_N for pair in pairs})
    state_ND = read(params, settings, [sources[pair] for pair in needed], [targets[pair] for pair in needed])
    token_N = np.concatenate([[0], *(targets[pair] for pair in needed)]).astype(np.int32)
    ends = np.cumsum([1, *(len(targets[pair]) for pair in needed)])
    place = {pair: np.arange(*ends[n : n + 2]) for n, pair in enumerate(needed)}
    places = [np.concatenate([np.arange(0), *(place[pair] for pair in pairs)]) for pairs in nearest_N]
    return Memory(state_ND, token_N, places)


def index(sources):
    """The Index of pairs with these source tokens."""
    kinds, holders = [np.unique(source_S).tolist() for source_S in sources], {}
    for n, tokens in enumerate(kinds):
        for token in tokens:
            holders.setdefault(token, []).append(n)
    rarity = {token: np.log(len(sources) / len(pairs)) for token, pairs in holders.items()}
    norm_P = np.array([sum(rarity[token] ** 2 for token in tokens) ** 0.5 for tokens in kinds])
    holders = {token: np.array(pairs) for token, pairs in holders.items()}
    return Index([source_S.tobytes() for source_S in sources], holders, rarity, np.maximum(norm_P, 1e-9))


def nearest(known, source_S, count):
    """The `count` pairs of an Index, nearest first, whose sources have most in common with these tokens.

    Left out are pairs of the very same source, so that training sentences do not find themselves, and pairs that share
    no token but those that all sources have.
    """
    score_P = np.zeros(len(known.norm_P))
    for token in np.unique(source_S).tolist():
        if token in known.holders:
            score_P[known.holders[token]] += known.rarity[token] ** 2
    score_P /= known.norm_P
    itself = source_S.tobytes()
    nearest_P = np.argsort(-score_P, kind="stable")[: np.count_nonzero(score_P)]
    others = (n for n in nearest_P.tolist() if known.sources[n] != itself)
    return [*islice(others, count)]


def read(params, settings, sources, targets):
    """The states of all target tokens of these pairs, one behind the other, after a row of zeros: (N, D)."""
    cfg, most = settings.model, settings.data.longest  # no wider than that: learned positions end there
    states = jax.jit(partial(_states, cfg=cfg))
    state_ND = [np.zeros((1, cfg.d_model), np.float32), *[None] * len(sources)]
    lengths_N = np.array([[len(row) for row in pair] for pair in zip(sources, targets, strict=True)]).reshape(-1, 2)
    shape_N = np.minimum(-(-lengths_N // MULTIPLE) * MULTIPLE, most)
    with progress.bar(total=len(sources), desc="training pairs read", unit="pair", leave=False) as bar:
        for S, T in np.unique(shape_N, axis=0):
            alike = np.flatnonzero((shape_N == (S, T)).all(1))
            for start in range(0, len(alike), ROWS):
                kept = alike[start : start + ROWS]
                source_BS, lengths_B = _padded([sources[n] for n in kept], S, ROWS)
                target_BT, _ = _padded([targets[n] for n in kept], T, ROWS)
                with jax.default_matmul_precision("highest"):  # as in the search
                    state_BTD = np.asarray(states(params, source_BS, lengths_B, target_BT))
                for n, state_TD in zip(kept, state_BTD, strict=False):
                    state_ND[n + 1] = state_TD[: len(targets[n])]
                bar.update(len(kept))
    return np.concatenate(state_ND)


def look_up(memory, row_B):
    """What the sentences of these numbers look up, Found. It can be nothing."""
    places = [memory.places[n] for n in row_B]
    place_BK, lengths_B = _padded(places, -(-max(1, *map(len, places)) // KEYS) * KEYS, len(places))
    real_BK = np.arange(place_BK.shape[1])[None] < lengths_B[:, None]
    return Found(memory.state_ND[place_BK], memory.token_N[place_BK], real_BK)


def head(found, share, temperature):
    """head(params, x_BTD, cfg) of `seq2seq.extend`: log p(y | h) above. Its rows are the beams of each sentence.

    Where nothing was found, s is 0.
    """
    share_B = jnp.where(found.real_BK.any(1), share, 0.0)

    def log_probabilities(params, x_BTD, cfg):
        B, V = len(found.token_BK), cfg.target_vocab_size
        model_BTV = jax.nn.softmax(seq2seq.read_out(params, x_BTD, cfg), axis=-1)
        h_BTD = _last(params, x_BTD, cfg).reshape(B, -1, x_BTD.shape[-1])  # all tokens of a sentence's beams
        distance_BTK = (
            jnp.square(h_BTD).sum(-1)[:, :, None]
            + jnp.square(found.state_BKD).sum(-1)[:, None]
            - 2.0 * jnp.einsum("BTD,BKD->BTK", h_BTD, found.state_BKD)
        )
        a_BTK = jax.nn.softmax(jnp.where(found.real_BK[:, None], -distance_BTK / temperature, LEAST), axis=-1)
        looked_up = jax.vmap(lambda a_TK, token_K: jnp.zeros((a_TK.shape[0], V)).at[:, token_K].add(a_TK))
        looked_up_BTV = looked_up(a_BTK, found.token_BK).reshape(model_BTV.shape)
        share_B11 = jnp.repeat(share_B, len(x_BTD) // B)[:, None, None]
        return jnp.log((1.0 - share_B11) * model_BTV + share_B11 * looked_up_BTV)

    return log_probabilities


def _states(params, source_BS, lengths_B, target_BT, cfg):
    """h of each target token, (B, T, D): the state after the end token and the target tokens before it."""
    before_BT = jnp.concatenate([jnp.full_like(target_BT[:, :1], cfg.target_vocab_size - 1), target_BT[:, :-1]], axis=1)
    capture = ("decoder_residual",)
    _, captured = seq2seq.apply(params, source_BS, before_BT, cfg, source_lengths_B=lengths_B, capture=capture)
    return _last(params, captured["decoder_residual"][-1], cfg)


def _last(params, x_BTD, cfg):
    return seq2seq.final_norm(params["decoder"], x_BTD, cfg)


def _padded(rows, width, count):
    """(rows_BT, lengths_B) with zeros behind each row, and `count` rows: those that are missing have one token, 0."""
    rows_BT, lengths_B = np.zeros((count, width), np.int32), np.ones(count, np.int32)
    for n, row in enumerate(rows):
        rows_BT[n, : len(row)], lengths_B[n] = row, len(row)
    return rows_BT, lengths_B
