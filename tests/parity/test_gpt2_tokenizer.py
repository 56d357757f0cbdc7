"""GPT-2's tokenizer is that of `transformers`: the same tokens, from its files and from those we save for it.

So is GPT-4's, which has gaps in its ids.
"""

import pytest

from apformer.tokenizers import pretrained
from tests.helpers.small_texts import TEXTS
from tests.tokenizers.test_pretrained import write_gpt2
from tests.tokenizers.test_tiktoken import SMALL, lines, write

pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')
transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install -e '.[parity]'")

pytestmark = pytest.mark.parity


def test_tokens_are_those_of_transformers_both_ways(tmp_path):
    theirs = transformers.GPT2TokenizerFast.from_pretrained(write_gpt2(tmp_path))
    ours = pretrained.load(tmp_path)
    (tmp_path / "saved").mkdir()
    pretrained.save(ours, tmp_path / "saved" / "tokenizer.json")
    reopened = transformers.GPT2TokenizerFast.from_pretrained(tmp_path / "saved")
    assert len(theirs) == len(reopened) == ours.vocab_size
    for text in (*TEXTS.values(), " the<|endoftext|>the\n\n", "  he  "):
        tokens = ours.encode(text, allowed_special="all").tolist()
        assert tokens == theirs.encode(text) == reopened.encode(text)
        assert theirs.decode(tokens, clean_up_tokenization_spaces=False) == text
    theirs.save_pretrained(tmp_path / "theirs")
    assert pretrained.load(tmp_path / "theirs").encode(TEXTS["scripts"]).tolist() == theirs.encode(TEXTS["scripts"])


def test_what_we_save_of_gpt4_has_the_same_tokens_in_transformers(tmp_path):
    ours = pretrained.load(write(tmp_path, lines(SMALL)))
    pretrained.save(ours, tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert len(theirs) == ours.vocab_size == 283
    for text in (*TEXTS.values(), "hello 12<|endoftext|>\n\n<|endofprompt|>"):
        tokens = ours.encode(text, allowed_special="all").tolist()
        assert theirs.encode(text) == tokens and theirs.decode(tokens, clean_up_tokenization_spaces=False) == text
    assert tokens[-1] == 282 and theirs.convert_tokens_to_ids("<|endoftext|>") == 263
