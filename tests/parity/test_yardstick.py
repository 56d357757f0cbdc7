"""The yardstick of training times: nanoGPT's character model for a CPU."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="the yardstick needs PyTorch: pip install -e '.[parity]'")
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "bench"))
yardstick = importlib.import_module("yardstick")
sys.path.pop(0)


def test_it_has_the_shape_of_the_published_model():
    """0.80 million parameters, which nanoGPT prints; without positions 795,904."""
    sizes = yardstick.CONTEXT, yardstick.D_MODEL, yardstick.HEADS, yardstick.LAYERS
    assert sizes == (64, 128, 4, 4)
    model = yardstick.Decoder(yardstick.VOCABULARY, *sizes)
    assert sum(leaf.numel() for leaf in model.parameters()) - model.position.weight.numel() == 795_904


def test_no_position_sees_what_comes_after_it():
    torch.manual_seed(0)
    model = yardstick.Decoder(7, 5, 6, 2, 3)
    tokens_BT = torch.randint(7, (2, 5))
    changed_BT = tokens_BT.clone()
    changed_BT[:, 3] = (changed_BT[:, 3] + 1) % 7
    before_BTV, after_BTV = model(tokens_BT), model(changed_BT)
    assert torch.equal(before_BTV[:, :3], after_BTV[:, :3]) and not torch.equal(before_BTV[:, 3:], after_BTV[:, 3:])


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    model, tokens_N = yardstick.Decoder(7, 5, 6, 2, 1), torch.arange(100) % 7
    train = yardstick.trainer(model, tokens_N, context=5, batch=8)

    def loss():
        return torch.nn.functional.cross_entropy(model(tokens_N[None, :5])[0], tokens_N[1:6]).item()

    before = loss()
    train(20)
    assert loss() < before
