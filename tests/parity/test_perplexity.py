"""What a text costs a random GPT-2: as PyTorch says of the same windows, and of those that `transformers` documents."""

import jax
import numpy as np
import pytest

from apformer import model
from apformer.decoding.bind import bind
from apformer.formats import gpt2
from apformer.tasks.text import perplexity
from tests.parity.published import torch, transformers

pytestmark = pytest.mark.parity

V, WINDOW, N = 53, 8, 61


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(their model in float64, ours of the folder that it wrote)."""
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = transformers.GPT2Config(vocab_size=V, n_embd=12, n_head=3, n_layer=2, n_positions=WINDOW, **ids)
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for leaf in theirs.parameters():
            leaf.copy_(0.4 * torch.randn_like(leaf))
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(folder)
    return theirs, bind(model, *gpt2.load(folder)[::-1])


def nll(theirs, tokens, first):
    """Negative log-likelihoods of a row's tokens from number `first` on, each given all before it in the row."""
    with torch.no_grad():
        logits = theirs(tokens[None]).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")[first - 1 :]


def documented(theirs, tokens, stride):
    """The loop of https://huggingface.co/docs/transformers/perplexity, with the losses of tokens and not their mean."""
    costs = []
    before = 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + WINDOW, len(tokens))
        row = tokens[begin:end]
        if len(row) > 1:
            costs.append(nll(theirs, row, max(len(row) - (end - before), 1)))
        before = end
        if end == len(tokens):
            break
    return torch.cat(costs)


@pytest.mark.parametrize(
    ("stride", "size"), [(None, N), (None, WINDOW + 1), (1, 57), (3, N), (3, WINDOW), (WINDOW - 1, 57), (WINDOW, 2)]
)
def test_nats(pair, stride, size, monkeypatch):
    theirs, ours = pair
    monkeypatch.setattr(perplexity, "MOST_LOGITS", 3 * WINDOW * V)  # batches of three rows, the last not full
    tokens_N = np.random.default_rng(1).integers(0, V, size).astype(np.int32)
    tokens = torch.tensor(tokens_N).long()
    if stride is None:  # a window predicts the token after its last, which transformers would need to read
        logits = [theirs(tokens[None, at : at + WINDOW]).logits[0].detach() for at in range(0, size - 1, WINDOW)]
        expected = torch.nn.functional.cross_entropy(torch.cat(logits)[: size - 1], tokens[1:], reduction="none")
    else:
        expected = documented(theirs, tokens, stride)
    told = []
    found, nats = perplexity.predicted(ours, tokens_N, WINDOW, stride, lambda *at: told.append(at))
    np.testing.assert_allclose(nats, expected.numpy(), rtol=0, atol=1e-10)
    assert told[-1][0] == told[-1][1]
    if stride != WINDOW:
        np.testing.assert_array_equal(found, tokens_N[1:])
    assert jax.tree.leaves(ours.params)[0].dtype == np.float64
