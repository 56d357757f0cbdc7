"""The logits that a token is drawn from, as `transformers` makes them while it generates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.decoding.bind import bind
from apformer.decoding.generate import Sampling, scores
from apformer.formats import gpt2

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install -e '.[parity]'")

pytestmark = pytest.mark.parity

B, T, V, GENERATED = 3, 9, 53, 9


def filtered(logits_BV, row_BT, **numbers):
    """What a token is drawn from after a row."""
    seen_BV = (row_BT[:, :, None] == np.arange(V)).any(1)
    return jax.jit(scores)(logits_BV, Sampling(**numbers), seen_BV)


def same(ours_BV, theirs_BV, atol):
    """The same tokens are left, with the same logits but for a number that is added to each row."""
    np.testing.assert_allclose(ours_BV, theirs_BV - theirs_BV.max(-1, keepdims=True), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(their model in float64, our Model of the folder that it wrote)."""
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = transformers.GPT2Config(vocab_size=V, n_embd=12, n_head=3, n_layer=2, n_positions=T + GENERATED, **ids)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for x in theirs.parameters():
            x.copy_(0.5 * torch.randn_like(x))
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(folder)
    cfg, params = gpt2.load(folder)
    return theirs, bind(model, params, cfg)


@pytest.mark.parametrize(
    ("penalty", "filters"),
    [
        (1.4, {}),
        (1.0, {"temperature": 0.7, "top_p": 0.8}),
        (1.2, {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.1}),
        (0.8, {"temperature": 0.6, "top_k": 30, "top_p": 0.7, "min_p": 0.02}),
    ],
)
def test_all_come_in_the_order_of_transformers_while_a_text_is_drawn(pair, penalty, filters):
    """With a cache and without; of the tokens that `transformers` has drawn, which it does in float32."""
    theirs, ours = pair
    prompt_BT = np.random.default_rng(1).integers(0, V, (B, T)).astype(np.int32)
    inputs = torch.tensor(prompt_BT).long()
    torch.manual_seed(2)
    drawn = theirs.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=GENERATED,
        do_sample=True,
        repetition_penalty=penalty,
        **{"temperature": 1.0, "top_k": 0, "top_p": 1.0} | filters,
        return_dict_in_generate=True,
        output_scores=True,
    )
    whole_BT = drawn.sequences.numpy().astype(np.int32)
    uncached_BTV = jax.jit(ours.apply)(whole_BT)
    extend = jax.jit(ours.extend)
    cache = jax.tree.map(_wide, ours.init_cache(B, T + GENERATED))
    logits_BTV, cache = extend(prompt_BT, cache, jnp.full(B, T))
    for n, expected in enumerate(drawn.scores):
        numbers, row_BT = {"repetition_penalty": penalty} | filters, whole_BT[:, : T + n]
        same(filtered(logits_BTV[:, -1], row_BT, **numbers), expected.numpy(), 1e-5)
        same(filtered(uncached_BTV[:, T + n - 1], row_BT, **numbers), expected.numpy(), 1e-5)
        logits_BTV, cache = extend(whole_BT[:, T + n : T + n + 1], cache)


def _wide(x):
    return x.astype(jnp.float64) if x.dtype == jnp.float32 else x


@pytest.mark.parametrize("seed", range(4))
def test_in_float64_all_are_the_processors_of_transformers(seed):
    rng = np.random.default_rng(seed)
    logits_BV, row_BT = rng.normal(0, 3, (B, V)), rng.integers(0, V, (B, T)).astype(np.int32)
    temperature, top_p, min_p, penalty = rng.uniform((0.2, 0.1, 0.01, 0.5), (3, 0.99, 0.5, 2)).tolist()
    top_k = int(rng.integers(1, V + 9))
    processors = transformers.LogitsProcessorList(
        [
            transformers.RepetitionPenaltyLogitsProcessor(penalty),
            transformers.TemperatureLogitsWarper(temperature),
            transformers.TopKLogitsWarper(top_k),
            transformers.TopPLogitsWarper(top_p),
            transformers.MinPLogitsWarper(min_p),
        ]
    )
    theirs_BV = processors(torch.tensor(row_BT).long(), torch.tensor(logits_BV)).numpy()

    numbers = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": penalty}
    same(filtered(logits_BV, row_BT, temperature=temperature, **numbers), theirs_BV, 1e-12)
