"""A translator in the page against the one in JAX, and its tokenizer against the library's; needs node."""

import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import seq2seq
from apformer.decoding import beam
from apformer.errors import DATA
from apformer.tokenizers import merges, pretrained
from apformer.tokenizers import text as text_tokenizer
from tests.helpers import small_texts
from tests.helpers.refusals import refused
from tests.helpers.small_models import draw_params
from tests.report.test_page_model import ask, case, check_logits
from tests.test_seq2seq import V, apply, small

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the page's script")


CONFIGS = [
    small(norm_position="pre", final_norm=True, position="learned", attention_bias=True, scale_embedding=False),
    small(position="rotary", norm_position="pre", final_norm=True, n_decoder_layers=2, activation="gelu"),
    small(similarity="additive", source_vocab_size=V, share_embeddings=True, tie_embeddings=True, n_encoder_layers=1),
]


def draw(*shape):
    return np.random.default_rng(shape).integers(0, V, shape).astype(np.int32)


SOURCES, TARGETS = draw(3, 7), draw(3, 5)


def test_logits_of_every_kind_of_translator():
    rows = {"rows": TARGETS.tolist(), "sources": SOURCES.tolist()}
    check_logits(CONFIGS, lambda p, cfg: apply(p, SOURCES, TARGETS, cfg), **rows)


def test_the_page_finds_the_beams_that_python_finds():
    beams, alpha = 5, 2.0
    cfg, steps, end = CONFIGS[0], 6, 9  # with which some beams end soon
    params = draw_params(cfg)

    @jax.jit
    def search(params):
        cache = seq2seq.init_cache(params, SOURCES, cfg, steps)
        extend = partial(seq2seq.extend, params, cfg=cfg)
        start_B = jnp.full(len(SOURCES), end)
        return beam.search(extend, cache, start_B, end, steps, beams=beams, alpha=alpha)

    expected = jax.tree.map(np.asarray, search(params))
    asked = {"sources": SOURCES.tolist(), "steps": steps, "end": end, "how": {"beams": beams, "alpha": alpha}}
    (found,) = ask(case("beams", params, cfg, **asked))
    finished = 0
    for row, *arrays in zip(found, *expected, strict=True):
        kept = [of for of in zip(*arrays, strict=True) if np.isfinite(of[2])]
        assert [text["tokens"] for text in row] == [tokens_N[:length].tolist() for tokens_N, length, _ in kept]
        np.testing.assert_allclose([text["score"] for text in row], [score for *_, score in kept], rtol=1e-4)
        penalty = [((5 + len(text["tokens"])) / 6) ** alpha for text in row]
        np.testing.assert_allclose(
            [text["logp"] for text in row], [text["score"] * p for text, p in zip(row, penalty, strict=True)]
        )
        finished += sum(text["tokens"][-1] == end for text in row)
    assert finished


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("tokenizers")
    return text_tokenizer.train_byte_pairs(small_texts.ALL, 700)


def test_the_page_cuts_text_as_the_tokenizer_does(tokenizer):
    texts = [*small_texts.TEXTS.values(), *small_texts.every_pair_of_kinds, "", "\ufeffa\ufeff", "I'LL 'Sſ 'ſ it's"]
    tokens = [tokenizer.encode(text).tolist() for text in texts]
    pairs = merges.of(tokenizer)
    asked = [{"leaves": [], "weights": "", "pairs": pairs} | each for each in ({"texts": texts}, {"rows": tokens})]
    cut, joined = ask({"ask": "tokens"} | asked[0], {"ask": "texts"} | asked[1])
    for text, here, there in zip(texts, tokens, cut, strict=True):
        assert here == there, repr(text)
    assert joined == texts


def test_the_page_cuts_text_as_gpt2_does(tmp_path, tokenizer):
    """GPT-2's pattern, and the token for the end of a text that its files have."""
    content = json.loads(tokenizer.to_json())
    vocabulary = content["model"]["vocab"] | {"<|endoftext|>": tokenizer.vocab_size}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    lines = [" ".join(pair) if isinstance(pair, list) else pair for pair in content["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    gpt2 = pretrained.load(tmp_path)
    texts = [*small_texts.every_pair_of_kinds, "one.<|endoftext|>two <|endoftext|><|endoftext|>", "1234 it's IT'S"]
    asked = {"ask": "tokens", "leaves": [], "weights": "", "texts": texts, "pairs": merges.of(gpt2)}
    (cut,) = ask(asked)
    for text, there in zip(texts, cut, strict=True):
        assert gpt2.encode(text, allowed_special="all").tolist() == there, repr(text)


def other_pattern(content):
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": "[a-z]+"}


def pieces(content):
    vocabulary = [[token, -1.0] for token in content["model"]["vocab"]]
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": vocabulary}


def a_byte_missing(content):
    vocabulary = content["model"]["vocab"]
    vocabulary["a word"] = vocabulary.pop("ÿ")  # the letter of byte 255


@pytest.mark.parametrize("change", [other_pattern, pieces, a_byte_missing])
def test_another_way_to_cut_text_is_refused(tokenizer, change):
    tokenizers = pytest.importorskip("tokenizers")
    content = json.loads(tokenizer.to_json())
    change(content)
    other = text_tokenizer.BytePairs(tokenizers.Tokenizer.from_str(json.dumps(content)))
    with refused(DATA, "No text can be typed"):
        merges.of(other)
