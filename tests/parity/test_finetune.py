"""A folder that `apformer export` writes: `transformers` cuts text into the same tokens and writes the same fifty."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from apformer import model
from apformer.decoding.generate import generate
from apformer.formats import gpt2
from apformer.tokenizers import pretrained

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install -e '.[parity]'")

pytestmark = pytest.mark.parity

ROOT = Path(__file__).parents[2]
TEXT = "".join(f"  {k} bottles of ale, they'd say; \U0001f642 wall {1000 + 7 * k}.\n" for k in range(300))
PROMPT, GENERATED = "7 bottles of ale, they'd", 50
FLAGS = "--recipe text --batch_size 4 --context 96 --log_every 10 --save_every 10 --warmup_steps 2".split()
SHAPE = "--steps 150 --tokenizer byte_pairs --d_model 24 --n_heads 2 --n_layers 3 --vocab_size 300".split()
FURTHER = "--steps 20 --learning_rate 0.01 --lora_rank 4".split()


def apformer(*words):
    """A command in a process of its own: here numbers have 64 bits."""
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": python_path}
    subprocess.run([sys.executable, "-m", "apformer", *map(str, words)], check=True, env=env)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A model trained from scratch, which has no biases in attention, and adapters of its GPT-2 folder."""
    path = tmp_path_factory.mktemp("finetune")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    start = ["train", *FLAGS, "--text", path / "text.txt", "--run_dir"]
    apformer(*start, path / "scratch-run", *SHAPE)
    apformer("export", path / "scratch-run", "--to", "gpt2", "--out", path / "scratch")
    apformer(*start, path / "adapters-run", *FURTHER, "--init_from", path / "scratch")
    apformer("export", path / "adapters-run", "--to", "gpt2", "--out", path / "adapters")
    return path


@pytest.fixture(params=["scratch", "adapters"])
def folder(request, runs):
    return runs / request.param


def test_fifty_greedy_tokens(folder):
    cfg, params = gpt2.load(folder)
    tokens_T = pretrained.load(folder).encode(PROMPT)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    inputs = torch.tensor(tokens_T[None]).long()
    expected_BN = theirs.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=GENERATED, do_sample=False, pad_token_id=0
    )[:, inputs.shape[1] :]

    def extend(tokens_BT, cache, lengths_B=None):
        return model.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

    cache = model.init_cache(cfg, 1, len(tokens_T) + GENERATED)
    lengths_B = np.array([len(tokens_T)], np.int32)
    ours_BN = jax.jit(generate, static_argnums=(0, 4))(extend, cache, tokens_T[None], lengths_B, GENERATED)
    np.testing.assert_array_equal(ours_BN, expected_BN.numpy())
    assert len(set(ours_BN[0].tolist())) > 3  # the model has learned to say more than one token


def test_tokens_of_a_text(folder):
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), pretrained.load(folder)
    for text in (TEXT, PROMPT, "12345 WE'LL\r\n\r\n  naïve café 日本 "):
        tokens_T = ours.encode(text)
        assert theirs(text)["input_ids"] == tokens_T.tolist()
        assert theirs.decode(tokens_T.tolist(), clean_up_tokenization_spaces=False) == text
