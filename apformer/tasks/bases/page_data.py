"""The page of a run in many bases: how many terms are right by rule, base and width, and which are wrong."""

from apformer.report import asked, sections
from apformer.tasks.bases import training
from apformer.tasks.bases.alphabet import CHARACTERS, DIGITS, RULES, decode
from apformer.tasks.digits.page_data import by_width
from apformer.tasks.progressions import page_data

EVALUATION = {"trained_digits", "widths", "pairs", "exact_teacher_forced", "exact_free_running"}
WIDTHS_UNIT = "free-running; in hard terms carries run far"


def page(settings, rows, params, evaluation, path):
    """What the page shows, see `report.sections`."""
    cfg = settings.data
    bases = f"base {cfg.bases[0]}" if len(cfg.bases) == 1 else f"bases {', '.join(map(str, cfg.bases))}"
    rows_by = f"continues rows by {', '.join(cfg.rules)} in {bases}, of terms of any width"
    does = f"{rows_by}, trained on up to {cfg.digits} digits"
    marks = ", ".join(f"{RULES[rule]} {rule}" for rule in cfg.rules)
    ask = f"Type a rule ({marks}), the largest digit of a base, and two terms, lowest digit first."
    shown = {
        "vocabulary": list(CHARACTERS),
        "task": sections.task(does, sections.text(ask), judges="terms", certifies=True, digits=len(DIGITS)),
        "facts": page_data.exact_facts(evaluation, "of held-out terms") if evaluation else [],
        "right": page_data.right([_by_base(evaluation), by_width(evaluation, WIDTHS_UNIT)] if evaluation else None),
        "wrong": _wrong(evaluation),
    }
    return shown if params is None else shown | _ask(settings, rows, params)


def _ask(settings, rows, params):
    batch = asked.few(training.validation(settings, rows))
    loss_fn = training.make_loss(asked.exactly(settings))
    given_B = (batch.weights_BT > 0).argmax(1)
    examples = [decode(tokens_T[:given]) for tokens_T, given in zip(batch.tokens_BT, given_B, strict=True)]
    return {
        "probe": asked.probe(batch, batch.term_BT),
        "ablation": asked.drops(params, lambda params: loss_fn(params, batch, None)[1]),
        "examples": asked.spread(examples, asked.EXAMPLES),
    }


def _by_base(found):
    shares = {(pair["rule"], pair["base"]): pair["free_running"] for pair in found["pairs"]}
    rules = tuple(dict.fromkeys(pair["rule"] for pair in found["pairs"]))
    groups = [
        (f"base {base}", "", [shares.get((rule, base)) for rule in rules])
        for base in dict.fromkeys(pair["base"] for pair in found["pairs"])
    ]
    return sections.bars("By base", "free-running, all widths", rules, groups)


def _wrong(found):
    cells = lambda wrong: [sections.cell(wrong[name].strip(), code=True) for name in ("given", "expected", "predicted")]  # noqa: E731
    rows = found and [cells(wrong) for wrong in found["errors"]]
    return sections.listing("Wrong terms", "Free-running, a few.", ["given", "right", "the model"], rows)
