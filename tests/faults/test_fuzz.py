"""Hostile input is read or refused with a sentence, and a parser that does anything else is found."""

import importlib
import random
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.errors import DATA, UserError

pytestmark = pytest.mark.faults
fuzz, parsers, mutate = map(importlib.import_module, ("faults.fuzz", "faults._parsers", "faults._mutate"))


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return parsers.parsers(tmp_path_factory.mktemp("sound"))


def test_hostile_input_is_read_or_refused_with_a_sentence(tmp_path):
    figures = fuzz.measure(2_000, tmp_path)
    assert figures["tracebacks"] == figures["unclear"] == figures["slow"] == 0
    assert figures["cases"] == 2_000 and 0.2 < figures["refused"] < 0.9 and 0 < figures["megabytes"] < 1000


def test_sound_files_are_read(every, tmp_path):
    """So that what is refused later is refused for what was changed in it."""
    for parser in every:
        outcomes = [fuzz.run_parser(parser, seed, tmp_path)[0] for seed in parser.seeds]
        assert "read" in outcomes or parser.name in UNREAD, (parser.name, outcomes)


UNREAD = ("certificate.json to export",)  # the certificate is of no checkpoint of that run


def test_any_bytes_are_read_or_refused(every, tmp_path):
    texts = st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))

    @settings(max_examples=200)
    @given(st.sampled_from(every), texts | st.binary(max_size=60))
    def holds(parser, content):
        outcome, told = fuzz.run_parser(parser, content, tmp_path)
        assert outcome in ("read", "refused"), told

    holds()


def test_a_case_is_the_same_each_time(every):
    for each in every:
        first, again = (mutate.mutate(random.Random("7"), each.seeds[0], each.structure) for _ in range(2))
        assert first == again


def parser(read):
    return parsers.Parser("broken", 1, "x.json", [b'{"a": [1]}'], mutate.of_json, read)


def refuse(sentence, code=DATA):
    raise UserError(sentence, code)


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda path: refuse(f"{path} is damaged: restore it"), "refused"),
        (lambda path: 7, "read"),
        (lambda path: [][1], "tracebacks"),
        (lambda path: sys.exit(1), "tracebacks"),
        (lambda path: refuse("something is wrong"), "unclear"),
        (lambda path: refuse(f"{path} is damaged: restore it", 1), "unclear"),
    ],
)
def test_what_a_parser_must_not_do_is_found(read, outcome, tmp_path):
    assert fuzz.attempt(parser(read), 0, tmp_path)[0] == outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(fuzz.LIMIT - 0.1, "read"), (fuzz.LIMIT + 0.1, "slow")])
def test_a_parser_that_takes_longer_than_the_limit_is_slow(seconds, outcome, tmp_path, monkeypatch):
    ticks = iter((100.0, 100.0 + seconds))
    monkeypatch.setattr(fuzz, "time", SimpleNamespace(process_time=lambda: next(ticks)))
    assert fuzz.attempt(parser(lambda path: 7), 0, tmp_path)[0] == outcome
