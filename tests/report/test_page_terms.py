"""Prompts of terms in the page, of tasks that it does not know: how they are cut, and what comes next; needs node."""

import shutil

import pytest

from apformer.report import sections
from apformer.tokenizers import digits
from tests.report.test_page_model import ask

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the page's script")

VOCABULARY = [*digits.VOCABULARY, "sum", "twice"]
NAMED = [sections.rule(1, 1, modulus=1000, name="sum"), sections.rule(2, modulus=1000, name="twice")]
UNNAMED = [sections.rule(1, 1), sections.rule(2), sections.rule(3, constant=-1)]


CASES = {  # of each prompt, what is typed
    "named": (
        sections.terms("Type a rule and terms.", 3, NAMED),
        ("sum 500 400", "twice 300", "001 002", "sum 00x", "sum 001 002 004"),
    ),
    "unnamed": (sections.terms("", 2, UNNAMED), ("01 02", "01 02 04 08", "01 07 09", "01 02 05")),
    "progression": (
        sections.terms("Type one.", 3, [sections.PROGRESSION], differences=[1, 500]),
        (" ", "007", "001 002 004", "020 010", "007 010"),
    ),
    "no rule": (sections.terms("", 2, []), ("01 02",)),
}


@pytest.fixture(scope="module")
def answers():
    """Answers of the page to all that is typed, by the name of its prompt."""
    runs = [{"vocabulary": VOCABULARY, "task": sections.task("goes on", prompt)} for prompt, _ in CASES.values()]
    asked = {"ask": "terms", "leaves": [], "weights": "", "count": 3}
    cases = [asked | {"texts": texts, "run": run} for run, (_, texts) in zip(runs, CASES.values(), strict=True)]
    return dict(zip(CASES, ask(*cases), strict=True))


def test_a_rule_that_a_word_names_is_followed(answers):
    fibonacci, doubled, bare, other, wrong = answers["named"]
    assert fibonacci["next"] == ["900", "300", "200"] and fibonacci["said"] is None
    assert fibonacci["tokens"] == [11, 10, 5, 0, 0, 10, 4, 0, 0]
    assert doubled["next"] == ["600", "200", "400"]
    assert bare["said"] == "Begin with the name of a rule: sum, twice."
    assert other["said"].startswith("“x” is neither a digit nor a space")
    assert wrong["next"] is None and "follow no rule" in wrong["said"]


def test_an_unnamed_rule_is_the_only_one_that_the_terms_follow(answers):
    several, only, none, ends = answers["unnamed"]
    assert several["next"] is None and several["said"] is None  # 1 + 2, 2 * 2 and 3 * 2 - 1
    assert only["next"] == ["16", "32", "64"]
    assert none["next"] is None
    assert ends["next"] == ["14", "41", None]


def test_what_is_worth_saying_of_a_progression_is_said(answers):
    empty, one, uneven, down, good = answers["progression"]
    assert (empty["said"], empty["next"]) == ("Type one.", None)
    assert one["said"] == "One term does not fix what comes next." and one["next"] is None
    assert "follow no rule" in uneven["said"]
    assert down["said"] == "The model was trained on differences from 1 to 500; this one is -10."
    assert down["next"] == ["000", None, None]
    assert good["said"] is None and good["next"] == ["013", "016", "019"]


def test_where_the_page_is_told_no_rule_it_judges_nothing(answers):
    (found,) = answers["no rule"]
    assert found["next"] is None and found["said"] is None
