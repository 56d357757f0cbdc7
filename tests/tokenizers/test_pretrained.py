import json
import sys
import time

import pytest

from apformer.errors import DATA, USAGE
from apformer.files import read_json, write_json
from apformer.tokenizers import text as text_tokenizer
from apformer.tokenizers.chunks import BYTES
from apformer.tokenizers.pretrained import load, save
from apformer.tokenizers.text import Characters, train_byte_pairs, train_characters
from tests.helpers.refusals import refused
from tests.helpers.small_texts import ALL, TEXTS


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("tokenizers", reason='byte pairs need the text extra: pip install -e ".[text]"')


@pytest.fixture(scope="module")
def byte_pairs(library):
    return train_byte_pairs(ALL, 400)


def write_gpt2(folder, merges=("Ġ t", "h e", "Ġt he"), drop=(), end="<|endoftext|>"):
    """The two files of a GPT-2: bytes as the letters that stand for them, a merge a line."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    letters = {byte: chr(byte) if byte in printing else chr(next(hidden)) for byte in range(256)}
    tokens = [letters[byte] for byte in BYTES] + [merge.replace(" ", "") for merge in merges] + [end]
    vocabulary = {token: i for i, token in enumerate(tokens) if token not in drop}
    write_json(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges), encoding="utf-8")
    return folder


def test_load_inverts_save(tmp_path, byte_pairs):
    for tokenizer in (Characters("\t\n \"'\\é\u2028日🙂"), byte_pairs):
        save(tokenizer, tmp_path / "tokenizer.json")
        for path in (tmp_path / "tokenizer.json", str(tmp_path)):
            assert load(path).to_json() == tokenizer.to_json()


def test_a_folder_of_gpt2(tmp_path, byte_pairs):
    tokenizer = load(write_gpt2(tmp_path))
    assert tokenizer.vocab_size == 260
    space, t, h, e, i = (BYTES.index(ord(character)) for character in " thei")
    assert tokenizer.encode("the the").tolist() == [t, 257, 258]
    assert tokenizer.encode(" the\xa0").tolist() == [258, BYTES.index(0xC2), BYTES.index(0xA0)]
    # GPT-2 keeps blanks together but for the one before a word, and numbers whole; its end of a text is one token.
    assert tokenizer.encode("  the<|endoftext|>he", allowed_special="all").tolist() == [space, 258, 259, 257]
    for text in (*TEXTS.values(), "a<|endoftext|>\n<|endoftext|> b", " "):
        assert tokenizer.decode(tokenizer.encode(text, allowed_special="all")) == text
    with refused(DATA, r"character 5 begins the special token <\|endoftext\|>: give --s"):
        tokenizer.encode("the <|endoftext|>")
    assert byte_pairs.decode(byte_pairs.encode("<|endoftext|>")) == "<|endoftext|>"  # it has no such token
    save(tokenizer, tmp_path / "tokenizer.json")
    assert load(tmp_path).encode(ALL).tolist() == tokenizer.encode(ALL).tolist()


def test_gpt2_encodes_a_long_text_in_parts_as_it_does_at_once(tmp_path, library, monkeypatch):
    tokenizer = load(write_gpt2(tmp_path, merges=("Ċ Ċ", "Ċ Ġ", "ĉ Ċ", ". Ċ", "č Ċ", "a Ċ")))
    text = "a\n\nb.\n\n\nc\n \n d\t\ne\r\n\r\nf\n\n\n1\n\n  _\n\n" * 4
    at_once = tokenizer.encode(text).tolist()
    for block in (1, 2, 3, 7):
        monkeypatch.setattr(text_tokenizer, "_BLOCK", block)
        assert tokenizer.encode(text).tolist() == at_once


@pytest.fixture
def with_end(library, byte_pairs):
    """The content of a tokenizer.json of 400 tokens, with <|end|> as token 400."""
    tokenizer = library.Tokenizer.from_str(byte_pairs.to_json())
    tokenizer.add_special_tokens(["<|end|>"])
    return json.loads(tokenizer.to_str())


def test_a_token_keeps_its_id_where_others_are_left_out(tmp_path, byte_pairs, with_end, capfd):
    vocabulary = with_end["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)  # 399 becomes 402, so that 399 to 401, 403 and 404 are left out
    vocabulary[last], with_end["added_tokens"][0]["id"] = 402, 405
    with_end["model"]["dropout"] = 0.9
    write_json(tmp_path / "tokenizer.json", with_end)
    tokenizer = load(tmp_path)
    text = ALL + byte_pairs.decode([399]) + "<|end|>"
    ids = [402 if token == 399 else token for token in byte_pairs.encode(text[:-7]).tolist()] + [405]
    assert 402 in ids and tokenizer.vocab_size == 406
    assert tokenizer.encode(text, allowed_special="all").tolist() == ids and tokenizer.decode(ids) == text
    assert tokenizer.special_tokens == {399, 400, 401, 403, 404, 405} and tokenizer.bytes_of(403) == b"<|unused_403|>"
    save(tokenizer, tmp_path / "again.json")
    assert load(tmp_path / "again.json").encode(text, allowed_special="all").tolist() == ids
    assert capfd.readouterr() == ("", "")  # the library has been known to print a warning of gaps


def refusal(path, code=DATA):
    with refused(code, str(path)) as error:
        load(path)
    return str(error.value)


def test_ids_of_hostile_files_are_refused_at_once(tmp_path, byte_pairs):
    """The library goes through all ids up to the largest; and some that `added_tokens.json` gives are no numbers."""
    folder = write_gpt2(tmp_path)
    write_json(folder / "added_tokens.json", {"<|user|>": "x", "x": "y"})
    assert "add cannot be read" in refusal(folder)
    save(byte_pairs, folder / "other.json")
    assert load(folder / "other.json").vocab_size == 400  # it has no part in those tokens
    vocabulary = read_json(folder / "vocab.json")
    write_json(folder / "vocab.json", vocabulary | {max(vocabulary, key=vocabulary.get): 2**31})
    assert "so that more than half are unused" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b"", "is not a tokenizer, since it is not valid JSON (Expecting value: line 1"),
        (b"[" * 100_000, "is nested too deeply): give a whole tokenizer.json; `apformer tokenize --train "),
        (b"\xef\xbb\xbfab\xff", "is not UTF-8 at byte offset 5: convert it, or restore the file"),
        (b'{"characters": ["a"]}', "its characters are no text"),
        (b'{"characters": ""}', "its characters are no text"),
        (b'{"characters": "ba"}', "no text, or not distinct and in order): restore the file"),
        (rb'{"characters": "a\udcff"}', "is damaged ('utf-8' codec can't encode character"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, key):
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert key in refusal(tmp_path / "tokenizer.json")
    refusal(tmp_path)


@pytest.mark.parametrize(
    ("vocabulary", "merges", "key"),
    [
        ("{", "", "is damaged"),
        (None, "#version: 0.2\nh\n", "is damaged"),
        ('{"a": 0, "b": 1}', "", "does not give every text back"),
    ],
)
def test_damaged_files_of_gpt2_are_refused(tmp_path, library, vocabulary, merges, key):
    write_gpt2(tmp_path)
    if vocabulary is not None:
        (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    assert key in refusal(tmp_path)


def test_a_byte_that_a_vocabulary_lacks_is_not_passed_over(tmp_path, library):
    assert "does not give every text back" in refusal(write_gpt2(tmp_path, drop=("z",)))


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SLOW = {"type": "Split", "pattern": {"Regex": "(.?)*x\\1(.*.*.*)*y"}, "behavior": "Isolated", "invert": False}
BYTES_OF_A_TEXT = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CHANGES = {
    "normal form": {"normalizer": {"type": "NFC"}},
    "no bytes": {"decoder": {"type": "Fuse"}},
    "space in front": {"pre_tokenizer": BYTES_OF_A_TEXT | {"add_prefix_space": True}},
    "replaced 40 times": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 40}},
    "bytes of bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES_OF_A_TEXT] * 40}},
    "slow pattern": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SLOW, BYTES_OF_A_TEXT]}},
    "decoder": {"decoder": {"type": "Sequence", "decoders": [REPLACE]}},
    "no unknown word": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "none"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tokenizer_that_changes_text_is_refused_and_takes_neither_memory_nor_time(tmp_path, byte_pairs, change):
    write_json(tmp_path / "tokenizer.json", json.loads(byte_pairs.to_json()) | change)
    began = time.process_time()
    found = refusal(tmp_path / "tokenizer.json")
    assert "does not give every text back" in found and found.endswith("give byte-level byte pairs, such as GPT-2's")
    assert time.process_time() - began < 20


def test_characters_need_no_extra_and_byte_pairs_say_which(tmp_path, byte_pairs, monkeypatch):
    save(train_characters(ALL), tmp_path / "characters.json")
    save(byte_pairs, tmp_path / "byte_pairs.json")
    write_gpt2(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert load(tmp_path / "characters.json") == train_characters(ALL)
    for path in (tmp_path / "byte_pairs.json", tmp_path):
        with refused(USAGE, "byte pairs need the text extra"):
            load(path)
