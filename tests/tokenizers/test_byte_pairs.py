"""Byte pairs have the ids, merges and files of `minbpe`, and the tokens of the `tokenizers` library."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.errors import DATA, DISK, UserError
from apformer.tokenizers import pretrained
from apformer.tokenizers.byte_pairs import Tokenizer, load, train
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN, split
from tests.helpers.refusals import refused
from tests.helpers.small_texts import TEXTS, few_letters

pytest.importorskip("tokenizers", reason='the library comes with the text extra: pip install -e ".[text]"')

MINBPE_TEXTS = ["", "?", "hello world!!!? (안녕하세요!) lol123 😉"]  # those of its tests
SPECIAL = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


def test_the_example_of_minbpe():
    tokenizer = train("aaabdaaabac", 256 + 3)
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]
    assert tokenizer.decode([258, 100, 258, 97, 99]) == "aaabdaaabac"
    assert [tokenizer.vocab[token] for token in (97, 256, 257, 258)] == [b"a", b"aa", b"aaa", b"aaab"]
    assert len(tokenizer.vocab) == 259
    with refused(DATA, r"\(\[ is no regular expression"):
        train("aa", 257, "([")


def plainly(text, vocab_size):
    """The merges of a text, learned from all its chunks again and again, as `minbpe` does."""
    rows = [[*chunk.encode()] for chunk in split(text)]
    merges = []
    while len(merges) < vocab_size - 256:
        counts = {}
        for row in rows:
            for i in range(len(row) - 1):
                counts[row[i], row[i + 1]] = counts.get((row[i], row[i + 1]), 0) + 1
        if not counts:
            break
        best = max(counts, key=counts.get)
        for row in rows:
            i = 0
            while i < len(row) - 1:
                if (row[i], row[i + 1]) == best:
                    row[i : i + 2] = [256 + len(merges)]
                i += 1
        merges.append(best)
    return (*merges,)


@given(few_letters, st.integers(256, 280))
def test_merges_are_those_of_a_plain_count(text, vocab_size):
    assert train(text, vocab_size).merges == plainly(text, vocab_size)


@pytest.mark.parametrize(("text", "pattern"), [*zip(TEXTS.values(), ["", GPT2_PATTERN, GPT4_PATTERN], strict=True)])
def test_tokens_are_those_of_the_library_for_the_same_merges(tmp_path, text, pattern):
    tokenizer = train(text, 256 + 50, pattern)
    tokenizer.save(tmp_path / "toy.model")
    in_library = pretrained.load(tmp_path / "toy.model")
    for other in (*TEXTS.values(), *MINBPE_TEXTS):
        assert in_library.encode(other).tolist() == tokenizer.encode(other)
        assert tokenizer.decode(tokenizer.encode(other)) == other


def test_special_tokens_are_refused_unless_they_are_allowed():
    tokenizer = replace(train(TEXTS["english"], 300), special_tokens=SPECIAL)
    text = "<|fim_prefix|>one<|fim_suffix|> two\n<|endoftext|><|endoftext|>"
    row = tokenizer.encode(text, allowed_special="all")
    assert [token for token in row if token >= 300] == [100258, 100260, 100257, 100257]
    assert tokenizer.decode(row) == text and tokenizer.vocab[100276] == b"<|endofprompt|>"
    assert tokenizer.encode(text, SPECIAL) == row
    for allowed, place in (((), 1), ({"<|fim_prefix|>"}, 18)):
        with pytest.raises(UserError, match=f"character {place} begins the special token <.fim_"):
            tokenizer.encode(text, allowed)
    longer = Tokenizer(special_tokens={"<a>": 300, "<a><a>": 301})
    assert longer.encode("<a><a><a>", "all") == [301, 300]


def test_load_inverts_save(tmp_path):
    tokenizer = replace(train(TEXTS["scripts"], 290), special_tokens=SPECIAL)
    tokenizer.save(tmp_path / "toy.model")
    assert load(tmp_path / "toy.model") == tokenizer
    assert (tmp_path / "toy.model").read_text().startswith(f"minbpe v1\n{GPT4_PATTERN}\n4\n<|endoftext|> 100257\n")
    with pytest.raises(UserError, match="has 294 tokens and ids up to 100,276, so that more than half are unused"):
        pretrained.load(tmp_path / "toy.model")
    tokenizer = replace(tokenizer, special_tokens={"<|end of prompt|>": 293})
    tokenizer.save(tmp_path / "toy.model")
    in_use = pretrained.load(tmp_path / "toy.model")
    assert in_use.vocab_size == 294
    text = TEXTS["scripts"] + "<|end of prompt|>"
    assert in_use.encode(text, allowed_special="all").tolist() == tokenizer.encode(text, "all")
    with refused(DISK, "No such file"):
        tokenizer.save(tmp_path / "none" / "toy.model")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", 1),
        ("minbpe v2\n\n0\n", 1),
        ("minbpe v1\n\n2\n<|a|> 300\n", 4),  # which ends too soon
        ("minbpe v1\n\n2\n<|a|> 300\n<|a|> 301\n", 5),
        ("minbpe v1\n\n0\n0 0\n256", 5),
        ("minbpe v1\n\n0\n97 -1\n", 4),
        ("minbpe v1\n\n1\n<|a|> 256\n97 98\n", 5),  # the id of a merge
        ("minbpe v1\n\n0\n97 97\n" + "".join(f"{i} {i}\n" for i in range(256, 300)), 26),  # tokens beyond memory
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, line):
    path = tmp_path / "toy.model"
    path.write_text(content)
    with refused(DATA, f"{path} is damaged: line {line} is not what .*; save the tokenizer"):
        load(path)
