"""Texts that are shown as they come: one program for all requests, rows that do not meet, and an end before a stop."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import monitoring

from apformer import errors, model, recurrent
from apformer.decoding import stream
from apformer.decoding.bind import bind
from apformer.decoding.generate import Sampling, choose, sampling_of
from apformer.runs.language_model import LanguageModel
from apformer.tokenizers.text import Characters, train_byte_pairs

LETTERS = " abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Characters(LETTERS)
CONFIGS = {
    "learned": (model, model.Config(27, d_model=12, n_heads=2, n_layers=1, position="learned", max_len=48)),
    "window": (model, model.Config(27, d_model=12, n_heads=2, n_layers=1, position="rotary", window=5, max_len=None)),
    "recurrent": (recurrent, recurrent.Config(27, d_model=9)),
}


def small(name, scale=2.0):
    module, cfg = CONFIGS[name]
    params = jax.tree.map(lambda leaf: scale * leaf, module.init(jax.random.key(0), cfg))
    return LanguageModel(bind(module, params, cfg), module.max_tokens(cfg), TOKENIZER, frozenset())


@pytest.mark.parametrize("name", CONFIGS)
def test_cached_rows_are_what_the_uncached_model_draws_of_each_alone(name):
    """With all that sampling has, and one row the same as another."""
    found, prompts = small(name), ["the quick", "a", "the quick"]
    options = {"temperature": [1.5, 0, 1.5], "top_k": 9, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.7}
    texts = found.write(prompts, 20, seed=3, **options)
    assert texts[0] != texts[2] and found.write(prompts[1::-1], 20, seed=3, **options | {"temperature": [0, 1.5]}) == [
        texts[1], texts[0]
    ]  # fmt: skip
    apply, sampling = jax.jit(found.model.apply), sampling_of(1, Sampling(1.5, *list(options.values())[1:]))
    row, prompt_T = TOKENIZER.encode(prompts[0]).tolist(), TOKENIZER.encode(prompts[0])
    seed, *numbers = np.array(stream._names([prompt_T.tolist()], 3)[0], np.uint32)
    key = reduce(jax.random.fold_in, numbers, jax.random.key(seed))
    for n in range(20):
        padded_BT = np.zeros((1, 29), np.int32)
        padded_BT[0, : len(row)] = row
        seen_BV = np.isin(np.arange(27), row)[None]
        keys_B = jax.random.fold_in(key, n)[None]
        row.append(int(choose(apply(padded_BT)[:, len(row) - 1], sampling, keys_B, seen_BV)[0]))
    assert TOKENIZER.decode(row) == prompts[0] + texts[0]


def test_a_cache_that_grows_changes_nothing(monkeypatch):
    found, prompts = small("window"), ["the quick brown fox", "jumps"]
    whole = found.write(prompts, 90, seed=1)
    monkeypatch.setattr(stream, "ROOM", 32)
    monkeypatch.setattr(stream, "AT_ONCE", 1)
    assert found.write(prompts, 90, seed=1) == whole


@pytest.mark.parametrize("length", [1, 47, 60])
def test_beyond_the_last_position_the_last_half_is_a_prompt(length):
    found = small("learned")
    prompts = [(LETTERS * 3)[:length], "other"]
    with pytest.raises(errors.UserError, match="do not fit the 48 positions of the model: give fewer, or restart=True"):
        found.write(prompts, 90)
    text, _ = found.write(prompts, 90, temperature=0, restart=True)
    apply, row = jax.jit(found.model.apply), TOKENIZER.encode(prompts[0]).tolist()
    context = row[-48:]
    for expected in TOKENIZER.encode(text).tolist():
        if len(context) > 48:
            context = row[-24:]
        padded_BT = np.array([context + [0] * (48 - len(context))], np.int32)  # so that one shape is compiled
        assert expected == int(apply(padded_BT)[0, len(context) - 1].argmax())
        row.append(expected)
        context.append(expected)


def test_a_server_compiles_twice_and_never_after_its_tenth_request():
    found = small("window")
    rng = np.random.default_rng(0)
    compiled = []

    def listen(name, *_, **about):
        compiled.extend([about] * name.endswith("backend_compile_duration"))

    monitoring.register_event_duration_secs_listener(listen)  # the lowest JAX cannot take it back
    for request in range(50):
        rows = int(rng.integers(1, 5))
        prompts = [" ".join(["word"] * int(rng.integers(1, 61))) for _ in range(rows)]
        options = {"temperature": rng.uniform(0, 2, rows), "top_k": int(rng.integers(9)), "top_p": rng.uniform(0.5, 1)}
        options |= {"min_p": rng.uniform(0, 0.1), "repetition_penalty": rng.uniform(1, 2), "seed": request}
        texts = found.write(prompts, int(rng.integers(1, 99)), **options)
        assert len(texts) == rows
        if request == 9:
            early = len(compiled)
    assert early == len(compiled) <= 2


def test_requests_that_cannot_be_followed_are_refused_at_once():
    found = small("window")
    for prompts, options, sentence in (
        (["a", ""], {}, "prompt is empty"),
        (["A"], {}, "prompt 'A': character 1 is"),
        ([], {}, "there is no prompt"),
        (["a"], {"stops": [""]}, "stop is empty"),
        (["a"], {"tokens": 0}, "tokens 0 is out of range: give 1"),
        (["a"], {"seed": -1}, "seed -1 is out of range"),
        (["a"], {"temperature": -1}, "temperature -1 is out of range"),
    ):
        with pytest.raises(errors.UserError, match=sentence):
            found.stream(prompts, **options)


def test_ids_without_a_token_are_never_drawn():
    found = small("window", 0.0)._replace(tokenizer=Characters(" ab"))
    assert set(found.write(["a"], 200, temperature=9.0)[0]) == {" ", "a", "b"}


def first_by_trying(stops, text):
    """The text before the first stop, from the definition: try every end, then every beginning."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return text[:start]
    return text


def shown(text, chunks):
    return [text.add(tokens, number == len(chunks)) for number, tokens in enumerate(chunks, 1)]


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=12), st.lists(st.text("ab", min_size=1), max_size=3))
def test_the_end_is_the_same_wherever_a_text_is_cut(pieces, stops):
    text = stream.Text(TOKENIZER, (), stops)
    found = "".join(shown(text, [TOKENIZER.encode(piece) for piece in pieces]))
    assert found == first_by_trying(stops, "".join(pieces)) and text.ended


def test_a_piece_is_shown_as_soon_as_no_stop_can_begin_in_it():
    """And nothing after an end token."""
    text = stream.Text(TOKENIZER, {TOKENIZER.characters.index("z")}, ["nn"])
    pieces = [TOKENIZER.encode(piece) for piece in ("one ", "ten", "e", "xzy", "abc")]
    assert shown(text, pieces) == ["one ", "te", "ne", "x", ""] and text.ended


def test_a_stop_is_found_across_the_bytes_of_a_character():
    pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')
    tokenizer = train_byte_pairs("a", 256)  # a token a byte
    chunks = np.split(tokenizer.encode("naïve é"), 9)
    for stop, whole in (("ïv", "na"), ("é", "naïve "), ("è", "naïve é")):
        assert "".join(shown(stream.Text(tokenizer, (), [stop]), chunks)) == whole


def test_no_chunk_is_drawn_that_no_row_needs():
    drawn = []
    rows = ["abcab cc", "cczb ccc"]
    chunks = (
        drawn.append(n) or jnp.array([TOKENIZER.encode(row[2 * n : 2 * n + 2]) for row in rows]) for n in range(9)
    )
    texts = [stream.Text(TOKENIZER, {26}, [" "]) for _ in rows]
    assert [*zip(*stream.texts(chunks, texts, 99), strict=True)] == [("ab", "ca", "b"), ("cc", "", "")]
    assert drawn == [0, 1, 2]
