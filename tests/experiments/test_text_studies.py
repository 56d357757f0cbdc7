"""Studies of texts: a tiny run of each ends as a table, numbers and a figure, and what they compute is right."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from apformer import errors, recurrent
from apformer.commands import export
from apformer.formats import gpt2
from apformer.runs import recipes
from apformer.runs.fit import abstract_state
from apformer.tokenizers import text
from tests.helpers import scripts

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.long

names = ("additive", "analogies", "bahdanau", "gates", "gpt2_attention", "one_text", "tokens")
additive, analogies, bahdanau, gates, gpt2_attention, one_text, tokens = scripts.load(*names)

TEXT = "The king and the queen were old.\nHe was a man, she was a woman; they have what they had.\n\n" * 40


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that runs a script, and returns (numbers, table) that it leaves beside its figure."""

    def call(script, config, *args, code=0):
        path = tmp_path / "run"
        assert scripts.main(monkeypatch, script, config, *args, "--run_dir", path) == code
        return None if code else scripts.left(path, script.__name__)

    return call


def test_three_kinds_of_tokens_are_learned_from_the_same_text(run, file, monkeypatch):
    monkeypatch.setattr(tokens._study, "train", partial(tokens._study.train, d_model=8, n_layers=1))
    small = ("--vocab_size", 270, "--row_bytes", 24, "--steps", 50, "--batch_size", 2, "--members", 2)
    numbers, table = run(tokens, tokens.Tokens, file, *small)
    assert [row[0] for row in table[1:]] == [*tokens.KINDS]
    assert numbers["characters_context"] == 24 > numbers["byte_pairs_context"] > numbers["words_context"]
    assert 0 < numbers["characters_least"] <= numbers["characters_bits"] <= numbers["characters_greatest"] < 8


def test_tokens_give_the_text_back_but_for_unknown_words():
    parts, args = ("a bb a bb, cc\n" * 3 + "once é", " bb once ça"), tokens.Tokens("", vocab_size=258, min_count=3)
    for kind in tokens.KINDS:
        (train_N, validation_N), texts, unknown = tokens.cut(kind, parts, args)
        if kind != "byte pairs":
            read = "".join(texts[k] for k in train_N)
            assert read == (parts[0] if kind == "characters" else parts[0].replace("once é", 2 * tokens.UNKNOWN))
        assert unknown == {"characters": ["ç"], "byte pairs": [], "words": [" once", " ça"]}[kind]
        assert len(texts) > max(*train_N, *validation_N)


def test_an_unknown_word_costs_its_letters_and_an_end():
    """In "ab ab" both letters are 2 of 5 + 2 + 1 signs, as are ends of the two pieces."""
    assert tokens.spelling(["ab"], "ab ab") == pytest.approx(-3 * np.log2(2 / 8))
    assert tokens.spelling(["z"], "ab ab") == pytest.approx(-np.log2(1 / 8) - np.log2(2 / 8))


def test_relations_are_asked_of_both_variants(run, file):
    numbers, table = run(
        analogies, analogies.Analogies, file, "--steps", 100, "--d_model", 4, "--min_count", 1, "--members", 2
    )
    assert {row[2] for row in table[1:]} == {"cbow", "skip_gram"} and table[1][:2] == ["woman", "6"]
    assert 0 <= numbers["cbow_woman_first"] <= numbers["cbow_woman_found"] <= 1


def test_a_relation_is_answered_by_the_nearest_other_word():
    words = ["king", "queen", "man", "woman", "was"]
    (asked_Q4,) = [of for of in analogies.questions(words).values() if len(of)]
    assert asked_Q4.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]
    royal, female, other = np.eye(3)
    vectors_VD = np.array([royal + other, royal + female + other, other, female + other, -other])
    assert analogies.ranks(vectors_VD, asked_Q4).tolist() == [1, 1]
    unit_VD = vectors_VD / np.linalg.norm(vectors_VD, axis=1, keepdims=True)
    vectors_VD[4] = unit_VD[1] - unit_VD[0] + unit_VD[2]
    assert analogies.ranks(vectors_VD, asked_Q4)[0] == 2


def test_a_text_without_a_relation_is_refused(run, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("ein haus und noch ein haus\n\n" * 40)
    small = ("--steps", 100, "--d_model", 4, "--min_count", 1, "--members", 1)
    run(analogies, analogies.Analogies, tmp_path / "other.txt", *small, code=errors.DATA)
    assert "has no relation with two pairs of words" in capsys.readouterr().err


def test_recurrent_networks_and_attention_learn_one_text_and_their_gates_are_drawn(run, file, monkeypatch, tmp_path):
    small = {name: one_text.MODELS[name] | {"d_model": 8, "n_layers": 1} for name in ("LSTM", "attention")}
    monkeypatch.setattr(one_text, "MODELS", small)
    numbers, table = run(
        one_text, one_text.OneText, file, "--context", 8, "--steps", 50, "--batch_size", 2, "--members", 2
    )
    assert [row[0] for row in table[1:]] == ["LSTM", "attention"] and numbers["lstm_step"] > 0
    assert numbers["lstm_kept"] == 2 * 8 * 4 and numbers["attention_kept"] == 2 * 8 * 4 * one_text.LONG
    (tmp_path / "run").rename(tmp_path / "trained")
    found, table = run(gates, gates.Gates, tmp_path / "trained" / "LSTM" / "01", "--characters", 100, "--shown", 20)
    assert [row[1] for row in table[1:]] == ["forget", "input", "output"] and 0 < found["forget_1_letters"] < 1
    (tmp_path / "run").rename(tmp_path / "read")
    run(gates, gates.Gates, tmp_path / "trained" / "attention" / "01", code=errors.USAGE)


def test_models_of_one_text_have_about_as_many_weights():
    sizes = []
    for said in one_text.MODELS.values():
        words = ["--recipe", "text", *(str(word) for flag, value in said.items() for word in (f"--{flag}", value))]
        shapes = abstract_state(recipes.parse([*words, "--text", "input.txt", "--vocab_size", "65"])).params
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(shapes)))
    assert max(sizes) < 1.06 * min(sizes)


def test_gates_lead_to_the_states_that_the_model_has(key):
    cfg = recurrent.Config(vocab_size=7, d_model=5, n_layers=2)
    params, tokens_T = recurrent.init(key, cfg), np.arange(12) % 7
    _, captured = recurrent.apply(params, tokens_T[None], cfg, capture=("residual",))
    for of, h_BTD in zip(gates.gates(params, tokens_T, cfg), captured["residual"][1:], strict=True):
        np.testing.assert_allclose(of["hidden"], h_BTD[0], atol=1e-5)


def test_additive_attention_takes_more_memory(run):
    numbers, table = run(additive, additive.Additive, "--lengths", 8, 16, "--turns", 1, "--members", 2)
    assert [row[0] for row in table[1:]] == ["8", "16"]
    assert numbers["mb_ratio_16"] > 4 and numbers["scaled_dot_ms_8"] > 0


def test_heads_of_a_gpt2_folder_are_drawn(run, tmp_path, random_params):
    cfg = replace(gpt2.SIZES["gpt2"], vocab_size=260, d_model=6, n_heads=2, n_layers=3, max_len=40)
    export.write_gpt2(tmp_path / "gpt2", random_params(cfg), cfg, text.train_byte_pairs(TEXT, 260))
    numbers, table = run(gpt2_attention, gpt2_attention.Gpt2Attention, tmp_path / "gpt2", "The old king")
    assert [row[:2] for row in table[1:3]] == [["1", "1"], ["1", "2"]] and len(table) == 7
    assert (tmp_path / "run" / "figures" / "layer_3.png").stat().st_size > 5000
    assert numbers["tokens_least"] >= 1 and 0 <= numbers["first_least"] <= numbers["first_greatest"] <= 1


def test_shares_of_a_head_that_reads_the_token_before():
    weights_LHTT = np.eye(4, k=-1)[None, None]
    found = gpt2_attention.shares(weights_LHTT)
    assert found["before"] == 1 and found["itself"] == 0 and found["first"] == pytest.approx(1 / 3)
    assert found["tokens"] == pytest.approx(1)


def test_three_translators_learn_number_words(run, monkeypatch):
    pytest.importorskip("num2words")
    small = ("--largest", 30, "--d_model", 4, "--steps", 2, "--batch_size", 2, "--test", 2, "--members", 1)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # for Flax and Optax
        numbers, table = run(bahdanau, bahdanau.Bahdanau, *small)
    assert [row[0] for row in table[1:]] == [*bahdanau.MODELS] and numbers["transformer_exact"] == 0
    assert numbers["gru_weights"] < numbers["gru_additive_attention_weights"]


@pytest.mark.parametrize("attends", [True, False])
def test_padding_of_a_source_changes_nothing(attends, key):
    module, target_BT = bahdanau.Recurrent(6, 9, attends), jax.numpy.array([[1, 4, 5, 6]])
    source_BS = jax.numpy.array([[3, 7, 8, 0, 0]])
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        params = module.init(key, source_BS, target_BT)
        padded, weights_BTS = module.apply(params, source_BS, target_BT)
        alone, _ = module.apply(params, source_BS[:, :3], target_BT)
    np.testing.assert_allclose(padded, alone, atol=1e-5)
    assert not np.asarray(weights_BTS)[:, :, 3:].any()
    assert np.asarray(weights_BTS).sum(-1) == pytest.approx(float(attends))


def test_the_letters_of_number_words_come_back():
    pytest.importorskip("num2words")
    rows, letters = bahdanau.pairs(bahdanau.Bahdanau(largest=30))
    texts = {"".join(letters[k] for k in row) for split in rows.values() for row in split[1]}
    assert {"vingt et un", "trois"} <= texts
    assert all(row[0] == bahdanau.BEGIN and bahdanau.END in row for row in rows["train"][1])
