"""A translator from flags to scores: trained, gone on with, averaged, scored by what it writes, and asked."""

import csv
import io
import json
import shutil
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, files
from apformer.analysis import ablate
from apformer.errors import DATA, USAGE, UserError
from apformer.files import read_json, write_json
from apformer.loss import token_nats
from apformer.runs import restore
from apformer.runs.provenance import digest
from apformer.tasks import translation
from apformer.tasks.translation import batches, corpus, scores, vocabularies
from apformer.tasks.translation import search as searching
from apformer.tasks.translation import training as pair_task
from apformer.tokenizers import pretrained
from tests.helpers import small_runs
from tests.helpers.small_models import draw_params
from tests.report import test_page
from tests.test_progress import Terminal

pytestmark = pytest.mark.long

FLAGS = (
    "--recipe translate --from_language figures --to_language en --largest 400 --numbers 200 --byte_pairs 280 "
    "--widths 6 12 --d_model 16 --n_heads 2 --n_encoder_layers 1 --n_decoder_layers 1 --d_ff 16 --dropout 0.1 "
    "--steps 8 --log_every 2 --save_every 4 --batch_size 4 --accumulate 2 --rule adamw --ema 0.9"
).split()


@pytest.fixture(scope="session")
def run(made_run):
    return made_run("pairs")


@pytest.fixture(scope="session")
def trained(run):
    """(settings, params, tokenizer)"""
    settings = restore.load_settings(run)
    return settings, restore.load_params(run, settings)[0], pretrained.load(run / "tokenizer.json")


def test_a_run_is_scored_by_what_it_writes(run, trained):
    settings, params, tokenizer = trained
    evaluation = read_json(run / "evaluation.json")
    with (run / "translations.tsv").open() as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    parts = restore.load_rows(run)["lines"]
    lines = parts["test"]
    assert [row["source"] for row in rows] == lines.sources and [row["reference"] for row in rows] == lines.targets
    sources = pair_task.encode_side(tokenizer, lines.sources, "test", settings.data)
    tokens = searching.search(sources, params, settings)
    found = [tokenizer.decode(tokens_T) for tokens_T in tokens]
    assert [row["translation"] for row in rows] == [" ".join(text.split()) for text in found]
    exact = np.mean([text == target for text, target in zip(found, lines.targets, strict=True)])
    assert evaluation["exact"] == exact and evaluation["sentences"] == len(found)
    assert sum(row["sentences"] for row in evaluation["by_length"]) == len(found)
    assert [part["sentences"] for part in evaluation["parts"].values()] == [len(parts["validation"].sources)] * 2
    assert 0 <= evaluation["parts"]["train"]["bleu"] <= 100 and evaluation["tokenized_bleu"] <= 100
    assert "lc|eff:no|tok:none" in evaluation["tokenized_signature"] and "moses-en" in evaluation["tokenized_signature"]
    assert "tok:13a" in evaluation["bleu_signature"] and "nc:6" in evaluation["chrf_signature"]


def test_scores_by_hand():
    """Five words of six, in order: precisions 5/6, 4/5 ... but one word and its pairs are wrong."""
    references = ["the cat sat on the mat", "a dog runs"]
    assert scores.score(references, references, "en")["bleu"] == pytest.approx(100)
    found = scores.score(["the cat sat on the hat", "a dog runs"], references, "en")
    # 8 of 9 words, 6 of 7 pairs, 4 of 5 threes and 2 of 3 fours; no brevity penalty
    assert found["bleu"] == pytest.approx(100 * (8 / 9 * 6 / 7 * 4 / 5 * 2 / 3) ** 0.25)
    assert found["exact"] == 0.5
    assert scores.score(["elf", "zwei"], ["elf", "drei"], "de")["bleu"] is None  # which have no four words
    (short, longer) = scores.by_length(["a dog", *references[:1]], references[::-1], "en")
    assert short["words"] == [1, 5] and short["exact"] == 0 and longer["words"] == [6, 10] and longer["exact"] == 1
    assert short["bleu"] is None and longer["bleu"] == pytest.approx(100)


def test_the_language_by_which_words_are_cut():
    sides = ((None, None), ("a.en", "b.de"), ("a.en", "b.md"), ("a.en", "b.zh_TW"))
    assert [scores.language_of(corpus.Config(*files)) for files in sides] == ["fr", "de", "fr", "zh"]
    cut = [scores.plain(code).tokenizer.signature() for code in ("fr", "zh", "th")]
    assert cut == ["13a", "zh", "char"]


def test_languages_without_spaces_are_scored_by_sacrebleu_s_tokenizer():
    sacrebleu = pytest.importorskip("sacrebleu")
    references, found = ["我喜欢读书和写字。", "今天天气很好。"], ["我喜欢读书和唱歌。", "今天天气很好。"]
    assert scores.score(references, references, "zh")["bleu"] == pytest.approx(100)
    scored = scores.score(found, references, "zh")
    expected = sacrebleu.BLEU(trg_lang="zh").corpus_score(found, [references])
    assert scored["bleu"] == scored["tokenized_bleu"] == expected.score and "tok:zh" in scored["bleu_signature"]
    assert [row["words"] for row in scores.by_length(found, references, "zh")] == [[6, 10]]
    assert scores.score(["สวัสดีชาวโลก"], ["สวัสดีชาวโลก"], "th")["bleu"] == pytest.approx(100)


def test_a_translator_that_is_hardly_trained_says_so(tmp_path):
    assert "has no evaluation: if its training was stopped, `apformer resume" in scores.doubt(tmp_path)
    for bleu, sentence in ((2.5, "2.50 BLEU and 20.00 chrF"), (None, "20.00 chrF")):
        write_json(tmp_path / "evaluation.json", {"exact": 0.0, "bleu": bleu, "chrf": 20.0})
        assert f"is hardly trained, and reached {sentence} on its test sentences" in scores.doubt(tmp_path)
    write_json(tmp_path / "evaluation.json", {"exact": 0.0, "bleu": 39.3, "chrf": 64.0})
    assert scores.doubt(tmp_path) is None


def test_scores_without_their_libraries_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match="scores need the text extra"):
        scores.require()


def test_two_vocabularies_from_the_data_to_the_page(tmp_path, fails, without_figures):
    """Figures and words share no byte pair then, nor an embedding; the sides' ends are other tokens."""
    data = replace(small_runs.SENTENCES, vocabularies="apart", byte_pairs=270)
    path = small_runs.KINDS["pairs"](tmp_path / "run", data=data)
    fails("has a tokenizer for each language: name ", USAGE, "tokenize", path)
    settings, (source, target) = restore.load_settings(path), vocabularies.load(path)
    sizes = (settings.model.source_vocab_size, settings.model.target_vocab_size)
    assert not settings.model.share_embeddings and sizes == (source.vocab_size + 1, target.vocab_size + 1)
    params, *_ = restore.load_params(path, settings)
    assert sizes == tuple(len(params[side]["embedding"]["table"]) for side in ("encoder", "decoder"))
    part = restore.load_rows(path)["train"][0]
    assert part.source_NS[0, part.source_lengths_N[0] - 1] == source.vocab_size
    assert part.target_NT[0, part.target_lengths_N[0] - 1] == target.vocab_size
    data, _ = test_page.read(path / "report.html")
    assert data["missing"] == {} and data["source_words"]["end"] == source.vocab_size
    for words, tokenizer in ((data["source_words"], source), (data, target)):
        assert words["vocabulary"][:-1] == [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]


def test_a_result_is_of_the_average_or_of_the_checkpoint_whose_parameters_it_names(first, tmp_path):
    """A file of the run names both by step 6."""
    copy, settings = shutil.copytree(first, tmp_path / "copy"), restore.load_settings(first)
    settings = replace(settings, training=replace(settings.training, average=2))
    before, last = (restore.load_params(first, settings, step=step)[0] for step in (4, 6))
    for params in (restore.load_params(first, settings)[0], last):
        files.write_json(copy / "told.json", {"step": 6, "member": 0, "parameters_sha256": digest(params)})
        _, found = restore.load_result(copy, settings, "told.json")
        jax.tree.map(np.testing.assert_array_equal, found, params)
    files.write_json(copy / "told.json", {"step": 6, "member": 0, "parameters_sha256": digest(before)})
    with pytest.raises(UserError, match="is of other parameters than those of step 6"):
        restore.load_result(copy, settings, "told.json")


def test_the_loss_is_that_of_smoothed_labels_of_a_batch_and_of_all_validation_pairs(trained):
    settings, params, _ = trained
    settings, rows = pair_task.load(replace(settings, data=replace(settings.data, widths=(6, 12))))
    widths, sizes = settings.data.widths, batches.rows_of((6, 12), settings.training.batch_size)
    predict = jax.jit(pair_task.predict, static_argnums=2)

    def totals(part):
        """Summed loss and number of the target tokens."""
        logits_BTV, weights_BT = predict(params, part, settings.model)
        return np.array([(token_nats(logits_BTV, part.target_NT, 0.1) * weights_BT).sum(), weights_BT.sum()])

    loss_fn = jax.jit(pair_task.make_loss(replace(settings, model=replace(settings.model, dropout=0.0))))
    batch = pair_task.sample(jax.random.key(0), settings, jax.tree.map(jnp.asarray, rows["train"]))
    branch = int(batch.branch)
    nats, count = totals(batches.unpack(batch.flat, sizes[branch], widths[branch]))
    assert float(loss_fn(params, batch, jax.random.key(1))[0]) == pytest.approx(nats / count, rel=1e-4)
    nats, count = sum(totals(part) for part in rows["validation"] if len(part.source_NS))
    assert float(loss_fn(params, pair_task.validation(settings, rows), None)[0]) == pytest.approx(
        nats / count, rel=1e-4
    )


def test_the_command_translates_a_sentence_as_it_does_in_a_file(run, tmp_path, capsys, says, monkeypatch):
    file = tmp_path / "numbers.txt"
    file.write_text("7\n231\n\n400\n日19\n   \n", "utf-8")
    cli.main(["translate", str(run), "--file", str(file)])
    together, said = capsys.readouterr()
    assert "on its test sentences" in said and "never seen in training: '日'\n" in said
    together = together.splitlines()
    assert [not text for text in together] == [0, 0, 1, 0, 0, 1]
    assert says("translate", run, "231") == f"{together[1]}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"231\r\n\n\n")))
    assert says("translate", run, "--file", "-").splitlines() == [together[1], "", ""]
    (answer,) = json.loads(says("translate", run, "--json", "231"))["translations"]
    assert answer == {"source": "231", "translation": together[1]}


def test_a_search_shows_its_progress_from_before_its_first_program(run, trained, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    cli.main(["translate", str(run), "231"])
    assert "translate:   0%" in sys.stderr.getvalue()
    settings, params, tokenizer = trained
    sources = pair_task.encode_side(tokenizer, ["7", "", "231"], "here", settings.data)
    told = []
    searching.search(sources, params, settings, progress=lambda done, total: told.append(done))
    assert told[0] == 0 and told[-1] == 2


def test_learned_positions_serve_the_longest_sentences_they_have(trained):
    """Sources are padded to multiples of 8, but never beyond the positions there are: nothing of it can be seen."""
    settings = trained[0]
    narrow, wider = (
        replace(
            settings,
            data=replace(settings.data, longest=longest),
            model=replace(settings.model, position="learned", max_len=longest),
            options=replace(settings.options, beams=1),
        )
        for longest in (20, 24)
    )
    more, shapes = draw_params(wider.model), draw_params(narrow.model)
    fewer = jax.tree.map(lambda leaf, like: leaf[tuple(map(slice, like.shape))], more, shapes)
    sources = [np.arange(length, dtype=np.int32) for length in (17, 20)]
    found = searching.search(sources, fewer, narrow)
    expected = searching.search(sources, more, wider)
    for tokens_T, expected_T in zip(found, expected, strict=True):
        np.testing.assert_array_equal(tokens_T, expected_T[:20])


def test_a_search_by_one_beam_is_drawing_at_no_temperature(trained):
    settings, params, tokenizer = trained
    sources = pair_task.encode_side(tokenizer, ["7", "231"], "here", settings.data)
    greedy = searching.search(sources, params, replace(settings, options=replace(settings.options, beams=1)))
    cold = searching.search(sources, params, settings, temperature=1e-4)
    jax.tree.map(np.testing.assert_array_equal, greedy, cold)
    warm = [searching.search(sources, params, settings, 2.0, seed)[1].tolist() for seed in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]


def test_a_translation_is_one_line(run, says, monkeypatch):
    monkeypatch.setattr(translation, "translate", lambda *_: ["a\rb\nc"])
    assert says("translate", run, "231") == "a b c\n"


@pytest.mark.parametrize(
    ("words", "sentence", "exit_code"),
    [
        ("translate RUN 7 --beams 0", "--beams 0 is out of range: give 1 to 32767", USAGE),
        ("translate RUN 7 --temperature -1", "--temperature -1.0 is out of range", USAGE),
        ("translate RUN", "a sentence is missing: give a sentence in quotes", USAGE),
        ("translate RUN --file nowhere.txt", "nowhere.txt cannot be read", DATA),
        (f"translate RUN {'9' * 400}", "more than 128: translate shorter sentences", DATA),
        ("certify RUN", " and `apformer certify` takes runs of ", USAGE),
        ("export RUN --to stablehlo", "reads two texts: give --to safetensors", USAGE),
    ],
)
def test_commands_say_what_they_cannot_do_with_a_translator(run, fails, words, sentence, exit_code):
    fails(sentence, exit_code, *words.replace("RUN", str(run)).split())


def test_its_page_holds_what_it_was_asked_and_how_it_answered(run, trained):
    settings, params, _ = trained
    data, _ = test_page.read(run / "report.html")
    assert data["missing"] == {} and len(data["ablation"]) == 1 + len(ablate.parts(params))
    end, probe = settings.model.target_vocab_size - 1, data["probe"]
    assert all(row[-1] == end for row in probe["sources"] + probe["tokens"])
    pairs = zip(*corpus.read(settings.data)["validation"][:2], strict=True)
    assert set(zip(data["examples"], data["references"], strict=True)) <= set(pairs)
    assert data["wrong"]["head"][-1] == "reference" and 0 < len(data["wrong"]["rows"]) <= 80


@pytest.mark.parametrize(
    ("flags", "sentence", "exit_code"),
    [
        (
            "--largest 999999 --numbers 30000 --source {file} --target {file} --validation {file} {file} "
            "--test {long} {long}",
            "{long}: '" + "\u0436" * 40 + "' has 301 tokens with its end, more than 128",
            DATA,
        ),
        ("--source {file} --target {file}", "--largest is of number words, and --source gives the", USAGE),
        ("--label_smoothing 1", "--label_smoothing 1.0 is out of range", USAGE),
        ("--ema 1", "--ema 1.0 is out of range: give at least 0 and less than 1", USAGE),
        ("--average 9", "--average 9 is of more checkpoints than --keep 3", USAGE),
        ("--widths 1 12", "--widths 1 has no training pair: leave it out", USAGE),
        ("--longest 3 --widths 3", "give a greater --longest, or --too_long cut", DATA),
    ],
)
def test_pairs_that_cannot_be_trained_on(tmp_path, fails, flags, sentence, exit_code):
    names = {name: tmp_path / f"{name}.txt" for name in ("file", "long")}
    names["file"].write_text("one\ntwo\n")
    names["long"].write_text("\u0436" * 150 + "\n")
    words = flags.format(**names).split()
    fails(sentence.format(**names), exit_code, "train", *FLAGS, *words, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()
