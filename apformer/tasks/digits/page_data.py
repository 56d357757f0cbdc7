"""The page of a run on progressions of many widths: how many terms are right by width, and which are wrong."""

from apformer.report import asked, sections
from apformer.tasks.digits import training
from apformer.tasks.progressions import page_data
from apformer.tokenizers import digits as tokenizer

EVALUATION = {"trained_digits", "widths", "exact_teacher_forced", "exact_free_running"}
WIDTHS_UNIT = "free-running; in adversarial terms and chains carries run far"


def page(settings, rows, params, evaluation, path):
    """What the page shows, see `report.sections`."""
    cfg = settings.data
    does = f"continues arithmetic progressions of terms of any width, trained on up to {cfg.digits} digits"
    prompt = sections.text("Type a progression, such as 007 010 013.")
    shown = {
        "vocabulary": list(tokenizer.VOCABULARY),
        "task": sections.task(does, prompt, judges="terms", certifies=True, digits=10),
        "facts": page_data.exact_facts(evaluation, "of held-out terms") if evaluation else [],
        "right": page_data.right([by_width(evaluation, WIDTHS_UNIT)] if evaluation else None),
        "wrong": _wrong(evaluation),
    }
    return shown if params is None else shown | _ask(settings, rows, params)


def _ask(settings, rows, params):
    batch = asked.few(training.validation(settings, rows))
    loss_fn = training.make_loss(asked.exactly(settings))
    return {
        "probe": asked.probe(batch, batch.term_BT),
        "ablation": asked.drops(params, lambda params: loss_fn(params, batch, None)[1]),
        "examples": asked.first_terms(batch, tokenizer.decode),
    }


def by_width(found, unit):
    """Bars of what is right free-running, for each width and kind of rows."""
    kinds = tuple(dict.fromkeys(suite["rows"] for suite in found["widths"]))
    shares = {(suite["digits"], suite["rows"]): suite["free_running"] for suite in found["widths"]}
    groups = [
        (
            sections.count(digits, "digit"),
            "trained" if digits <= found["trained_digits"] else "longer",
            [shares.get((digits, kind)) for kind in kinds],
        )
        for digits in dict.fromkeys(digits for digits, _ in shares)
    ]
    return sections.bars("By width", unit, kinds, groups)


def _wrong(found):
    head = ["digits, rows", "given", "right", "the model"]
    rows = found and [
        [f"{suite['digits']}, {suite['rows']}", *map(_code, (wrong["given"], wrong["expected"], wrong["predicted"]))]
        for suite in found["widths"]
        for wrong in suite["errors"]
    ]
    return sections.listing("Wrong terms", "Free-running, a few of each width.", head, rows)


def _code(text):
    return sections.cell(text.strip(), code=True)
