"""A diversified translator: each of its methods by hand or by its equation, and a run with all of them."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, flags, seq2seq
from apformer.decoding import beam
from apformer.layers import embedding
from apformer.report import figures
from apformer.runs import recipes
from apformer.tasks.translation import batches
from apformer.tasks.translation import search as plain
from apformer.tasks.translation import training as pairs
from apformer_lab import translate
from apformer_lab.diversified import memory, minimum_risk
from apformer_lab.diversified.search import search

pytest.importorskip("tokenizers", reason='the library comes with the text extra: pip install -e ".[text]"')

FLAGS = (
    "--recipe diversified --from_language figures --to_language en --largest 400 --numbers 60 --byte_pairs 280 "
    "--widths 12 --d_model 16 --n_heads 2 --n_encoder_layers 1 --n_decoder_layers 1 --d_ff 16 --dropout 0.1 "
    "--test_sentences 5 --steps 4 --log_every 2 --save_every 2 --batch_size 4 --rule adamw --beams 4"
).split()


@pytest.fixture(scope="module")
def translator():
    """(settings, random parameters, rows, some sources)"""
    settings, rows = pairs.load(recipes.parse(FLAGS))
    shapes = jax.eval_shape(lambda key: seq2seq.init(key, settings.model), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(0.4 * rng.standard_normal(leaf.shape), jnp.float32), shapes)
    sources = pairs.encode_side(rows["tokenizers"][0], ["7", "231", "99", "310"], "here", settings.data)
    return settings, params, rows, sources


def asked(settings, **options):
    return replace(settings, options=replace(settings.options, **options))


def equal(first, second):
    return all(map(np.array_equal, first, second))


# Minimum Bayes risk


def test_the_text_that_others_nearly_say_is_chosen():
    """The first is the most likely, and shares nothing with the others. A text without a score is no text."""
    texts = ["a b c d".split(), "e f g h".split(), "e f g i".split()]
    assert minimum_risk.best(texts, [0.0, -0.02, -0.02]) == 1
    assert minimum_risk.best(texts, [0.0, -0.02, -0.01]) == 2
    assert minimum_risk.best(texts, [0.0, -2.0, -2.0]) == 0
    assert minimum_risk.best(texts, [0.0, -0.02, -np.inf]) == 0
    assert minimum_risk.best(texts, [np.nan] * 3) == 0


def test_overlap_by_hand():
    """Words 2 * 3 / (4 + 5), pairs 2 * 1 / (3 + 4), and no n-gram of three or four that both have."""
    first, second = (minimum_risk.ngrams(text.split()) for text in ("a b a c", "a b d a e"))
    assert minimum_risk.overlap(first, second) == pytest.approx((6 / 9 + 2 / 7) / 4)
    assert minimum_risk.overlap(*map(minimum_risk.ngrams, ([5], [6]))) == 0
    assert minimum_risk.overlap(*map(minimum_risk.ngrams, ([], []))) == 1


def test_a_translation_is_the_one_of_the_best_beams_that_agrees_most(translator):
    settings, params, _, sources = translator
    assert equal(search(sources, params, settings), plain.search(sources, params, settings))
    end = settings.model.target_vocab_size - 1

    @jax.jit
    def beams(source_BS):
        cache = seq2seq.init_cache(params, source_BS, settings.model, 32)
        extend = partial(seq2seq.extend, params, cfg=settings.model)
        return beam.search(extend, cache, jnp.int32([end]), end, 32, beams=4)

    tokens_BWN, _, scores_BW = beams(sources[1][None])
    texts = [plain.before_end(tokens_N, settings.model).tolist() for tokens_N in np.asarray(tokens_BWN[0])]
    for count in (2, 4):
        chosen = search(sources, params, asked(settings, mbr=count))[1]
        assert chosen.tolist() == texts[minimum_risk.best(texts[:count], scores_BW[0, :count])]


# Memory


def test_the_nearest_sources_share_the_rarest_words():
    """8 is the end token, which all have; 1 is in three of six sources, 2 and 3 in two."""
    known = memory.index([np.int32(row) for row in ([1, 2, 8], [1, 3, 8], [2, 3, 8], [1, 4, 8], [5, 8], [6, 8])], 9)
    assert memory.nearest(known, np.int32([2, 3, 7, 8]), 5) == [2, 0, 1]
    assert memory.nearest(known, np.int32([4, 8]), 1) == [3]
    assert memory.nearest(known, np.int32([7, 8]), 2) == []  # shares no word
    assert memory.nearest(known, np.int32([1, 2, 8]), 1) == [2]  # not itself


def test_probabilities_are_those_of_the_equation(translator):
    """The states of the equation are those that the model itself captures."""
    settings, params, rows, sources = translator
    cfg, end = settings.model, settings.model.target_vocab_size - 1
    built = memory.build(params, settings, rows, sources, 3)
    source_BS, lengths_B = plain.generate.pad_prompts(sources, 8)

    @jax.jit
    def first(found):
        cache = seq2seq.init_cache(params, source_BS, cfg, 4, lengths_B)
        start_B1 = jnp.full((4, 1), end, jnp.int32)
        return [
            jax.nn.softmax(extend(start_B1, cache)[0])
            for extend in (partial(seq2seq.extend, params, cfg=cfg), memory.extend(params, cfg, found))
        ]

    model_BTV, p_BTV = first(memory.look_up(built, np.arange(4)))
    train_sources, targets = pairs.encode(rows["tokenizers"], rows["lines"]["train"], settings.data)
    nearest = [memory.nearest(memory.index(train_sources, cfg.source_vocab_size), source_S, 3) for source_S in sources]

    def states(source_sides, before):
        (part,) = batches.pad((source_sides, before), (24,))
        how = {"source_lengths_B": part.source_lengths_N, "capture": ("decoder_residual",)}
        _, captured = jax.jit(partial(seq2seq.apply, cfg=cfg, **how))(params, part.source_NS, part.target_NT)
        return np.asarray(
            embedding.normalise(params["decoder"], captured["decoder_residual"][-1], seq2seq.config_of(cfg, "decoder")),
            np.float64,
        )

    begin = [np.append(np.int32(end), targets[pair][:-1]) for found in nearest for pair in found]
    read = iter(states([train_sources[pair] for found in nearest for pair in found], begin))
    now = states(sources, [np.int32([end])] * 4)[:, 0]
    for n, found in enumerate(nearest):
        token_K = np.concatenate([targets[pair] for pair in found])
        state_KD = np.concatenate([next(read)[: len(targets[pair])] for pair in found])
        distance_K = ((now[n] - state_KD) ** 2).sum(1)
        a_K = np.exp(-(distance_K - distance_K.min()) / memory.TEMPERATURE)
        expected_V = 0.5 * np.asarray(model_BTV[n, 0], np.float64)
        np.add.at(expected_V, token_K, 0.5 * a_K / a_K.sum())
        np.testing.assert_allclose(p_BTV[n, 0], expected_V, rtol=2e-3, atol=1e-6)


def test_where_nothing_is_found_the_model_translates_alone(translator, monkeypatch):
    settings, params, rows, sources = translator
    built = memory.build(params, settings, rows, sources, 3)
    mixed = built._replace(places=[np.arange(0), *built.places[1:]])
    alone, helped = search(sources, params, settings), search(sources, params, asked(settings, memory=3), rows)
    monkeypatch.setattr(memory, "build", lambda *_: mixed)
    found = search(sources, params, asked(settings, memory=3), rows)
    assert equal(found[:1], alone[:1]) and equal(found[1:], helped[1:])


# A run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    more = "--memory 3 --mbr 2".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda *_: None)
        assert cli.main(["train", *FLAGS, *more, "--run_dir", str(path)]) == 0
    return path


def printed(capsys, monkeypatch, *args):
    """(exit code, what the command printed, what it said last)"""
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["translate", *map(str, args)])
    code = flags.script("apformer_lab.translate", translate.Translate, translate.translate)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_is_scored_as_its_options_say_and_the_command_translates_so(run, capsys, monkeypatch, tmp_path):
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert (evaluation["memory"], evaluation["mbr"], evaluation["beams"]) == (3, 2, 4)
    assert "The best 2 beams compared, 3 training pairs looked up." in (run / "report.html").read_text()
    written = [row.split("\t") for row in (run / "translations.tsv").read_text().splitlines()[1:]]
    file = tmp_path / "sources.txt"
    file.write_text("".join(row[0] + "\n" for row in written))
    code, out, _ = printed(capsys, monkeypatch, run, "--file", file)
    assert code == 0 and [" ".join(line.split()) for line in out.splitlines()] == [row[2] for row in written]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "a sentence is missing: give a sentence in quotes"),
        (["7", "--mbr", "6"], "--mbr 6 is out of range: give 0, or 2 to 4, or more --beams"),
    ],
)
def test_the_command_names_the_flag_at_fault(run, capsys, monkeypatch, words, sentence):
    code, _, err = printed(capsys, monkeypatch, run, *words)
    assert code == errors.USAGE and sentence in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mbr", "1"], "--mbr 1 is out of range: give 0, or 2 to 4, or more --beams"),
        (["--memory", "-1"], "--memory -1 is out of range: give 0 to 2147483647"),
    ],
)
def test_training_names_the_flag_at_fault(capsys, words, sentence):
    with pytest.raises(errors.UserError, match=sentence.replace(".", r"\.")):
        recipes.parse([*FLAGS, *words])
