"""A folder that `apformer export` writes: `transformers` cuts text into the same tokens and writes the same fifty.

So it does after each crossing: from here to there, fine-tuned there and back, trained further here and there again.
"""

import json
import shutil

import jax
import numpy as np
import pytest

from apformer import model
from apformer.formats import gpt2
from apformer.tokenizers import pretrained
from tests.helpers.own_process import python
from tests.parity import published
from tests.parity.published import torch, transformers

pytestmark = pytest.mark.parity

TEXT = "".join(f"  {k} bottles of ale, they'd say; \U0001f642 wall {1000 + 7 * k}.\n" for k in range(300))
PROMPT, GENERATED = "7 bottles of ale, they'd", 50
FLAGS = "--recipe text --rule adamw --batch_size 4 --context 96 --log_every 10 --save_every 20 --warmup_steps 2".split()
SHAPE = "--steps 60 --tokenizer byte_pairs --d_model 24 --n_heads 2 --n_layers 2 --vocab_size 300".split()
FURTHER = "--steps 20 --learning_rate 0.01 --lora_rank 4".split()


def apformer(*commands):
    """What commands print, in one process of their own: here numbers have 64 bits."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    program = "import json, sys; from apformer import cli; sys.exit(any(map(cli.main, json.loads(sys.argv[1]))))"
    return python("-c", program, words).stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A model trained from scratch, which has no biases in attention, and adapters of its GPT-2 folder."""
    path = tmp_path_factory.mktemp("finetune")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    start = ["train", *FLAGS, "--text", path / "text.txt", "--run_dir"]
    apformer(
        [*start, path / "scratch-run", *SHAPE],
        ["export", path / "scratch-run", "--to", "gpt2", "--out", path / "scratch"],
        [*start, path / "adapters-run", *FURTHER, "--init_from", path / "scratch"],
        ["export", path / "adapters-run", "--to", "gpt2", "--out", path / "adapters"],
    )
    return path


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def same_fifty(theirs, folder):
    """The fifty greedy tokens after the prompt, after both have written them and their logits are the same to 1e-5."""
    cfg, params = gpt2.load(folder)
    tokens_T = pretrained.load(folder).encode(PROMPT)
    logits_BTV = jax.jit(model.apply, static_argnums=2)(params, tokens_T[None], cfg)
    np.testing.assert_allclose(logits_BTV, published.logits_of(theirs, tokens_T[None]), rtol=0, atol=1e-5)
    ours_BN = published.same_greedy(theirs, params, cfg, tokens_T[None], GENERATED)
    assert len(set(ours_BN[0].tolist())) > 3  # the model has learned to say more than one token
    return ours_BN[0]


def test_fifty_greedy_tokens(runs):
    same_fifty(opened(runs / "adapters"), runs / "adapters")


def test_there_and_back(runs, tmp_path):
    """A run, fine-tuned by `transformers`, saved there in shards, trained further here, and opened there again."""
    theirs, there = opened(runs / "scratch"), tmp_path / "there"
    tokens = torch.tensor(pretrained.load(runs / "scratch").encode(TEXT[:2000])[:280].reshape(7, 40)).long()
    rule = torch.optim.AdamW(theirs.parameters(), lr=1e-3)
    for _ in range(5):
        theirs(tokens, labels=tokens).loss.backward()
        rule.step()
        rule.zero_grad()
    theirs.save_pretrained(there, max_shard_size="20KB")
    shutil.copy(runs / "scratch" / "tokenizer.json", there)
    assert len([*there.glob("*.safetensors")]) > 2
    before, after = same_fifty(opened(runs / "scratch"), runs / "scratch"), same_fifty(theirs, there)
    assert (gpt2.load(there)[1]["embedding"]["table"] != gpt2.load(runs / "scratch")[1]["embedding"]["table"]).any()
    greedy = ["--temperature", 0, "--tokens", GENERATED, "--prompt", PROMPT]
    start = ["train", *FLAGS, "--text", runs / "text.txt", "--run_dir", tmp_path / "run", "--steps", 20]
    back = ["export", tmp_path / "run", "--to", "gpt2", "--out", tmp_path / "back"]
    written = apformer(["generate", there, *greedy], [*start, "--init_from", there], back)
    assert written.startswith(PROMPT + pretrained.load(there).decode(after) + "\n")
    again = same_fifty(opened(tmp_path / "back"), tmp_path / "back")
    assert len(before) == len(again) == GENERATED
