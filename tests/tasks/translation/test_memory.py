"""What a translator looks up: the pairs by hand, the probabilities as their equation in numpy, and the command."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, seq2seq
from apformer.runs import restore
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
    """(settings, random parameters, rows, their Memory)"""
    settings, rows = restore.load_settings(run), restore.load_rows(run)
    params = random_params(settings.model)
    return settings, params, rows, memory.build(params, settings, rows)


def by_hand(*sources):
    """A Memory of pairs with these source tokens, and one target token each."""
    holders = {token: np.array([n for n, source in enumerate(sources) if token in source]) for token in range(9)}
    holders = {token: pairs for token, pairs in holders.items() if len(pairs)}
    rarity = {token: np.log(len(sources) / len(pairs)) for token, pairs in holders.items()}
    norm_P = np.array([sum(rarity[token] ** 2 for token in set(source)) ** 0.5 for source in sources])
    rows = [np.array(source, np.int32).tobytes() for source in sources]
    start_P = np.arange(len(sources) + 1)
    return memory.Memory(np.zeros((len(sources), 2)), np.arange(len(sources)), start_P, rows, holders, rarity, norm_P)


def test_the_nearest_sources_share_the_rarest_words():
    """8 is the end token, which all have; 1 is in three of five sources, 2 and 3 in two."""
    known = by_hand([1, 2, 8], [1, 3, 8], [2, 3, 8], [1, 4, 8], [5, 8])
    assert memory.nearest(known, np.int32([2, 3, 7, 8]), 5) == [2, 0, 1, 3, 4]
    assert memory.nearest(known, np.int32([4, 8]), 1) == [3]


def test_a_sentence_does_not_find_itself():
    known = by_hand([1, 2, 8], [1, 2, 3, 8], [4, 8])
    assert memory.nearest(known, np.int32([1, 2, 8]), 2) == [1, 2]
    twice = by_hand([1, 2, 8], [1, 2, 8], [4, 8])
    assert memory.nearest(twice, np.int32([1, 2, 8]), 1) == [2]


def test_states_predict_the_tokens_that_they_stand_for(remembered):
    """Read out, they are the logits of the model for its own training pairs."""
    settings, params, rows, built = remembered
    sources, targets = training.encode(rows["tokenizers"], rows["lines"]["train"], settings.data)
    source, target = sources[7], targets[7]
    end = settings.model.target_vocab_size - 1
    before = np.concatenate([[end], target[:-1]]).astype(np.int32)
    logits_BTV = seq2seq.apply(params, source[None], before[None], settings.model)
    kept = slice(built.start_P[7], built.start_P[8])
    np.testing.assert_array_equal(built.token_N[kept], target)
    table_VD = np.asarray(seq2seq._table(params, "decoder"))
    np.testing.assert_allclose(built.state_ND[kept] @ table_VD.T, logits_BTV[0], rtol=1e-4, atol=1e-4)


def test_probabilities_are_those_of_the_equation(remembered):
    settings, params, rows, built = remembered
    cfg, (share, temperature) = settings.model, (0.4, 3.0)
    sources = training.encode_side(rows["tokenizers"][0], rows["lines"]["test"].sources[:2], "test", settings.data)
    source_BS, lengths_B = memory._padded(sources, max(map(len, sources)), 2)
    found = memory.look_up(built, sources, 3)
    cache = seq2seq.init_cache(params, source_BS, cfg, 4, lengths_B)
    start_B1 = jnp.full((2, 1), cfg.target_vocab_size - 1, jnp.int32)
    logits_BTV, _ = seq2seq.extend(params, start_B1, cache, cfg)
    logp_BTV, _ = seq2seq.extend(params, start_B1, cache, cfg, head=memory.head(found, share, temperature))
    states_BTD, _ = seq2seq.extend(params, start_B1, cache, cfg, head=memory._last)
    for n, source in enumerate(sources):
        expected_V = (1 - share) * np.asarray(jax.nn.softmax(logits_BTV[n, 0]), np.float64)
        places = [np.arange(built.start_P[p], built.start_P[p + 1]) for p in memory.nearest(built, source, 3)]
        places = np.concatenate(places)
        distance_K = ((np.asarray(states_BTD[n, 0], np.float64) - built.state_ND[places]) ** 2).sum(1)
        a_K = np.exp(-(distance_K - distance_K.min()) / temperature)
        np.add.at(expected_V, built.token_N[places], share * a_K / a_K.sum())
        np.testing.assert_allclose(np.exp(logp_BTV[n, 0]), expected_V, rtol=2e-3, atol=1e-6)
        assert expected_V.sum() == pytest.approx(1)


def test_where_all_training_sources_are_the_sentence_itself_the_model_translates_alone(remembered):
    settings, params, rows, built = remembered
    sources = training.encode_side(rows["tokenizers"][0], rows["lines"]["test"].sources[:2], "test", settings.data)
    only = built._replace(sources=[sources[0].tobytes()] * len(built.sources))
    found = search(sources, params, settings, replace(settings.options, memory=3), memory=only)
    alone = search(sources, params, settings, replace(settings.options, memory=0))
    helped = search(sources, params, settings, replace(settings.options, memory=3), memory=built)
    assert found[0].tolist() == alone[0].tolist()
    assert found[1].tolist() == helped[1].tolist()
    nothing = memory.look_up(only, sources[:1], 3)
    assert not nothing.real_BK.any() and nothing.state_BKD.shape[0] == 1


def test_without_a_share_the_search_finds_what_it_finds_alone(remembered):
    settings, params, rows, built = remembered
    sources = training.encode_side(rows["tokenizers"][0], rows["lines"]["test"].sources, "test", settings.data)
    alone = search(sources, params, settings, replace(settings.options, memory=0))
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
