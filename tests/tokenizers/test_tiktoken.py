"""Files of `tiktoken` are read to the published ids and special tokens, and damage is named by its line."""

import base64
import re
from itertools import product

import pytest

from apformer.errors import DATA, UserError
from apformer.tokenizers import byte_pairs, pretrained, tiktoken
from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN
from tests.helpers.small_texts import TEXTS

pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')

LETTERS = [bytes([byte]) for byte in BYTES]
SMALL = [*LETTERS, b"he", b"ll", b"hell", b"hello", b" w", b"12"]


def lines(tokens):
    return [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]


def write(folder, content, name="small-cl100k.tiktoken"):
    path = folder / name
    path.write_text("".join(content))
    return path


# Tokens of GPT-4 with their ids, as the documents of `tiktoken` and `minbpe` tell them.
PUBLISHED = {
    **{15339: "hello", 1917: " world", 4513: "123", 12340: "!!!", 320: " (", 92245: "하세요", 16715: "!)"},
    **{57037: " 😉", 31495: b"\xec\x95", 75265: b"\xeb\x85", 489: " +", 284: " ="},
    **{1609: "ik", 5963: "token", 374: " is", 2294: " great"},
}


def made_up():
    """100,256 tokens: those that are published, what they are made from, and rows of bytes that are in no text."""
    published = {rank: token.encode() if isinstance(token, str) else token for rank, token in PUBLISHED.items()}
    begun = {token[:end] for token in published.values() for end in range(2, len(token))} - {*published.values()}
    never = [0xC0, 0xC1, *range(0xF5, 0x100)]
    others = [bytes(row) for length in range(2, 6) for row in product(never, repeat=length)]
    others = iter(sorted(begun, key=len) + others)
    return LETTERS + [published.get(rank) or next(others) for rank in range(256, 100_256)]


@pytest.fixture(scope="module")
def gpt4(tmp_path_factory):
    return pretrained.load(write(tmp_path_factory.mktemp("gpt4"), lines(made_up()), "cl100k_base.tiktoken"))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello123!!!? (안녕하세요!) 😉", [15339, 4513, 12340, 30, 320, 31495, 230, 75265, 243, 92245, 16715, 57037]),
        ("<|endoftext|>hello world", [100257, 15339, 1917]),
        ("hello world", [15339, 1917]),
        ("tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
        ("2 + 2 = 4", [17, 489, 220, 17, 284, 220, 19]),
        ("<|fim_prefix|><|fim_middle|><|fim_suffix|><|endofprompt|>", [100258, 100259, 100260, 100276]),
    ],
)
def test_ids_of_gpt4_as_documented(gpt4, text, ids):
    assert gpt4.encode(text, allowed_special="all").tolist() == ids
    assert gpt4.decode(ids) == text


def test_the_vocabulary_of_gpt4_keeps_its_gaps(gpt4, tmp_path):
    assert gpt4.vocab_size == 100277
    assert (
        gpt4.special_tokens == {*range(100256, 100277)} and gpt4.decode([100256, 100275])[:18] == "<|unused_100256|><"
    )
    with pytest.raises(UserError, match=r"character 2 begins the special token <\|endofprompt\|>: give --special_tok"):
        gpt4.encode("a<|endofprompt|>", allowed_special={"<|endoftext|>"})
    pretrained.save(gpt4, tmp_path / "tokenizer.json")
    again = pretrained.load(tmp_path)
    assert again.vocab_size == 100277 and again.special_tokens == gpt4.special_tokens
    assert again.encode("hello <|endofprompt|>", allowed_special="all").tolist() == [15339, 220, 100276]


@pytest.mark.parametrize(("name", "pattern"), [("cl100k", GPT4_PATTERN), ("r50k", GPT2_PATTERN)])
def test_tokens_are_those_of_the_merges_that_ranks_were_made_from(tmp_path, name, pattern):
    learned = byte_pairs.train("".join(TEXTS.values()), 256 + 50, pattern)
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
        (262, "MTI"),
        (262, "MTI= "),
        (262, "MTI= 26"),
        (262, "MT= 261\n"),
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
    fault = f"{path} is damaged: line {number} is not a new token of two before it, in base64, a space and {number - 1}"
    with pytest.raises(UserError, match=re.escape(fault)) as error:
        pretrained.load(path)
    assert str(error.value).endswith("; fetch the file again") and error.value.exit_code == DATA


def test_a_file_that_is_cut_and_a_name_that_says_nothing_are_refused(tmp_path):
    for content, name, fault in (
        ([], "cl100k.tiktoken", "no line has the byte 0; fetch the file again"),
        (lines(SMALL), "cl100k_base.tiktoken", "ends after 262 tokens, and the published file has 100,256"),
        (lines(SMALL), "my.tiktoken", "let the name have cl100k or r50k in it"),
    ):
        with pytest.raises(UserError, match=fault):
            pretrained.load(write(tmp_path, content, name))
