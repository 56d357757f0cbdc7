"""What a translator looks up: the pairs by hand, the probabilities as their equation in numpy, and the command."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, seq2seq
from apformer.runs import recipes, restore
from apformer.tasks.translation import memory, training
from apformer.tasks.translation.search import search
from tests.tasks.translation.test_run import FLAGS, random_params

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", *FLAGS, "--memory", "3", "--run_dir", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def remembered(run):
    """(settings, random parameters, rows, the sources of the test part, their Memory)"""
    settings, rows = restore.load_settings(run), restore.load_rows(run)
    params = random_params(settings.model)
    sources = training.encode_side(rows["tokenizers"][0], rows["lines"]["test"].sources, "test", settings.data)
    return settings, params, rows, sources, memory.build(params, settings, rows, sources)


def by_hand(*sources):
    """The Index of pairs with these source tokens."""
    return memory.index([np.int32(source) for source in sources])


def test_the_nearest_sources_share_the_rarest_words():
    """8 is the end token, which all have; 1 is in three of five sources, 2 and 3 in two."""
    known = by_hand([1, 2, 8], [1, 3, 8], [2, 3, 8], [1, 4, 8], [5, 8])
    assert memory.nearest(known, np.int32([2, 3, 7, 8]), 5) == [2, 0, 1]
    assert memory.nearest(known, np.int32([4, 8]), 1) == [3]


def test_pairs_that_share_no_word_are_not_looked_up():
    assert memory.nearest(by_hand([1, 2, 8], [1, 3, 8]), np.int32([4, 8]), 2) == []


def test_a_sentence_does_not_find_itself():
    known = by_hand([1, 2, 8], [1, 2, 3, 8], [4, 8])
    assert memory.nearest(known, np.int32([1, 2, 8]), 2) == [1]
    twice = by_hand([1, 2, 8], [1, 2, 8], [2, 4, 8], [5, 8])
    assert memory.nearest(twice, np.int32([1, 2, 8]), 1) == [2]


def test_only_pairs_that_are_needed_are_read_and_their_states_predict_their_tokens(remembered):
    """Read out, the states are the logits of the model for its own training pairs."""
    settings, params, rows, sources, _ = remembered
    built = memory.build(params, settings, rows, sources[:2])
    train_sources, targets = training.encode(rows["tokenizers"], rows["lines"]["train"], settings.data)
    known, end = memory.index(train_sources), settings.model.target_vocab_size - 1
    nearest = [memory.nearest(known, source, 3) for source in sources[:2]]
    assert len(built.token_N) == 1 + sum(len(targets[pair]) for pair in {*nearest[0], *nearest[1]})
    table_VD = np.asarray(seq2seq._table(params, "decoder"))
    for pairs, place_K in zip(nearest, built.places, strict=True):
        np.testing.assert_array_equal(built.token_N[place_K], np.concatenate([targets[pair] for pair in pairs]))
        for pair in pairs:
            kept, place_K = np.split(place_K, [len(targets[pair])])
            before = np.concatenate([[end], targets[pair][:-1]]).astype(np.int32)
            logits_BTV = seq2seq.apply(params, train_sources[pair][None], before[None], settings.model)
            np.testing.assert_allclose(built.state_ND[kept] @ table_VD.T, logits_BTV[0], rtol=1e-4, atol=1e-4)
        assert not len(place_K)


def test_probabilities_are_those_of_the_equation(remembered):
    settings, params, _, sources, built = remembered
    cfg, (share, temperature) = settings.model, (0.4, 3.0)
    source_BS, lengths_B = memory._padded(sources[:2], max(map(len, sources[:2])), 2)
    found = memory.look_up(built, [0, 1])
    cache = seq2seq.init_cache(params, source_BS, cfg, 4, lengths_B)
    start_B1 = jnp.full((2, 1), cfg.target_vocab_size - 1, jnp.int32)
    logits_BTV, _ = seq2seq.extend(params, start_B1, cache, cfg)
    logp_BTV, _ = seq2seq.extend(params, start_B1, cache, cfg, head=memory.head(found, share, temperature))
    states_BTD, _ = seq2seq.extend(params, start_B1, cache, cfg, head=memory._last)
    for n in range(2):
        expected_V = (1 - share) * np.asarray(jax.nn.softmax(logits_BTV[n, 0]), np.float64)
        place_K = built.places[n]
        distance_K = ((np.asarray(states_BTD[n, 0], np.float64) - built.state_ND[place_K]) ** 2).sum(1)
        a_K = np.exp(-(distance_K - distance_K.min()) / temperature)
        np.add.at(expected_V, built.token_N[place_K], share * a_K / a_K.sum())
        np.testing.assert_allclose(np.exp(logp_BTV[n, 0]), expected_V, rtol=2e-3, atol=1e-6)
        assert expected_V.sum() == pytest.approx(1)


def test_where_all_training_sources_are_the_sentence_itself_the_model_translates_alone(remembered):
    settings, params, rows, sources, built = remembered
    lines = rows["lines"]["test"]
    same = lines._replace(sources=lines.sources[:1] * 2, targets=lines.targets[:2])
    only = memory.build(params, settings, rows | {"lines": {"train": same}}, sources[:1])
    assert not memory.look_up(only, [0]).real_BK.any()
    both = built._replace(places=[only.places[0], built.places[1]])
    found, alone, helped = (
        search(sources[:2], params, settings, settings.options, memory=each) for each in (both, None, built)
    )
    assert found[0].tolist() == alone[0].tolist()
    assert found[1].tolist() == helped[1].tolist()


def test_sentences_as_long_as_learned_positions_reach_look_up_pairs():
    settings = recipes.parse([*FLAGS, "--longest", "20", "--widths", "20", "--position", "learned", "--max_len", "20"])
    sides = [np.arange(20, dtype=np.int32), np.arange(3, dtype=np.int32)]
    state_ND = memory.read(random_params(settings.model), settings, sides, sides[::-1])
    assert state_ND.shape == (1 + 3 + 20, settings.model.d_model)
    assert np.isfinite(state_ND).all()


def test_without_a_share_the_search_finds_what_it_finds_alone(remembered):
    settings, params, _, sources, built = remembered
    alone = search(sources, params, settings, settings.options)
    unheard = search(sources, params, settings, replace(settings.options, memory_share=0.0), memory=built)
    heard = search(sources, params, settings, replace(settings.options, memory_share=0.9), memory=built)
    assert [row.tolist() for row in alone] == [row.tolist() for row in unheard]
    assert [row.tolist() for row in alone] != [row.tolist() for row in heard]


def test_a_run_is_scored_with_its_memory_and_the_command_translates_with_it(run, capsys):
    assert json.loads((run / "evaluation.json").read_text())["memory"] == 3
    page = (run / "report.html").read_text()
    assert "apformer translate also looks up training pairs, which this page does not" in page
    assert "with length penalty 0.6, and looks up 3 training pairs." in page
    capsys.readouterr()
    assert cli.main(["translate", str(run), "three hundred and five"]) == 0
    with_memory = capsys.readouterr().out
    assert cli.main(["translate", str(run), "three hundred and five", "--memory", "3"]) == 0
    assert capsys.readouterr().out == with_memory


def test_where_the_texts_of_a_run_are_gone_the_remedy_is_no_memory(run, monkeypatch, capsys):
    def gone(path):
        raise errors.UserError("train.en cannot be read", errors.DATA)

    monkeypatch.setattr(restore, "load_rows", gone)
    assert cli.main(["translate", str(run), "five"]) == errors.DATA
    assert "train.en cannot be read, or translate without training pairs: --memory 0" in capsys.readouterr().err
    assert cli.main(["translate", str(run), "five", "--memory", "0"]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--memory", "-1"], "--memory -1 is out of range: give 0 to 2147483647"),
        (["--ensemble", "RUN"], "--ensemble has no memory of training pairs: drop it, or give --memory 0"),
    ],
)
def test_what_has_no_memory(run, capsys, flags, sentence):
    flags = [str(run) if flag == "RUN" else flag for flag in flags]
    capsys.readouterr()
    assert cli.main(["translate", str(run), "five", *flags]) == errors.USAGE
    assert sentence in capsys.readouterr().err
