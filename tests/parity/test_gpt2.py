"""Four GPT-2 models of random weights: `transformers` and we compute, generate and train the same."""

from copy import deepcopy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apformer import model
from apformer.formats import gpt2, gpt2_tensors
from apformer.loss import cross_entropy
from tests.helpers.small_models import apply
from tests.parity import published, reference
from tests.parity.published import torch, transformers

pytestmark = pytest.mark.parity

B, T, V, GENERATED = 2, 9, 53, 50
COUNT = 4
OPTIONS = {
    "n_head": (1, 2, 3, 5),
    "head_width": (2, 4, 7),
    "n_layer": (1, 2, 5),
    "n_positions": (T + GENERATED, 64, 101),
    "n_inner": (None, 11),
    "activation_function": ("gelu_new", "gelu", "relu", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5, 1e-2),
    "scale_attn_weights": (True, True, False),
    "tie_word_embeddings": (True, False),
    "reorder_and_upcast_attn": (False, False, True),
}


def configurations():
    """Each value of each option about equally often, in random company."""
    rng = np.random.default_rng(0)
    columns = [rng.permutation(np.resize(np.arange(len(values)), COUNT)) for values in OPTIONS.values()]
    rows = zip(*columns, strict=True)
    return [{name: OPTIONS[name][i] for name, i in zip(OPTIONS, row, strict=True)} for row in rows]


@pytest.fixture(scope="module", params=configurations(), ids=lambda options: "-".join(map(str, options.values())))
def pair(request, tmp_path_factory):
    """(their model in float64, our cfg and params read from the folder that it wrote, that folder)."""
    options = dict(request.param)
    d_model = options["n_head"] * options.pop("head_width")
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = transformers.GPT2Config(vocab_size=V, n_embd=d_model, **options, **ids)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, x in theirs.named_parameters():
            gain = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
            x.copy_(0.3 * torch.randn_like(x) + (1.0 if gain else 0.0))
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(folder)
    cfg, params = gpt2.load(folder)
    assert cfg.dropout == 0.1 and jax.tree.leaves(params)[0].dtype == jnp.float64
    return theirs, cfg, params, folder


def draw_tokens():
    return np.random.default_rng(1).integers(0, V, (B, T)).astype(np.int32)


def test_every_value_of_every_option_is_there():
    for name, values in OPTIONS.items():
        assert {options[name] for options in configurations()} == set(values)


def test_logits(pair):
    theirs, cfg, params, _ = pair
    tokens_BT = draw_tokens()
    np.testing.assert_allclose(
        apply(params, tokens_BT, cfg), published.logits_of(theirs, tokens_BT), rtol=0, atol=1e-10
    )


def test_fifty_greedy_tokens(pair):
    theirs, cfg, params, _ = pair
    published.same_greedy(theirs, params, cfg, draw_tokens(), GENERATED, jnp.float64)


def test_one_step_of_adamw(pair):
    """With the same decay on every parameter."""
    theirs, cfg, params, _ = pair
    theirs, tokens_BT = deepcopy(theirs), draw_tokens()

    def our_loss(params):
        logits_BTV = model.apply(params, tokens_BT[:, :-1], cfg)
        return cross_entropy(logits_BTV, tokens_BT[:, 1:], jnp.ones((B, T - 1)))

    # The bias of a key has no gradient but rounding, of which a smaller epsilon would make a step.
    rule = optax.adamw(1e-3, 0.9, 0.95, eps=1e-6, weight_decay=0.3)

    @jax.jit
    def step(params):
        loss, gradients = jax.value_and_grad(our_loss)(params)
        with jax.numpy_dtype_promotion("standard"):
            updates, _ = rule.update(gradients, rule.init(params), params)
            return loss, optax.apply_updates(params, updates)

    loss, after = step(params)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.3)
    optimizer.zero_grad()
    inputs = torch.tensor(tokens_BT).long()
    # Not the loss that the model itself computes, which is in float32.
    their_loss = reference.mean_nats(theirs(inputs).logits[:, :-1], inputs[:, 1:], torch.ones(B, T - 1))
    their_loss.backward()
    optimizer.step()
    np.testing.assert_allclose(loss, their_loss.item(), rtol=1e-12)
    expected = {name.removeprefix("transformer."): x.detach().numpy() for name, x in theirs.named_parameters()}
    ours = gpt2_tensors.from_params(after, cfg)
    assert ours.keys() == expected.keys()
    for name, x in ours.items():
        np.testing.assert_allclose(x, expected[name], rtol=0, atol=1e-10, err_msg=name)


def test_transformers_opens_what_we_save(pair, tmp_path):
    """The same numbers under the same names, bit for bit; the logits differ by how their memory is aligned."""
    theirs, cfg, params, _ = pair
    gpt2.save(tmp_path / "saved", params, cfg)
    again, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(report.values()), report
    assert again.dtype == torch.float64
    assert again.state_dict().keys() == theirs.state_dict().keys()
    for name, x in again.state_dict().items():
        assert torch.equal(x, theirs.state_dict()[name]), name
    tokens_BT = draw_tokens()
    expected = published.logits_of(theirs, tokens_BT)
    np.testing.assert_allclose(published.logits_of(again.eval(), tokens_BT), expected, rtol=0, atol=1e-12)
