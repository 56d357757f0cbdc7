"""A fault is one sentence on one line, whatever it quotes."""

from pathlib import Path

import pytest

from apformer import errors


@pytest.mark.parametrize(
    ("quoted", "said"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("Füße 日本", "Füße 日本"),
    ],
)
def test_a_sentence_that_quotes_a_file_stays_on_its_line(quoted, said):
    assert (
        str(errors.UserError(f"x.json holds {quoted}: restore it", errors.DATA)) == f"x.json holds {said}: restore it"
    )


@pytest.mark.parametrize("letter", ["y", "\0", "\U0010ffff"])
def test_of_a_sentence_that_quotes_a_whole_file_what_is_wrong_and_the_remedy_are_kept(letter):
    sentence = str(errors.UserError(f"x.json holds {letter * 10**6}: restore it", errors.DATA))
    assert len(sentence) < errors.MOST + 9
    assert sentence.startswith("x.json holds") and sentence.endswith(": restore it")


def test_a_command_of_a_remedy_can_be_typed():
    assert errors.typed("resume", Path("my runs") / "1", "--step", 4) == "`apformer resume 'my runs/1' --step 4`"
    assert errors.typed("report", "runs/1") == "`apformer report runs/1`"
