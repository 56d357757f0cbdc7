"""A run of word vectors: judged, shown on a page and asked for neighbours."""

import numpy as np
import pytest

from apformer import cli, runs, word2vec
from apformer.errors import DATA, USAGE, UserError
from apformer.files import read_json
from apformer.runs import metrics, recipes, restore
from apformer.tasks.words import corpus, nearest, training
from tests.report import test_page

pytestmark = pytest.mark.long

CLUSTERS, SIZE = 5, 7
EVERY = [f"c{c}w{w}" for c in range(CLUSTERS) for w in range(SIZE)]
FLAGS = (
    "--recipe words --steps 300 --log_every 100 --save_every 100 --batch_size 64 --d_model 11 --min_count 1 --window 3 "
    f"--subsample 1 --learning_rate 0.02 --words {','.join(EVERY)} --neighbours 6"
).split()


def planted(passages=400, length=9):
    """Passages that each draw their words from one cluster: c0w0 to c0w6, c1w0 ..."""
    rng = np.random.default_rng(0)
    cluster_B, word_BT = rng.integers(0, CLUSTERS, passages), rng.integers(0, SIZE, (passages, length))
    return "\n\n".join(" ".join(f"c{c}w{w}" for w in row) for c, row in zip(cluster_B, word_BT, strict=True))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "planted.txt"
    path.write_text(planted())
    return path


def train(file, path, *flags):
    return cli.main([str(word) for word in ["train", *FLAGS, "--text", file, "--run_dir", path, *flags]])


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    assert train(file, path) == 0
    return path


def test_planted_clusters_are_recovered(run):
    """All neighbours of all words are of their cluster: the six nearest are its six other words."""
    near = read_json(run / "evaluation.json")["neighbours"]
    strays = [(word, v) for word, row in near.items() for v, _ in row if v[:2] != word[:2]]
    assert sorted(near) == EVERY and not strays


def test_the_validation_loss_is_that_of_the_last_part_of_the_text(run):
    settings, rows = restore.load_settings(run), restore.load_rows(run)
    assert settings.model.vocab_size == len(rows.vocabulary) == CLUSTERS * SIZE
    assert (int(rows.train.length), int(rows.validation.length)) == (3240, 360) and rows.counts_V.sum() == 3600
    words = [rows.vocabulary[k] for part in (rows.train, rows.validation) for k in part.words_T.tolist()]
    assert words == planted().split()
    batch = training.validation(settings, rows)
    found, _ = word2vec.loss(runs.load(run).params, batch.windows, None, settings.model, batch.noise_V)
    evaluation = read_json(run / "evaluation.json")
    by_step = {record["step"]: record for record in metrics.read_metrics(run)}
    assert evaluation["nats"] == pytest.approx(float(found), rel=1e-5)
    assert by_step[evaluation["step"]]["validation_loss"] == pytest.approx(evaluation["nats"], rel=1e-5)


def test_neighbours_are_printed_by_a_command(run, says, tmp_path, monkeypatch):
    vocabulary = [line.split("\t")[0] for line in (run / corpus.FILE).read_text().splitlines()]
    nearest_K, cosine_K = word2vec.nearest(runs.load(run).params, [vocabulary.index("c3w6")], [1], 2)
    names = [f"{vocabulary[v]} {c:.2f}" for v, c in zip(nearest_K, cosine_K, strict=True)]
    lines = says("neighbours", run, "c0w0", "C3W6", "--neighbours", 2).splitlines()
    assert [line.split()[0] for line in lines] == ["c0w0", "c3w6"] and lines[1] == f"c3w6  {', '.join(names)}"
    # Within a cluster, from one to another.
    said = says("neighbours", run, *"c0w0 - c0w1 + C3W6".split(), "--neighbours", 1)
    assert said.startswith("c0w0 - c0w1 + c3w6  c3w")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/latest").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    lines = says("neighbours").splitlines()
    assert [line.split()[0] for line in lines] == [vocabulary[2**k - 1] for k in range(6)]


def test_commands_that_it_cannot_follow_are_refused(run, fails):
    for command, sentence in (
        (["neighbours", run, "c0w0 - c0w0"], "the words of c0w0 - c0w0 cancel out"),
        (["neighbours", run, "c9w9"], f"c9w9 is none of the 35 words of {run}: ask for a word such as c"),
        (["neighbours", "runs/none", "c0w0"], "runs/none is not a directory"),
        (["neighbours", run, "--neighbours", "0"], "--neighbours 0 is out of range: give 1 to 2147483647"),
        (["export", run, "--to", "stablehlo"], f"{run} reads windows of words: give --to safetensors"),
    ):
        fails(sentence, USAGE, *command)


def test_flags_are_refused_before_anything_is_made(file, tmp_path, fails):
    for flags, code, sentence in (
        ("--words king,C3W66", USAGE, "--words king is none of the 35 words that occur 1 times or more"),
        ("--min_count 1000", DATA, "has 0 words that occur 1000 times or more, too few"),
        ("--d_model 1", USAGE, "--d_model 1 is out of range: give 2 to"),
        ("--window 0", USAGE, "--window 0 is out of range: give 1 to 2147483647"),
        ("--subsample 1e-9", USAGE, "--subsample 1e-09 leaves no two words of "),
        ("--subsample 0", USAGE, "--subsample 0.0 is out of range: give more than 0 and at most 1"),
        ("--validation_share 1", USAGE, "--validation_share 1.0 is out of range"),
        ("--variant glove", USAGE, "--variant"),
    ):
        fails(sentence, code, "train", *FLAGS, "--text", file, "--run_dir", tmp_path / "run", *flags.split())
        assert not (tmp_path / "run").exists()


def settings_of(*flags):
    return recipes.parse(["--recipe", "words", *map(str, flags)])


def test_frequent_words_are_thinned_out_of_a_text_and_not_of_progressions(file):
    assert settings_of("--text", file).data.subsample == 3e-4 and settings_of().data.subsample == 1
    assert settings_of("--text", file, "--subsample", 0.5).data.subsample == 0.5


def test_a_word_that_is_missing_is_no_reason_to_ask_for_a_frequent_one(tmp_path):
    """`in` is spelled like `king` more than any other word here, and its neighbours say nothing."""
    (tmp_path / "text.txt").write_text("in in in in the the the crown crown throne sword")
    vocabulary = corpus.read(settings_of("--text", tmp_path / "text.txt", "--min_count", 1).data).vocabulary
    assert [nearest.similar(word, vocabulary) for word in ("king", "throns")] == ["crown", "throne"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("to be to be", "has 2 words that occur 1 times or more, too few to have neighbours: give a longer text"),
        ("to\n\nbe\n\nor", "too few to have neighbours"),
        ("to be or not\n\nto", "the validation part of {path} has no two words of one passage: give a longer text"),
    ],
)
def test_a_bad_text_is_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(content)
    with pytest.raises(UserError) as fault:
        corpus.read(settings_of("--text", path, "--min_count", 1).data)
    assert fault.value.exit_code == DATA and sentence.format(path=path) in str(fault.value)


def test_the_page_shows_the_words_and_says_that_it_cannot_run_the_model(run):
    data, _ = test_page.read(run / "report.html")
    evaluation = read_json(run / "evaluation.json")
    assert data["missing"] == {"weights": "This page cannot run a model of the architecture word2vec."}
    assert data["leaves"] == [] and data["vocabulary"] == evaluation["plane"]["words"]
    assert data["embedding"]["points"] == evaluation["plane"]["points"]
    assert [row[0] for row in data["right"]["blocks"][0]["rows"]] == [*evaluation["neighbours"]]
