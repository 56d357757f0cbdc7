"""What we save of GPT-4's tokenizer, which has gaps in its ids, has the same tokens in `transformers`."""

import pytest

from apformer.tokenizers import pretrained
from tests.helpers.small_texts import TEXTS
from tests.tokenizers.test_tiktoken import SMALL, lines, write

pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')
transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install -e '.[parity]'")

pytestmark = pytest.mark.parity


def test_what_we_save_of_gpt4_has_the_same_tokens_in_transformers(tmp_path):
    ours = pretrained.load(write(tmp_path, lines(SMALL)))
    pretrained.save(ours, tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert len(theirs) == ours.vocab_size == 283
    for text in (*TEXTS.values(), "hello 12<|endoftext|>\n\n<|endofprompt|>"):
        tokens = ours.encode(text, allowed_special="all").tolist()
        assert theirs.encode(text) == tokens and theirs.decode(tokens, clean_up_tokenization_spaces=False) == text
    assert tokens[-1] == 282 and theirs.convert_tokens_to_ids("<|endoftext|>") == 263
