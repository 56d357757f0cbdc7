"""Prompts of terms in the page, of tasks that it does not know: how they are cut, and what comes next; needs node."""

import shutil

import pytest

from apformer.report import sections
from apformer.tokenizers import digits
from tests.report.test_page_model import ask

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the page's script")

VOCABULARY = [*digits.VOCABULARY, "sum", "twice"]
NAMED = [sections.rule(1, 1, modulus=1000, name="sum"), sections.rule(2, modulus=1000, name="twice")]
CASES = {  # of each prompt, what is typed
    "named": (sections.terms("Type a rule.", 3, NAMED), ("sum 500 400", "twice 300", "001 002", "sum 001 002 004")),
    "progression": (
        sections.terms("Type one.", 3, [sections.PROGRESSION], differences=[1, 500]),
        (" ", "007", "001 002 004", "020 010", "007 010"),
    ),
}


@pytest.fixture(scope="module")
def answers():
    """Answers of the page to all that is typed, by the name of its prompt: (the next terms, what is said)."""
    runs = [{"vocabulary": VOCABULARY, "task": sections.task("goes on", prompt)} for prompt, _ in CASES.values()]
    asked = {"ask": "terms", "leaves": [], "weights": "", "count": 3}
    cases = [asked | {"texts": texts, "run": run} for run, (_, texts) in zip(runs, CASES.values(), strict=True)]
    found = [[(each["next"], each["said"]) for each in answers] for answers in ask(*cases)]
    return dict(zip(CASES, found, strict=True))


def test_a_rule_that_a_word_names_is_followed(answers):
    *right, wrong = answers["named"]
    assert right == [
        (["900", "300", "200"], None),
        (["600", "200", "400"], None),
        (None, "Begin with the name of a rule: sum, twice."),
    ]
    assert wrong[0] is None and "follow no rule" in wrong[1]


def test_what_is_worth_saying_of_a_progression_is_said(answers):
    empty, one, uneven, down, good = answers["progression"]
    assert empty == (None, "Type one.") and one == (None, "One term does not determine the next one.")
    assert "follow no rule" in uneven[1] and good == (["013", "016", "019"], None)
    assert down == (["000", None, None], "The model was trained on differences from 1 to 500; this one is -10.")
