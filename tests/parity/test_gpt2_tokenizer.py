"""GPT-2's tokenizer is that of `transformers`: the same tokens, from its files and from those we save for it."""

import pytest

from apformer.tokenizers import pretrained
from tests.helpers.small_texts import TEXTS
from tests.tokenizers.test_pretrained import write_gpt2

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
