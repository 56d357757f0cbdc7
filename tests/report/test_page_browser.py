"""The page in a browser, from the disk and without a network: it draws, plays, ablates, and says nothing wrong."""

import re
import shutil

import pytest

from apformer.commands import report as page
from apformer.report import template
from apformer.runs import restore
from tests.report.test_page import read

pytestmark = pytest.mark.long


def assert_accessible(seen):
    assert not [finding for finding in seen["axe"] if finding["impact"] in ("serious", "critical")], seen["axe"]


def assert_taken_apart(run, seen):
    """The page finds the losses that Python has found without each part, and plays what the model did wrong."""
    assert seen["open"]["missing"] == [] and len(seen["open"]["sections"]) == 8
    table = read(run / "report.html")[0]["ablation"][1:]
    for live, drop in zip(seen["ablate"]["found"], table, strict=True):
        assert (live["loss"], live["exact"]) == pytest.approx((drop["loss"], drop["exact"]), abs=1e-4)
    assert not seen["ablate"]["off"] and re.search("1 (character|token) hidden", seen["ablate"]["notice"])
    assert seen["wrong"]["groups"] and seen["wrong"]["prompt"] and seen["wrong"]["fault"] == ""
    assert_accessible(seen)


def test_a_run_on_progressions_is_played_with_and_taken_apart(browse, made_run):
    run = made_run("progressions")
    seen = browse(run, "faults", "play", "sample", "attend", "ablate", "cell", "wrong", "keyboard", "axe")
    faults = seen["faults"]["said"]
    assert "Type a progression" in faults[""] and "“x” is neither a digit nor a space" in faults["00x 010"]
    assert faults["07 010"].endswith("write 007.") and seen["faults"]["afterwards"] == ""
    assert faults["long"].startswith(f"“{24 * '0'}…” has 99 digits") and seen["faults"]["uneven"] == ""
    assert "".join(seen["faults"]["tokens"]) == "040␣050?"
    assert len(seen["play"]["written"]) == 12 and len(seen["play"]["verdict"]) >= 1 and seen["play"]["bars"] == 11
    assert seen["sample"] == {"written": 12, "bars": 6}
    assert (seen["attend"]["heads"], seen["attend"]["after"]) == (4, seen["attend"]["before"] - 1)
    assert re.search(r"attends to .* %", seen["attend"]["read"]) and seen["cell"]["rows"] == 8
    assert seen["ablate"]["verdict"].startswith("This was written before")
    assert_taken_apart(run, seen)


def test_a_translator_is_played_with_and_taken_apart(browse, made_run):
    run = made_run("pairs")
    seen = browse(run, "sentences", "translate", "beams", "force", "across", "ablate", "wrong", "axe")
    said = seen["sentences"]["said"]
    assert said["empty"] == "Type a sentence to translate." and said["new"] == "" and "half of a" in said["half"]
    assert re.match(r"This text has \d+ tokens with its end token, but .* at most 128: type less.", said["long"])
    assert seen["sentences"]["afterwards"] == "" and "".join(seen["sentences"]["source"]) == "705‹end›"
    played = seen["translate"]
    assert played["written"][-1] == "‹end›" or "The translation was stopped after 32 tokens" in played["note"]
    assert played["source"][-1] == "‹end›" and played["read"] == pytest.approx(1, abs=0.01) and played["bars"] == 12
    assert played["verdict"].startswith("The reference is:")
    beams = seen["beams"]
    scores = [float(row[5].replace("−", "-")) for row in beams["found"]]
    assert 2 <= len(scores) <= 4 and scores == sorted(scores, reverse=True) and beams["hidden"]
    _, text, tokens, probability, logp, score = beams["found"][0]
    assert len(beams["best"]) == int(tokens) and text.removesuffix(" …") and probability.endswith("%")
    assert float(score) == pytest.approx(float(logp) / ((5 + int(tokens)) / 6), abs=2e-3)
    forced = seen["force"]
    assert forced["held"] and "".join(forced["letters"]) == "seven‹end›"
    assert re.fullmatch(r"Mean cost of this text: [\d.]+ nats per token\.", forced["cost"])
    across = seen["across"]
    assert [kind.split("\n")[0][:6] for kind in across["kinds"]] == ["Cross-", "Encode", "Decode"]
    assert across["heads"] == 2 * (1 + 2 + 1) and across["cards"][-1] == "Decoder, layer 1, head 2"
    assert_taken_apart(run, seen)


def test_a_text_is_gone_on_with_and_one_head_alone_is_shown_large(browse, made_run):
    seen = browse(made_run("text"), "write", "alone", "axe")
    assert seen["write"]["written"] == 20 and seen["write"]["fault"] == ""  # as many as there are positions for
    assert seen["open"]["about"].startswith("A transformer of 1 layer with 1 head that writes text like bottles.txt")
    assert seen["alone"] == {"heads": 0, "cards": 1, "scale": "nats per character, logarithmic scale"}
    assert_accessible(seen)


def test_a_recurrent_network_and_a_population_are_played_with(browse, made_run):
    seen = browse(made_run("recurrent"), "play", "sample", "axe")
    assert "Hidden state" in seen["open"]["sections"]
    assert_accessible(seen)
    assert "This page shows member 0 of 4" in browse(made_run("members"), "play", "attend")["open"]["about"]


def test_a_page_that_cannot_run_its_model_says_so_and_shows_the_rest(browse, made_run, tmp_path, monkeypatch):
    run = shutil.copytree(made_run("progressions"), tmp_path / "run")
    monkeypatch.setattr(template, "RUNS", ["recurrent"])
    page.write(run, restore.load_settings(run), None)
    content = (run / "report.html").read_text("utf-8")
    (run / "report.html").write_text(content.replace('"architecture":"model"', '"architecture":"other"'), "utf-8")
    seen = browse(run)
    assert seen["open"]["missing"][:2] == [
        "This page cannot run a model of the architecture model.",
        "This page cannot show the embeddings of the architecture other.",
    ]
    assert {"Ablate", "Accuracy"} <= {*seen["open"]["sections"]}
    assert "Attention" not in seen["open"]["sections"]
