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
MULTIPLE = 16  # of which the padded widths are, while pairs are read
KEYS = 1024  # of which the number of tokens looked up is a multiple, so that few programs are compiled
LEAST = -1e30  # of a logit: its share is 0, and of nothing else it is no 0 / 0


class Memory(NamedTuple):
    """All target tokens of the training pairs, one behind the other, and how to find a pair."""

    state_ND: np.ndarray  # h_i
    token_N: np.ndarray  # y_i
    start_P: np.ndarray  # where each pair begins, and where the last ends
    sources: list  # the source tokens of each pair, as bytes
    holders: dict  # {token: the pairs whose source has it}
    rarity: dict  # {token: log(pairs / holders)}
    norm_P: np.ndarray  # the length of each source's vector of rarities


class Found(NamedTuple):
    """What the sentences of a batch look up: K tokens of each, and which of them are no padding."""

    state_BKD: np.ndarray
    token_BK: np.ndarray
    real_BK: np.ndarray


def build(params, settings, rows):
    """The Memory of a run's training pairs, `rows` as `training.load` gives them."""
    lines, cfg = rows["lines"]["train"], settings.model
    sources, targets = training.encode(rows["tokenizers"], lines, settings.data)
    read = jax.jit(partial(_states, cfg=cfg))
    state_ND = [None] * len(sources)
    shape_N = np.array([[-(-len(row) // MULTIPLE) for row in pair] for pair in zip(sources, targets, strict=True)])
    with progress.bar(total=len(sources), desc="training pairs read", unit="pair", leave=False) as bar:
        for shape in np.unique(shape_N, axis=0):
            alike = np.flatnonzero((shape_N == shape).all(1))
            for start in range(0, len(alike), ROWS):
                kept = alike[start : start + ROWS]
                source_BS, lengths_B = _padded([sources[n] for n in kept], shape[0] * MULTIPLE, ROWS)
                target_BT, _ = _padded([targets[n] for n in kept], shape[1] * MULTIPLE, ROWS)
                for n, state_TD in zip(kept, np.asarray(read(params, source_BS, lengths_B, target_BT)), strict=False):
                    state_ND[n] = state_TD[: len(targets[n])]
                bar.update(len(kept))
    start_P = np.cumsum([0, *map(len, targets)])
    kinds = [np.unique(source) for source in sources]
    holders = {}
    for n, tokens in enumerate(kinds):
        for token in tokens.tolist():
            holders.setdefault(token, []).append(n)
    rarity = {token: np.log(len(sources) / len(pairs)) for token, pairs in holders.items()}
    norm_P = np.array([sum(rarity[token] ** 2 for token in tokens.tolist()) ** 0.5 for tokens in kinds])
    holders = {token: np.array(pairs) for token, pairs in holders.items()}
    found = np.concatenate(state_ND), np.concatenate(targets), start_P, [row.tobytes() for row in sources]
    return Memory(*found, holders, rarity, np.maximum(norm_P, 1e-9))


def nearest(memory, source_S, count):
    """The `count` pairs, nearest first, whose sources have most in common with these tokens.

    A pair of the very same source is left out, so that training sentences do not find themselves.
    """
    score_P = np.zeros(len(memory.norm_P))
    for token in np.unique(source_S).tolist():
        if token in memory.holders:
            score_P[memory.holders[token]] += memory.rarity[token] ** 2
    score_P /= memory.norm_P
    itself = source_S.tobytes()
    others = (n for n in np.argsort(-score_P, kind="stable") if memory.sources[n] != itself)
    return [*islice(others, count)]


def look_up(memory, sources, count):
    """What each of these sentences looks up, Found: nothing, if all training sources are the sentence itself."""
    place_N = np.arange(memory.start_P[-1])
    found = [[slice(*memory.start_P[n : n + 2]) for n in nearest(memory, source_S, count)] for source_S in sources]
    places = [np.concatenate([place_N[:0], *(place_N[kept] for kept in each)]) for each in found]
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
