"""`experiments/gpt2_published.py` on a random small folder: each figure anew, one passage at a time, and bad input."""

import dataclasses
import json
import math

import numpy as np
import pytest

from apformer import loss
from apformer.commands import export
from apformer.errors import CHECKPOINT, DATA, USAGE
from apformer.files import read_json
from apformer.formats import gpt2
from apformer.tokenizers import pretrained, text
from tests.helpers.scripts import EXPERIMENTS, run_alone
from tests.helpers.small_models import apply

pytest.importorskip("safetensors", reason='GPT-2 folders need the text extra: pip install -e ".[text]"')

SCRIPT = EXPERIMENTS / "gpt2_published.py"
SHAPE = {"vocab_size": 258, "d_model": 6, "n_heads": 2, "n_layers": 2, "max_len": 40}
CFG = dataclasses.replace(gpt2.SIZES["gpt2"], **SHAPE)
PASSAGES = ["a few words and a last", "the bottle stands on the same wall", "short one", "the bottle stands on it"]
WIKI = " \n = Title = \n \n Some words , of a page\x0b here . \n More of it \n \n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, random_params):
    path = tmp_path_factory.mktemp("gpt2") / "folder"
    export.write_gpt2(path, random_params(CFG), CFG, text.train_byte_pairs("the bottle the wall", 258))
    return path


def test_lambada(folder, tmp_path, monkeypatch, capsys):
    file = tmp_path / "lambada.jsonl"
    file.write_text("".join(json.dumps({"text": passage}) + "\n" for passage in PASSAGES))
    assert run_alone(monkeypatch, SCRIPT, folder, "--lambada", file, "--out", tmp_path / "out.json") == 0
    out, err = capsys.readouterr()
    assert "no published size" in out and "is not the published file (sha256 4aa8d02c" in err
    found, tokenizer = read_json(tmp_path / "out.json"), pretrained.load(folder)
    params = gpt2.load(folder)[1]
    costs = []
    right = []
    for passage in PASSAGES:
        before, word = passage.rsplit(" ", 1)
        context, target = tokenizer.encode(before), tokenizer.encode(" " + word)
        row = np.concatenate([context, target])
        logits_BTV = apply(params, row[None], CFG)[:, len(context) - 1 : -1]
        costs.append(loss.token_nats(logits_BTV, target[None]).sum())
        right.append(logits_BTV[0].argmax(-1) == target)
    assert found["lambada perplexity"] == pytest.approx(math.exp(np.mean(costs)), rel=1e-5)
    assert found["lambada all tokens"] == np.mean([each.all() for each in right])
    assert found["lambada last token"] == np.mean([each[-1] for each in right])


def test_wikitext(folder, tmp_path, monkeypatch, says):
    """The text of the lines as the documentation joins them, and the figures of `apformer evaluate` on it."""
    (tmp_path / "wiki.txt").write_text(WIKI)
    expected = "\n\n = Title = \n\n\n\n\n Some words , of a page\x0b here . \n\n\n More of it \n\n\n"
    (tmp_path / "joined.txt").write_text(expected)
    out = tmp_path / "out.json"
    assert run_alone(monkeypatch, SCRIPT, folder, "--wikitext", tmp_path / "wiki.txt", "--out", out) == 0
    found = read_json(out)
    for stride in (40, 20):
        said = says("evaluate", folder, "--text", tmp_path / "joined.txt", "--stride", stride, "--json")
        assert found[f"wikitext stride {stride}"] == json.loads(said)["perplexity"]


def test_bad_input_is_one_sentence(folder, tmp_path, monkeypatch, capsys):
    def says(code, *args):
        assert run_alone(monkeypatch, SCRIPT, *args) == code
        return capsys.readouterr().err

    assert "apformer has no weights and no data" in says(USAGE, folder)
    assert "hf download gpt2" in says(USAGE, tmp_path / "none", "--lambada", "x")
    file = tmp_path / "bad.jsonl"
    for line in ("{", '{"text": "word"}', '{"text": 3}'):
        file.write_text('{"text": "a b"}\n' + line + "\nx")
        assert "line 2 is no" in says(DATA, folder, "--lambada", file)
    file.write_text(json.dumps({"text": "long " * 50 + "word"}))
    assert "the model reads 40" in says(DATA, folder, "--lambada", file)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert "holds no model.safetensors" in says(CHECKPOINT, tmp_path, "--lambada", file)
