"""The page of a run on progressions: exact match, wrong terms, and some rows for the model in the page."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from apformer.analysis import ablate
from apformer.report import sections
from apformer.settings import Settings
from apformer.tasks.batch import Batch
from apformer.tasks.progressions import training
from apformer.tasks.progressions.evaluation import MODES, carries, charts, doubt, in_all
from apformer.tasks.progressions.generator import Config
from apformer.tokenizers import digits as tokenizer

ASK = "Type a progression: terms with leading zeros, separated by spaces."


def page(settings: Settings, rows: training.Rows, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return the content of the page, see `report.sections`."""
    cfg = settings.data
    does = f"continues arithmetic progressions of {cfg.digits}-digit terms"
    bounds = [cfg.min_difference, cfg.max_difference]
    prompt = sections.terms(ASK, cfg.digits, [sections.PROGRESSION], differences=bounds)
    shown = {
        "vocabulary": list(tokenizer.VOCABULARY),
        "task": sections.task(does, prompt, judges="terms", certifies=True, digits=10),
        "floor": _floor(settings),
        "facts": _facts(evaluation) if evaluation else [],
        "right": right(_blocks(evaluation, cfg) if evaluation else None),
        "wrong": _wrong(evaluation, cfg),
    }
    if evaluation and (reason := doubt(evaluation, settings)):
        shown["missing"] = {"certificate": reason.replace("RUN", shlex.quote(str(path)))}
    if params is None:
        return shown
    batch = sections.some_rows(training.validation(settings, rows).rows)
    term_T = np.arange(1, batch.tokens_BT.shape[1] + 1) // (cfg.digits + 1)
    return shown | {
        "probe": sections.probe(batch, term_T),
        "ablation": ablate.loss_drops(training.make_loss, settings, params, training.Step(batch)),
        "examples": _examples(batch, cfg.digits),
    }


def _examples(batch: Batch, digits: int) -> list[str]:
    """Return the first three terms of some rows; slow progressions first, since more terms follow."""
    end = 3 * (digits + 1) - 1
    lines = [
        tokenizer.decode(tokens_T[:end]) for tokens_T in batch.tokens_BT[batch.weights_BT[:, end - 1 : end].any(1)]
    ]
    lines.sort(key=lambda line: abs(int(line[-digits:]) - int(line[:digits])) > 10**digits // 4)
    return lines[: sections.EXAMPLES]


def right(blocks: list[dict] | None) -> dict:
    """Return the section of the charts of exact match of terms."""
    lead = (
        "A term is right if all its characters are right. Teacher-forced, the model predicts each term after the true "
        "terms. Free-running, it is given the first two terms and continues its own text. None of these rows was in "
        "the training data."
    )
    return {"title": "Accuracy", "lead": lead, "blocks": blocks}


def exact_facts(evaluation: dict, terms: str) -> list[list[str]]:
    """Return the facts of exact match. terms: a phrase such as "of 3,000 held-out terms"."""
    modes = reversed(MODES.items())
    return [[f"exact match, {name}", sections.percent(evaluation[f"exact_{mode}"]), terms] for mode, name in modes]


def _facts(evaluation: dict) -> list[list[str]]:
    facts = exact_facts(evaluation, f"of {sections.count(evaluation['terms'], 'held-out term')}")
    if "excess" in evaluation:
        nats, least = f"{evaluation['nats_per_char']:.4f}", f"{evaluation['bayes_nats_per_char']:.4f}"
        losses = f"{nats} nats per character on the test rows, where {least} is the lowest possible"
        facts.append(["excess loss", f"{evaluation['excess']:.4f}", losses])
    return facts


def _blocks(evaluation: dict, cfg: Config) -> list[dict]:
    """Return charts of exact match: by position, carries, difference, in all, and by first term and difference."""
    cells, tenth = evaluation["by_first_and_difference"], 10 ** (cfg.digits - 1)
    rows = in_all(evaluation)
    if "trained" in evaluation:
        rows.append(["terms of the training file", *in_all(evaluation["trained"])[0][1:]])
    return [
        *charts(evaluation),
        sections.table("Overall", ["outputs", "count", *MODES.values()], rows),
        sections.differences(
            [(i * tenth, (i + 1) * tenth - 1) for i in range(len(cells))],
            [(group["from"], group["to"]) for group in evaluation["by_difference"]],
            [[{"count": cell["count"], "share": cell["free_running"]} for cell in row] for row in cells],
        ),
    ]


def _wrong(evaluation: dict | None, cfg: Config) -> dict:
    """Return the wrong terms of an evaluation, grouped by carries and by the kind of error."""
    lead = "Terms that the model predicted wrongly after the true text (teacher-forced)."
    head = ["given", "expected", "predicted", "term", "difference", "carries"]
    if evaluation is None:
        return sections.listing("Wrong terms", lead, head, None)
    errors = evaluation["errors"]
    wrong = round((1 - (evaluation["exact_teacher_forced"] or 0)) * evaluation["terms"]) if errors else 0
    if len(errors) < wrong:
        lead += f" {len(errors):,} of {sections.count(wrong, 'wrong term')} are listed, evenly spaced."
    rows = [_row(error, cfg) for error in errors]
    groups = {
        "carries": [sections.count(int(row[5]), "carry", "carries") for row in rows],
        "kind of error": [_fault(error, cfg.digits) for error in errors],
    }
    none = f"None: all {sections.count(evaluation['terms'], 'held-out term')} are right."
    return sections.listing("Wrong terms", lead, head, rows, groups=groups, none=none)


def _row(error: dict, cfg: Config) -> list:
    before = error["row"].split()[: error["term"] - 1]
    terms, prompt = [*map(int, before)], " ".join(before[-3:])
    difference = terms[1] - terms[0]
    carried = carries(terms[-1], difference, cfg.digits)
    letters = list(zip(error["predicted"], error["expected"], strict=True))
    if letters[0] == (" ", " "):
        del letters[0]
    marked = [("␣" if letter == " " else letter, letter != truth) for letter, truth in letters]
    numbers = map(str, (error["term"], difference, carried))
    right = sections.cell(error["expected"].strip(), code=True)
    return [sections.cell(prompt, code=True, play=prompt), right, sections.cell(*marked, code=True), *numbers]


def _fault(error: dict, digits: int) -> str:
    if not re.fullmatch(f" [0-9]{{{digits}}}", error["predicted"]):
        return "not a term"
    away = abs(int(error["expected"]) - int(error["predicted"]))
    if str(away).strip("0") == "1":
        return f"off by {away}: a carry"
    places = sum(a != b for a, b in zip(error["expected"], error["predicted"], strict=True))
    return sections.count(places, "wrong digit")


def _floor(settings: Settings) -> dict | None:
    """Return the Bayes predictor's loss on the validation rows with its explanation; None if there is none."""
    if settings.options.dataset is not None or settings.options.prefix_loss == "none":
        return None
    note = (
        "The dashed line is the Bayes predictor’s loss on the validation rows: the lowest that is possible without "
        "knowing which progressions are held out."
    )
    crop = settings.options.crop_terms
    if crop < settings.data.max_terms:
        note += (
            f" These rows are cut to {crop} terms. Only the first two terms of a row are unpredictable, so the lowest "
            "possible loss per character is lower on the test rows, which are whole."
        )
    return {"nats": training.floor(settings, None), "why": note}
