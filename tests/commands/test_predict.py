"""Predictions are what the model says, in the order of the prompts, cut where the terms would outgrow their digits."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from jax.tree_util import Partial

from apformer import cli, errors, model
from apformer.decoding import bind
from apformer.runs import recipes, restore
from apformer.tasks.exact_match import continue_rows
from apformer.tasks.progressions import continuation as continuation_
from apformer.tasks.progressions import generator
from apformer.tasks.progressions.recipes import exact
from apformer.tokenizers import digits as tokenizer
from tests.helpers import circuit
from tests.helpers.small_models import circuit_run

D = 3
LIMIT = 10**D


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run, `runs/run`, whose model is always right."""
    path = tmp_path_factory.mktemp("work")
    circuit_run(path / "runs" / "run", exact(D).data)
    (path / "runs" / "latest").symlink_to("run")
    return path


@pytest.fixture
def right(folder, monkeypatch):
    monkeypatch.chdir(folder)


def call(capsys, *args):
    assert cli.main(["predict", *args]) == 0
    return capsys.readouterr()


def expected(first, difference, terms, more):
    """The next terms in plain Python, as far as they fit."""
    values = [first + k * difference for k in range(terms, terms + more)]
    fitting = [value for value in values if 0 <= value < LIMIT]
    return " ".join(f"{value:03d}" for value in fitting)


STOPPED = "stopped early, because the next term no longer fits the digits\n"


@pytest.mark.parametrize(
    ("prompt", "terms", "continuation"),
    [
        ("007 010 013", 3, "016 019 022"),
        ("500 490 480", 4, "470 460 450 440"),
        ("999 999", 2, "999 999"),
        ("980 990", 5, ""),
        ("960 970", 5, "980 990"),
        ("222 111", 9, "000"),
    ],
)
def test_one_prompt_is_continued_as_far_as_terms_fit(right, capsys, prompt, terms, continuation):
    first, second = map(int, prompt.split()[:2])
    seen = "the model was trained on differences from 1 to 500"
    told = f"the prompt, line 1: {seen}, and {second - first} is another\n" * (not 1 <= second - first <= 500)
    short = len(continuation.split()) < terms
    for args in ([prompt], ["runs/run", prompt]):
        out, err = call(capsys, *args, "--terms", str(terms))
        assert out == continuation + "\n" and err == told + STOPPED * short


def test_more_terms_than_a_line_can_have_are_refused(right, fails, monkeypatch):
    """Of difference 0 any number fits."""
    monkeypatch.setattr(continuation_, "MOST", 1000)
    fails("--terms 100000000000 makes a line of ", errors.USAGE, "predict", "000 000", "--terms", 10**11)


def continued(prompts, model):
    tokens_BN = continue_rows([tokenizer.encode(prompt) for prompt in prompts], D + 1, model)
    return [tokenizer.decode(tokens_N) for tokens_N in tokens_BN]


def test_one_prompt_is_a_batch_of_one():
    """Eight rows of hundreds of digits took gigabytes."""
    bound = bind.bind(model, circuit.params(D), circuit.config(D))
    shapes = []

    def extend(tokens_BT, cache, lengths_B=None):
        shapes.append(tokens_BT.shape)
        return bound.extend(tokens_BT, cache, lengths_B)

    assert continued(["007 010"], replace(bound, extend=Partial(extend))) == [" 013"]
    assert {shape[0] for shape in shapes} == {1}


def test_a_file_keeps_its_order(right, capsys):
    cfg = generator.Config(D, max_terms=6, min_difference=-120, max_difference=120)
    made = [*zip(*(column.tolist() for column in generator.draw(jax.random.key(0), cfg, 300)), strict=True)]
    Path("prompts.txt").write_text("".join(generator.render(*row, D) + "\n" for row in made))
    out, err = call(capsys, "--file", "prompts.txt", "--terms", "3")
    assert out == "".join(expected(*row, 3) + "\n" for row in made)
    short = sum(expected(*row, 3).count(" ") < 2 for row in made)
    assert f"{short} of 300 lines stop early" in err


@pytest.mark.parametrize(
    "content",
    [
        b"007 010\r\n500 490 480\r\n\r\n",
        b"\xef\xbb\xbf007 010\n500 490 480",
    ],
)
def test_line_ends_and_a_byte_order_mark_change_nothing(right, says, monkeypatch, content):
    Path("prompts.txt").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    for name in ("prompts.txt", "-"):
        assert says("predict", "runs/run", "--file", name) == "013\n470\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "standard input is empty"),
        (b"007 010\n07 10\n", "standard input, line 2: term 1, 07, has width 2"),
        (b"007 010\n\xff\n", "standard input is not text"),
        (b"07 10\n", "standard input has terms of 2 digits"),
    ],
)
def test_faults_of_standard_input(right, fails, monkeypatch, content, sentence):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    fails(sentence, errors.DATA, "predict", "--file", "-")


def test_json_is_one_object(right, says):
    Path("prompts.txt").write_text("007 010\n980 990\n")
    assert json.loads(says("predict", "runs/run", "--file", "prompts.txt", "--terms", 2, "--json")) == {
        "run": "runs/run",
        "continuations": [
            {"prompt": "007 010", "continuation": "013 016"},
            {"prompt": "980 990", "continuation": ""},
        ],
    }


def test_learned_positions_end_where_the_table_does(right, random_params, says, fails, monkeypatch):
    settings = recipes.parse(["--position", "learned", "--max_len", "27", "--max_terms", "7"])
    monkeypatch.setattr(restore, "load_settings", lambda path: settings)
    monkeypatch.setattr(restore, "load_params", lambda *_: (random_params(settings.model), 0, 0))
    says("predict", "007 010", "--terms", 5)
    said = "--terms 6 makes a line of 31 characters, more than 27"
    fails(said, errors.USAGE, "predict", "007 010", "--terms", 6)
