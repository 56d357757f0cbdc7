"""A text cut into tokens: no byte steers the terminal, and neighbours differ in colour."""

import re
from itertools import pairwise

from apformer.report import cut
from apformer.tokenizers.text import Characters

CODE = re.compile("\x1b\\[[0-9;]*m")


def test_neighbours_have_other_colours_special_tokens_their_own_and_a_colour_ends_with_its_line():
    tokenizer, end = Characters("ab").with_end()
    painted = cut.cut([0, 0, end, 1, 1, 0, 1, 0], tokenizer, True)
    codes = [code for code in CODE.findall(painted) if code != "\x1b[0m"]
    assert len(codes) == 8 and all(one != other for one, other in pairwise(codes))
    assert [code for code in codes if cut.SPECIAL in code] == [codes[2]]
    painted = cut.cut([1, 0, 1], Characters("\na"), True)
    assert CODE.sub("", painted) == "a↵\na" and all(line.endswith("\x1b[0m") for line in painted.split("\n"))


def test_what_would_steer_a_terminal_is_written_out():
    assert cut.escape(b"\x1b[2J\xc3") == "\\x1b[2J\\xc3"
    assert cut.escape("é\t\n\u202e\x85\r".encode()) == "é\t\n\\u202e\\x85\\r"
