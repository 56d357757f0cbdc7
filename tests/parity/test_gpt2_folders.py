"""GPT-2 folders as the field has them: the logits and tokens of `transformers`, or a sentence that says what to do."""

import json
import re
import shutil

import jax
import numpy as np
import pytest

from apformer.errors import UserError
from apformer.files import read_json, write_json
from apformer.formats import gpt2
from apformer.runs import language_model
from tests.parity import published
from tests.parity.published import torch, transformers

tokenizers = pytest.importorskip("tokenizers", reason="parity needs tokenizers: pip install -e '.[parity]'")
peft = pytest.importorskip("peft", reason="parity needs peft: pip install -e '.[parity]'")

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]  # of peft

TEXT = "the quick brown fox jumps over the lazy dog, naïve café. It's 2024! "
PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
V = 300
OPTIONS = {"vocab_size": V, "n_embd": 12, "n_head": 2, "n_layer": 2, "n_positions": 40}
OPTIONS |= {"bos_token_id": 0, "eos_token_id": 0}


def make(**changes):
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**OPTIONS, **changes})).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            x.copy_(0.3 * torch.randn_like(x) + (1.0 if re.search(r"ln_\w+\.weight", name) else 0.0))
    return model


@pytest.fixture(scope="module")
def words():
    level = tokenizers.pre_tokenizers.ByteLevel
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    found.pre_tokenizer, found.decoder = level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    options = {"special_tokens": ["<|endoftext|>"], "initial_alphabet": level.alphabet(), "show_progress": False}
    found.train_from_iterator([TEXT * 9], tokenizers.trainers.BpeTrainer(vocab_size=V, **options))
    return found


def saved(folder, words, model=None, **how):
    (model or make()).save_pretrained(folder, **how)
    words.save(str(folder / "tokenizer.json"))
    return folder


def split(folder, words, **beside):
    """In place of a tokenizer.json, the two old files of GPT-2 and others beside them."""
    saved(folder, words, make(vocab_size=V + 2))
    (folder / "tokenizer.json").unlink()
    content = json.loads(words.to_str())["model"]
    write_json(folder / "vocab.json", content["vocab"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in content["merges"]))
    for name, what in beside.items():
        write_json(folder / f"{name}.json", what)
    return folder


def renamed(change, **changes):
    def variant(folder, words):
        from safetensors.numpy import load_file, save_file

        saved(folder, words, make(**changes))
        tensors = change(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return variant


def prefixed(prefix):
    return renamed(lambda tensors: {prefix + name: x for name, x in tensors.items()})


def configured(change):
    def variant(folder, words):
        saved(folder, words)
        config = read_json(folder / "config.json")
        write_json(folder / "config.json", change(config))

    return variant


def buffers(tensors):
    masks = {"attn.bias": np.tril(np.ones((1, 1, 40, 40), np.uint8)), "attn.masked_bias": np.float32(-1e4).reshape(1)}
    return tensors | {f"transformer.h.{n}.{name}": x for n in range(2) for name, x in masks.items()}


def old_names(tensors):
    return {
        re.sub(r"(ln_\w)\.weight", r"\1.gamma", re.sub(r"(ln_\w)\.bias", r"\1.beta", n)): x for n, x in tensors.items()
    }


def untied_head(tensors):
    return tensors | {"lm_head.weight": tensors["transformer.wte.weight"] + 1}


def with_added(*names, rows=V + 4, **flags):
    def variant(folder, words):
        found = tokenizers.Tokenizer.from_str(words.to_str())
        found.add_tokens([tokenizers.AddedToken(name, normalized=False, **flags) for name in names])
        saved(folder, found, make(vocab_size=rows))

    return variant


def old_config(config):
    theirs = {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"}
    return {theirs.get(name, name): value for name, value in config.items()}


def without(name):
    return lambda config: {key: value for key, value in config.items() if key != name}


ADDED = {"<x>": V, "<pad>": V + 1}
DECODER = {str(V): PLAIN | {"content": "<x>"}, str(V + 1): PLAIN | {"content": "<pad>", "special": True}}
NAMED = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>", "pad_token": "<pad>"}
LIKE = {"module._orig_mod.", "pretrained_model."}  # which `transformers` reads without these
VARIANTS = {
    "without a prefix": renamed(lambda tensors: {n.removeprefix("transformer."): x for n, x in tensors.items()}),
    "with masks": renamed(buffers),
    "tied, under the head's name": renamed(
        lambda tensors: {n.replace("transformer.wte", "lm_head"): x for n, x in tensors.items()}
    ),
    "tied, under both": renamed(lambda tensors: tensors | {"lm_head.weight": tensors["transformer.wte.weight"]}),
    "names of other fields": configured(old_config),
    "without a model_type": configured(without("model_type")),
    "queries divided by layers": lambda folder, words: saved(folder, words, make(scale_attn_by_inverse_layer_idx=True)),
    "two heads": lambda folder, words: saved(folder, words, transformers.GPT2DoubleHeadsModel(make().config)),
    "of a classifier": lambda folder, words: saved(
        folder, words, transformers.GPT2ForSequenceClassification(make().config)
    ),
    "a head of values": renamed(lambda tensors: tensors | {"v_head.summary.weight": np.ones((1, 12), np.float32)}),
    "float16": lambda folder, words: saved(folder, words, make().half()),
    "bfloat16": lambda folder, words: saved(folder, words, make().bfloat16()),
    "rows without tokens": lambda folder, words: saved(folder, words, make(vocab_size=320)),
    "tokens without rows": with_added("<x>", "<pad>", rows=V),
    "added in tokenizer.json": with_added("<x>", "<pad>"),
    "added with letters of bytes": with_added("café", "đêm"),
    "added_tokens.json": lambda folder, words: split(folder, words, added_tokens=ADDED),
    "added_tokens_decoder": lambda folder, words: split(
        folder, words, tokenizer_config={"added_tokens_decoder": DECODER}
    ),
    "a special token's name": lambda folder, words: split(
        folder, words, special_tokens_map=NAMED | {"sep_token": "<y>"}
    ),
    "all three": lambda folder, words: split(folder, words, added_tokens=ADDED, tokenizer_config=NAMED),
    "GPT-2's two files": lambda folder, words: split(folder, words),
    **{prefix: prefixed(prefix) for prefix in LIKE},
    "names of TensorFlow": renamed(old_names),
}
TOKENS = np.random.default_rng(1).integers(0, 290, (2, 9)).astype(np.int32)
apply = jax.jit(lambda model, tokens_BT: model.apply(tokens_BT))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_folder_has_the_logits_and_tokens_of_transformers(name, words, tmp_path):
    VARIANTS[name](tmp_path, words)
    found = language_model.load(str(tmp_path))
    if name in {*LIKE, "names of TensorFlow"}:
        theirs = make()
    else:
        theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    expected = published.logits_of(theirs, TOKENS)
    np.testing.assert_allclose(apply(found.model, TOKENS), expected, rtol=0, atol=1e-5)
    their_words = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    if name != "without a model_type":
        their_words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (TEXT, "a <x> b<y><pad>", "the café đêm", "\n\n  <y>  "):
        if name != "tokens without rows" or "<x>" not in text:
            tokens_T = found.tokenizer.encode(text, allowed_special="all")
            assert tokens_T.tolist() == their_words(text, add_special_tokens=False)["input_ids"]
            assert found.tokenizer.decode(tokens_T) == text


def adapted(modules):
    def variant(folder, words):
        config = peft.LoraConfig(r=2, target_modules=["c_attn"], modules_to_save=modules, fan_in_fan_out=True)
        peft.get_peft_model(make(), config).save_pretrained(folder / "adapter")
        saved(folder, words)

    return variant


def chinese(folder, words):
    saved(folder, words)
    (folder / "tokenizer.json").rename(folder / "vocab.txt")


def cached(folder, words):
    (folder / "snapshots" / "abc").mkdir(parents=True)
    saved(folder / "snapshots" / "abc", words)


REFUSED = {
    "untied weights, tied by config.json": (renamed(untied_head), 'set "tie_word_embeddings" to false'),
    "BERT's words": (chinese, "`formats.gpt2.load` reads the model"),
    "the hub's cache": (cached, "give .*snapshots/abc"),
    "spaces that a token takes": (with_added("<x>", lstrip=True), "remove them, or set its lstrip"),
    "a token without a row": (with_added("<x>", "<pad>", rows=V), "remove it from the text"),
    "a space before each text": (
        lambda folder, words: split(folder, words, tokenizer_config=NAMED | {"add_prefix_space": True}),
        "set add_prefix_space to false",
    ),
    "an adapter with saved modules": (adapted(["ln_f"]), "merge the adapter with `peft`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(name, words, tmp_path):
    variant, sentence = REFUSED[name]
    variant(tmp_path, words)
    adapter = tmp_path / "adapter"
    with pytest.raises(UserError, match=sentence):
        found = language_model.load(str(tmp_path), adapter=str(adapter) if adapter.exists() else None)
        found.tokenizer.encode("the  <x> cat")


def test_saved_again_a_folder_that_divides_queries_has_the_same_logits(words, tmp_path):
    saved(tmp_path / "one", words, theirs := make(scale_attn_by_inverse_layer_idx=True))
    cfg, params = gpt2.load(tmp_path / "one")
    gpt2.save(tmp_path / "two", params, cfg)
    shutil.copy(tmp_path / "one" / "tokenizer.json", tmp_path / "two")
    again = language_model.load(str(tmp_path / "two"))
    expected = published.logits_of(theirs, TOKENS)
    np.testing.assert_allclose(apply(again.model, TOKENS), expected, rtol=0, atol=1e-5)
