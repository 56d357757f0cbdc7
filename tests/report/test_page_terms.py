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


def answers(prompt, *texts, count=3):
    run = {"vocabulary": VOCABULARY, "task": sections.task("goes on", prompt)}
    (found,) = ask({"ask": "terms", "leaves": [], "weights": "", "texts": texts, "run": run, "count": count})
    return found


def test_a_rule_that_a_word_names_is_followed():
    terms = sections.terms("Type a rule and terms.", 3, NAMED)
    fibonacci, doubled, bare, other, wrong = answers(
        terms, "sum 500 400", "twice 300", "001 002", "sum 00x", "sum 001 002 004"
    )
    assert fibonacci["next"] == ["900", "300", "200"] and fibonacci["said"] is None
    assert fibonacci["tokens"] == [11, 10, 5, 0, 0, 10, 4, 0, 0]
    assert doubled["next"] == ["600", "200", "400"]
    assert bare["said"] == "Begin with the name of a rule: sum, twice."
    assert other["said"].startswith("“x” is neither a digit nor a space")
    assert wrong["next"] is None and "follow no rule" in wrong["said"]


def test_an_unnamed_rule_is_the_only_one_that_the_terms_follow():
    several, only, none, ends = answers(sections.terms("", 2, UNNAMED), "01 02", "01 02 04 08", "01 07 09", "01 02 05")
    assert several["next"] is None and several["said"] is None  # 1 + 2, 2 * 2 and 3 * 2 - 1
    assert only["next"] == ["16", "32", "64"]
    assert none["next"] is None
    assert ends["next"] == ["14", "41", None]


@pytest.mark.parametrize(
    ("order", "text", "following"), [("msb", "08 09", ["10", "11"]), ("lsb", "80 90", ["01", "11"])]
)
def test_a_progression_is_read_in_the_order_of_its_digits(order, text, following):
    prompt = sections.terms("", None, [sections.PROGRESSION], order=order)
    (found,) = answers(prompt, text, count=2)
    assert found["next"] == following


def test_what_is_worth_saying_of_a_progression_is_said():
    prompt = sections.terms("Type one.", 3, [sections.PROGRESSION], differences=[1, 500])
    empty, one, uneven, down, good = answers(prompt, " ", "007", "001 002 004", "020 010", "007 010")
    assert (empty["said"], empty["next"]) == ("Type one.", None)
    assert one["said"] == "One term does not fix what comes next." and one["next"] is None
    assert "follow no rule" in uneven["said"]
    assert down["said"] == "The model was trained on differences from 1 to 500; this one is -10."
    assert down["next"] == ["000", None, None]
    assert good["said"] is None and good["next"] == ["013", "016", "019"]


def test_where_the_page_is_told_no_rule_it_judges_nothing():
    (found,) = answers(sections.terms("", 2, []), "01 02")
    assert found["next"] is None and found["said"] is None
