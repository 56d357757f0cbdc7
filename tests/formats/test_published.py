"""A published GPT-2 is told from one that is not: sizes, names, shapes, sums, tokenizer, and what to do about each."""

import shutil
from dataclasses import replace

import jax
import pytest

from apformer import cli
from apformer.errors import CHECKPOINT, DATA
from apformer.formats import gpt2, published
from apformer.tokenizers import text

pytest.importorskip("safetensors", reason='GPT-2 folders need the text extra: pip install -e ".[text]"')

TINY = replace(gpt2.SIZES["gpt2"], vocab_size=257, d_model=6, n_heads=2, n_layers=2, max_len=13)
SIZES = {"gpt2": TINY, "gpt2-medium": replace(TINY, n_layers=3)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, random_params):
    path = tmp_path_factory.mktemp("published") / "folder"
    gpt2.save(path, random_params(TINY), TINY)
    (path / "tokenizer.json").write_text(text.train_byte_pairs("hello world, hello", 257).to_json())
    return path


@pytest.fixture
def small(folder, monkeypatch):
    """As though two sizes had been published that fit a test, with the files of `folder`."""
    tokenizer = text.train_byte_pairs("hello world, hello", 257)
    monkeypatch.setattr(gpt2, "SIZES", SIZES)
    monkeypatch.setattr(published, "WEIGHTS", {"gpt2": published.sha256(folder / "model.safetensors")})
    monkeypatch.setattr(published, "TOKENIZER", {"tokenizer.json": published.sha256(folder / "tokenizer.json")})
    monkeypatch.setattr(published, "VOCABULARY", 257)
    monkeypatch.setattr(published, "MERGES", 1)
    monkeypatch.setattr(published, "KNOWN_TOKENS", ("hello world", tokenizer.encode("hello world").tolist()))
    return folder


@pytest.fixture
def copy(small, tmp_path):
    shutil.copytree(small, tmp_path / "copy")
    return tmp_path / "copy"


def say(folder):
    return {what: (says, code) for what, says, code in published.findings(folder)}


def test_a_whole_folder_is_sound(small, says):
    said = say(small)
    assert [code for _, code in said.values()] == [0, 0, 0, 0]
    assert said["config.json"][0] == "gpt2: every field as published"
    assert "all names and shapes as in config.json, all finite" in said["weights"][0]
    assert said["sha256"][0] == "model.safetensors: the published one"
    assert said["tokenizer"][0] == "257 tokens, 1 merges, the published files"
    assert says("doctor", "gpt2", small).count("sound ") == 2 * says("doctor", small).count("sound ") == 4


def test_what_is_missing_is_named_with_the_command_that_fetches_it(copy, capsys):
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (copy / name).unlink()
        assert cli.main(["doctor", "gpt2", str(copy)]) == (DATA if name == "tokenizer.json" else CHECKPOINT)
        out, err = capsys.readouterr()
        assert f"`hf download gpt2 {name} --local-dir {copy}` fetches " in out and "is not sound" in err


def test_other_numbers_have_another_sum(copy, random_params):
    (copy / "model.safetensors").unlink()
    gpt2.save(copy.parent / "again", jax.tree.map(lambda leaf: leaf * 2, random_params(TINY)), TINY)
    shutil.copy(copy.parent / "again" / "model.safetensors", copy)
    says, code = say(copy)["sha256"]
    assert code == CHECKPOINT and "is not the published one" in says and "is damaged; `hf download gpt2" in says
    assert f"--local-dir {copy}-published`" in says  # not over weights that may have been trained further
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:-1])
    assert say(copy)["weights"][1] == CHECKPOINT
