"""A text cut into tokens: joined it is the text, no byte steers the terminal, and neighbours differ in colour."""

import io
import re

import pytest

from apformer.report import cut
from apformer.tokenizers.text import Characters, train_byte_pairs
from tests.helpers.small_texts import TEXTS

CODE = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_painted_pieces_joined_are_the_text(text):
    pytest.importorskip("tokenizers")
    tokenizer = train_byte_pairs(text, 600)
    tokens = tokenizer.encode(text)
    shown = [cut.shown(tokenizer.bytes_of(token)) for token in tokens]
    painted = cut.cut(tokens, tokenizer, True)
    assert CODE.sub("", painted).replace("↵\n", "\n") == "".join(shown)
    assert cut.cut(tokens, tokenizer, False) == "|".join(shown)


def test_neighbours_have_other_colours_and_special_tokens_their_own():
    tokenizer, end = Characters("ab").with_end()
    painted = cut.cut([0, 0, end, 1, 1, 0, 1, 0], tokenizer, True)
    codes = [code for code in CODE.findall(painted) if code != "\x1b[0m"]
    assert len(codes) == 8 and all(one != other for one, other in zip(codes, codes[1:], strict=False))
    assert [code for code in codes if cut.SPECIAL in code] == [codes[2]]


def test_a_colour_ends_with_its_line():
    painted = cut.cut([1, 0, 1], Characters("\na"), True)
    assert CODE.sub("", painted) == "a↵\na"
    assert all(line.endswith("\x1b[0m") for line in painted.split("\n"))


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b"\x1b[2J", "\\x1b[2J"),
        (b"\xc3", "\\xc3"),
        ("é\t\n".encode(), "é\t\n"),
        ("\u202e\x85\r".encode(), "\\u202e\\x85\\r"),
    ],
)
def test_what_would_steer_a_terminal_is_written_out(piece, shown):
    assert cut.shown(piece) == shown


def test_colours_are_for_terminals(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    assert cut.in_colour(terminal) and not cut.in_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not cut.in_colour(terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not cut.in_colour(terminal)
