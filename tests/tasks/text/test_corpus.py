"""A text is cut into its training and its validation part, and what is no text is refused."""

import pytest

from apformer.errors import DATA, USAGE, UserError
from apformer.tasks.text import corpus


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_the_parts_of_a_text_make_the_whole(share):
    whole = "a text of some length, to be cut"
    first, last = corpus.split(whole, corpus.Config("", validation_share=share))
    assert first + last == whole and len(last) == pytest.approx(share * len(whole), abs=1)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "latin").write_bytes("naïve".encode("latin-1"))
    for name, sentence in (("latin", "latin is no UTF-8 at byte offset 2"), ("nowhere", "nowhere cannot be read")):
        with pytest.raises(UserError, match=sentence) as fault:
            corpus.read(tmp_path / name)
        assert fault.value.exit_code == DATA


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": None}, "--text is missing"),
        ({"context": 0}, "--context 0 is out of range"),
        ({"validation_share": 1.0}, "--validation_share 1.0 is out of range"),
    ],
)
def test_flags_that_no_text_can_follow(changes, sentence):
    with pytest.raises(UserError, match=sentence) as fault:
        corpus.check(corpus.Config(**({"text": "file"} | changes)))
    assert fault.value.exit_code == USAGE
