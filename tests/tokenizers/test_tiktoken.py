"""Files of `tiktoken` are read to the tokens of their merges and special tokens; damage is named by its line."""

import base64
import re

import pytest

from apformer.errors import DATA, UserError
from apformer.tokenizers import byte_pairs, pretrained, tiktoken
from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN
from tests.helpers.refusals import refused
from tests.helpers.small_texts import ALL, TEXTS

pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')

LETTERS = [bytes([byte]) for byte in BYTES]
SMALL = [*LETTERS, b"he", b"ll", b"hell", b"hello", b" w", b"12"]


def lines(tokens):
    return [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]


def write(folder, content, name="small-cl100k.tiktoken"):
    path = folder / name
    path.write_text("".join(content))
    return path


def test_the_vocabulary_of_gpt4_keeps_its_gaps(tmp_path):
    gpt4 = pretrained.load(write(tmp_path, lines(SMALL)))
    assert gpt4.vocab_size == 283 and gpt4.special_tokens == {*range(262, 283)}
    assert gpt4.decode([262]) == "<|unused_262|>" and gpt4.decode([282]) == "<|endofprompt|>"
    with pytest.raises(UserError, match=r"character 2 begins the special token <\|endofprompt\|>: give --special_tok"):
        gpt4.encode("a<|endofprompt|>", allowed_special={"<|endoftext|>"})
    pretrained.save(gpt4, tmp_path / "tokenizer.json")
    again = pretrained.load(tmp_path)
    assert again.vocab_size == 283 and again.special_tokens == gpt4.special_tokens
    assert again.encode("hello <|endofprompt|>", allowed_special="all").tolist() == [259, 220, 282]


@pytest.mark.parametrize(("name", "pattern"), [("cl100k", GPT4_PATTERN), ("r50k", GPT2_PATTERN)])
def test_tokens_are_those_of_the_merges_that_ranks_were_made_from(tmp_path, name, pattern):
    learned = byte_pairs.train(ALL, 256 + 50, pattern)
    tokens = [*LETTERS, *(learned.vocab[256 + i] for i in range(50))]
    path = write(tmp_path, lines(tokens), f"{name}.tiktoken")
    tokenizer, id_of = pretrained.load(path), [*map(BYTES.index, range(256)), *range(256, 306)]
    assert min(tokenizer.special_tokens) == 306  # after the last token
    assert tiktoken.parse(path.read_text(), path).merges == [(id_of[a], id_of[b]) for a, b in learned.merges]
    for text in TEXTS.values():
        assert tokenizer.encode(text).tolist() == [id_of[token] for token in learned.encode(text)]
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (262, "MTI= 26"),
        (262, "M*I= 261\n"),
        (262, " 261\n"),
        (262, base64.b64encode(bytes(257)).decode() + " 261\n"),
        (262, "aGU= 261\n"),  # which stands there already
        (262, "YWJjZB== 261\n"),  # which no two tokens before it make
        (261, "MTI= 99999999999999999999\n"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, number, line):
    content = lines(SMALL)
    content[number - 1] = line
    path = write(tmp_path, content)
    fault = f"{path} is damaged: line {number} is not a new pair of earlier tokens in base64, a space and {number - 1}"
    with refused(DATA, re.escape(fault)) as error:
        pretrained.load(path)
    assert str(error.value).endswith("; fetch the file again")


def test_a_file_that_is_cut_and_a_name_that_says_nothing_are_refused(tmp_path):
    for content, name, fault in (
        ([], "cl100k.tiktoken", "no line has the byte 0; fetch the file again"),
        (lines(SMALL), "cl100k_base.tiktoken", "ends after 262 tokens, and the published file has 100,256"),
        (lines(SMALL), "my.tiktoken", "put cl100k or r50k into its name"),
    ):
        with pytest.raises(UserError, match=fault):
            pretrained.load(write(tmp_path, content, name))
