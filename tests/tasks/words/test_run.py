"""A run of word vectors: stopped, resumed, judged, shown on a page and asked for neighbours."""

import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest

from apformer import cli, errors, runs, word2vec
from apformer.runs import checkpoint, fit, metrics, restore
from apformer.tasks.words import corpus, training
from tests.helpers.abilities import able

pytestmark = pytest.mark.long

CLUSTERS, SIZE = 5, 7
FLAGS = (
    "--recipe words --steps 12 --log_every 2 --save_every 4 --batch_size 8 --d_model 4 --min_count 1 --window 3"
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


def state_of(path, step):
    """The bytes of all leaves of a saved state."""
    abstract = fit.abstract_state(restore.load_settings(path))
    found, state = checkpoint.load(path / "checkpoints", abstract, step)
    assert found == step
    state = state._replace(key=jax.random.key_data(state.key))
    return jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), state)


@pytest.mark.usefixtures("without_pictures")
def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_bits(run, file, tmp_path, monkeypatch):
    path, steps = tmp_path / "run", []
    run_steps = fit.run_steps

    def interrupted(*args):
        steps.append(args[-1])
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return run_steps(*args)

    monkeypatch.setattr(fit, "run_steps", interrupted)
    assert train(file, path) == 128 + signal.SIGINT
    monkeypatch.undo()
    assert sorted(int(saved.name) for saved in (path / "checkpoints").iterdir()) == [4, 6]
    assert not (path / "evaluation.json").exists()
    assert cli.main(["resume", str(path)]) == 0
    assert state_of(path, 12) == state_of(run, 12)
    assert metrics.read_metrics(path)[-1]["loss"] == metrics.read_metrics(run)[-1]["loss"]
    assert (path / "neighbours.txt").read_text() == (run / "neighbours.txt").read_text()


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(("variant", "loss"), [("cbow", "softmax"), ("skip_gram", "negative")])
def test_planted_clusters_are_recovered(variant, loss, file, tmp_path):
    """All neighbours of all words are of their cluster: the six nearest are its six other words."""
    shape = f"--variant {variant} --loss {loss} --d_model 11 --steps 300 --batch_size 64 --subsample 1".split()
    asked = ["--words", ",".join(f"c{c}w{w}" for c in range(CLUSTERS) for w in range(SIZE)), "--neighbours", SIZE - 1]
    flags = [*shape, *asked, "--learning_rate", 0.02, "--log_every", 100, "--save_every", 100]
    assert train(file, tmp_path / "run", *flags) == 0
    near = json.loads((tmp_path / "run" / "evaluation.json").read_text())["neighbours"]
    strays = [(word, v) for word, row in near.items() for v, _ in row if v[:2] != word[:2]]
    assert len(near) == CLUSTERS * SIZE and not strays


def test_the_validation_loss_is_that_of_the_last_part_of_the_text(run):
    settings, rows = restore.load_settings(run), restore.load_rows(run)
    assert settings.model.vocab_size == len(rows.vocabulary) == CLUSTERS * SIZE
    assert (int(rows.train.length), int(rows.validation.length)) == (3240, 360) and rows.counts_V.sum() == 3600
    words = [rows.vocabulary[k] for part in (rows.train, rows.validation) for k in part.words_T.tolist()]
    assert words == planted().split()
    loaded = runs.load(run)
    batch = training.validation(settings, rows)
    found, _ = word2vec.loss(loaded.params, batch.windows, None, settings.model, batch.noise_V)
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["nats"] == pytest.approx(float(found), rel=1e-5)
    by_step = {record["step"]: record for record in metrics.read_metrics(run)}
    assert by_step[evaluation["step"]]["validation_loss"] == pytest.approx(evaluation["nats"], rel=1e-5)


def test_neighbours_are_printed_by_a_command(run, capsys):
    loaded = runs.load(run)
    vocabulary = [line.split("\t")[0] for line in (run / corpus.FILE).read_text().splitlines()]
    row = vocabulary.index("c3w6")
    nearest_BK, cosine_BK = word2vec.nearest(loaded.params, [row], 2)
    names = [f"{vocabulary[v]} {c:.2f}" for v, c in zip(nearest_BK[0], cosine_BK[0], strict=True)]
    capsys.readouterr()
    assert cli.main(["neighbours", str(run), "c0w0", "C3W6", "--neighbours", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["c0w0", "c3w6"] and lines[1] == f"c3w6  {', '.join(names)}"
    assert cli.main(["neighbours", str(run)]) == 0  # those of ranks 1, 2, 4, 8, 16, 32
    assert capsys.readouterr().out == (run / "neighbours.txt").read_text()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["neighbours", "{run}", "c9w9"], "c9w9 is none of the 35 words of {run}: ask for a word such as c"),
        (["neighbours", "{run}", "--neighbours", "0"], "--neighbours 0 is out of range: give 1 to 2147483647"),
        (["generate", "{run}"], "{run} is a run of words, and `apformer generate` takes runs of text"),
        (
            ["predict", "{run}", "007 010"],
            f"{{run}} is a run of words, and `apformer predict` takes runs of {able('predict')}",
        ),
        (
            ["certify", "{run}"],
            f"{{run}} is a run of words, and `apformer certify` takes runs of {able('contexts')}",
        ),
        (["export", "{run}", "--to", "stablehlo"], "{run} reads windows of words: give --to safetensors"),
        (["train", *FLAGS, "--validation_share", "1"], "--validation_share 1.0 is out of range"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(run, command, sentence, capsys):
    capsys.readouterr()
    assert cli.main([word.format(run=run) for word in command]) == errors.USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"apformer: {sentence.format(run=run)}") and err.count("\n") == 1


def test_the_page_shows_the_words_and_says_that_it_cannot_run_the_model(run):
    page = (run / "report.html").read_text()
    data = json.loads(page.split('<script id="run" type="application/json">')[1].split("</script>")[0])
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert data["missing"] == {"weights": "This page cannot run a model of the architecture word2vec."}
    assert data["leaves"] == [] and data["vocabulary"] == evaluation["plane"]["words"]
    assert data["embedding"]["points"] == evaluation["plane"]["points"]
    rows = data["right"]["blocks"][0]["rows"]
    assert [f"{word}  {near}" for word, near in rows] == (run / "neighbours.txt").read_text().splitlines()


def test_a_text_that_has_changed_is_refused_and_the_page_does_without_it(run, file, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    other = tmp_path / "other.txt"
    other.write_text(planted().replace("c0w0", "c0w1", 1))
    config["flags"]["data"]["text"] = str(other)
    (copy / "config.json").write_text(json.dumps(config))
    assert cli.main(["resume", str(copy)]) == errors.DATA
    assert "has changed since" in capsys.readouterr().err
    assert cli.main(["report", str(copy)]) == 0
    assert "c0w0" in (copy / "report.html").read_text()
