"""A file of progressions is read as it was written, and what is none is named with its line."""

import hashlib
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.errors import DATA, USAGE, UserError
from apformer.tasks.progressions import text_file
from apformer.tasks.progressions.generator import Progressions, render
from tests.helpers.refusals import refused

FOLDER = Path(__file__).parents[3] / "datasets" / "arithmetic_progressions"


def rows_of(progressions):
    return list(zip(*(np.asarray(a).tolist() for a in progressions), strict=True))


@st.composite
def progressions_of_one_width(draw):
    digits = draw(st.integers(1, 9))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        first, second = draw(st.tuples(*[st.integers(0, 10**digits - 1)] * 2))
        difference = second - first
        room = (10**digits - 1 - first) // difference if difference > 0 else first // -difference if difference else 20
        rows.append((first, difference, draw(st.integers(2, min(room + 1, 20)))))
    return rows, digits


@settings(deadline=None)
@given(progressions_of_one_width())
def test_read_inverts_write(tmp_path_factory, case):
    rows, digits = case
    path = tmp_path_factory.mktemp("data") / "dataset.txt"
    path.write_text(text_file.to_text(Progressions(*np.array(rows, np.int32).T), digits))
    progressions, read_digits = text_file.read(path)
    assert read_digits == digits
    assert rows_of(progressions) == rows
    assert path.read_text().splitlines() == [render(*row, digits) for row in rows]
    assert all(array.dtype == np.int32 for array in progressions)


@pytest.mark.parametrize(
    "content",
    [
        b"07 10 13\n09 05",
        b"07 10 13\r\n09 05\r\n",
        b"\xef\xbb\xbf07 10 13\n09 05\n",
        b"07 10 13\n09 05\n\n\r\n\n",
    ],
)
def test_ends_of_lines_and_files_that_are_accepted(tmp_path, content):
    path = tmp_path / "dataset.txt"
    path.write_bytes(content)
    progressions, digits = text_file.read(path)
    assert (rows_of(progressions), digits) == ([(7, 3, 3), (9, -4, 2)], 2)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b"\xef\xbb\xbf\r\n\n", "is empty: give a progression a line"),
        (b"07 10\n\xff\xfe0\n", " is not UTF-8 at byte offset 6: convert it"),
        (b"07 10\n07 a0\n", ", line 2: character 4 is 'a'; use the digits 0-9 and single spaces"),
        ("07 1٣\n".encode(), r", line 1: character 5 is '\u0663'"),
        (b"07 10\n07 010\n", ", line 2: term 2, 010, has width 3 where the first term has 2; pad with zeros"),
        (b"07 10\n07  10\n", ", line 2: has an extra space; put one space between terms"),
        (b"07 10\n\n07 10\n", ", line 2: is empty; remove it"),
        (b"07 10\n07\n", ", line 2: has one term; give at least two, which fix the difference"),
        (b"07 10 13 17 20\n", ", line 1: is not a progression: terms 3 and 4 differ by 4 where terms 1 and 2 differ"),
        (b"0000000007 0000000010\n", ", line 1: terms have 10 digits; use at most 9"),
    ],
)
def test_faults_are_named_with_file_and_line(tmp_path, content, key):
    path = tmp_path / "dataset.txt"
    path.write_bytes(content)
    with refused(DATA, f"^{re.escape(str(path))}.*{re.escape(key)}"):
        text_file.read(path)


@settings(deadline=None, max_examples=300)
@given(st.text("0129 a", max_size=8))
def test_any_line_is_either_read_or_refused_in_one_sentence(line):
    try:
        [row], digits = text_file.read_numbers([line], "--prompt")
        assert render(*row, digits) == line
    except UserError as error:
        assert str(error).startswith("--prompt, line 1: ")


def test_a_missing_file_a_directory_and_no_lines(tmp_path):
    for path, key in (
        (tmp_path / "none.txt", "cannot be read .No such file or directory.: restore it, or give another"),
        (tmp_path, "cannot be read .Is a directory.: restore it, or give another"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with refused(DATA, key) as error:
            text_file.read(path)
        assert str(path) in str(error.value)


@pytest.fixture(scope="module")
def generate():
    return runpy.run_path(str(FOLDER / "generate.py"))["main"]


@pytest.mark.parametrize(("digits", "flags"), [(3, []), (5, ["--digits", "5"])])
def test_generated_bytes_are_those_the_readme_promises(tmp_path, capsys, generate, digits, flags):
    path = tmp_path / "dataset.txt"
    assert generate([*flags, "--out", str(path)]) == 0
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    promised = dict(re.findall(r"\| (\d) \|.*`([0-9a-f]{64})`", (FOLDER / "README.md").read_text("utf-8")))
    assert found == promised[str(digits)]
    assert f"sha256 {found}" in capsys.readouterr().out
    progressions, read_digits = text_file.read(path)
    assert (len(progressions.first_B), read_digits) == (10_000, digits)


def test_generate_overwrites_another_dataset_only_when_asked(tmp_path, capsys, generate):
    path = tmp_path / "dataset.txt"
    few = ["--sequences", "7", "--max-difference", "20", "--out", str(path)]
    assert generate(few) == 0
    before = path.read_bytes()
    assert generate(few) == 0  # the same bytes may be written again
    assert generate([*few, "--seed", "1"]) == DATA
    assert path.read_bytes() == before
    assert "--overwrite" in capsys.readouterr().err
    assert generate([*few, "--seed", "1", "--overwrite"]) == 0
    assert path.read_bytes() != before


def test_generate_refuses_what_does_not_fit(tmp_path, capsys, generate):
    assert generate(["--digits", "2", "--out", str(tmp_path / "dataset.txt")]) == USAGE
    assert "--max_difference 500" in capsys.readouterr().err
    assert generate(["--sequences", "0"]) == USAGE
    assert "--sequences 0 is out of range" in capsys.readouterr().err
