"""A folder that fine-tuning exports: in `transformers` it cuts text into the same tokens and writes the same fifty."""

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

SCRIPT = Path(__file__).parents[2] / "experiments" / "finetune_gpt2.py"
TEXT = "".join(f"  {k} bottles of ale, they'd say; \U0001f642 wall {1000 + 7 * k}.\n" for k in range(300))
PROMPT, GENERATED = "7 bottles of ale, they'd", 50
FLAGS = (
    "--steps 20 --pretrain_steps 30 --evaluate_every 10 --batch_size 4 --context 96 "
    "--d_model 24 --n_heads 2 --n_layers 3 --vocab_size 300 --learning_rate 0.01"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("finetune")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    args = [str(path / "text.txt"), *FLAGS, "--method", "low_rank", "--run_dir", str(path / "run")]
    python_path = os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, SCRIPT, *args], check=True, env=os.environ | {"PYTHONPATH": python_path})
    return path / "run"


@pytest.fixture(params=["model", "pretrained"])  # adapters that were merged, and weights that were all trained
def folder(request, run):
    return run / request.param


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
