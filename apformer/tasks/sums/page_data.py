"""The page of a run on sums: which sums are right by kind and place, and which are wrong."""

import numpy as np

from apformer.report import asked, sections
from apformer.tasks.progressions import page_data
from apformer.tasks.sums import generator, training
from apformer.tasks.sums.evaluation import MODES
from apformer.tokenizers import digits as tokenizer

EVALUATION = {"digits", "sequences", "exact_teacher_forced", "exact_free_running", "by_kind", "by_place", "errors"}
NAMES = ("teacher-forced", "free-running")


def page(settings, rows, params, evaluation, path):
    """What the page shows, see `report.sections`. params: None where the page may not ask the model."""
    cfg = settings.data
    does = f"adds two terms of {sections.count(cfg.digits, 'digit')}, least significant digit first"
    ask = f"Type two terms and a space after each, lowest digit first: {generator.render(5, 7, cfg)} is 5 and 7."
    prompt = sections.text(ask, generator.length(cfg))
    shown = {
        "vocabulary": list(tokenizer.VOCABULARY),
        "task": sections.task(does, prompt, judges="terms", certifies=True, digits=10),
        "facts": page_data.exact_facts(evaluation, "of held-out sums") if evaluation else [],
        "right": _right(evaluation),
        "wrong": _wrong(evaluation),
    }
    return shown if params is None else shown | _ask(settings, rows, params)


def _ask(settings, rows, params):
    batch = asked.few(training.validation(settings, rows))
    loss_fn, first = training.make_loss(asked.exactly(settings)), generator.given(settings.data)
    term_BT = np.where(batch.weights_BT > 0, 2, 0)
    return {
        "probe": asked.probe(batch, term_BT),
        "ablation": asked.drops(params, lambda params: loss_fn(params, batch, None)[1]),
        "examples": asked.spread([tokenizer.decode(tokens_T[:first]) for tokens_T in batch.tokens_BT], asked.EXAMPLES),
    }


def _right(found):
    lead = (
        "A sum is right when all its digits are. Teacher-forced, the model predicts each digit after the true text. "
        "Free-running, it predicts each after its own text. No pair of terms of the first two kinds is in training."
    )
    blocks = None
    if found:
        groups = [(kind["rows"], f"{kind['count']:,}", [kind[mode] for mode in MODES]) for kind in found["by_kind"]]
        blocks = [
            sections.bars("By kind of pair", "sums right", NAMES, groups),
            sections.lines(
                "By place",
                "place of the digit, 0 the lowest",
                "digits right",
                [place["place"] for place in found["by_place"]],
                {name: [p[mode] for p in found["by_place"]] for name, mode in zip(NAMES, MODES, strict=True)},
                share=True,
            ),
        ]
    return {"title": "Where it is right", "lead": lead, "blocks": blocks}


def _wrong(found):
    cells = lambda wrong: [sections.cell(wrong[name], code=True) for name in ("given", "expected", "predicted")]  # noqa: E731
    rows = found and [cells(wrong) for wrong in found["errors"]]
    return sections.listing("Wrong sums", "Free-running, a few.", ["given", "right", "the model"], rows)
