"""The page of a run: the share of right terms by width, rule and base, and a list of wrong terms."""

from pathlib import Path
from typing import Any

from apformer.analysis import ablate
from apformer.report import sections
from apformer.settings import Settings
from apformer.tasks.progressions import page_data
from apformer_lab import training


def page(settings: Settings, rows_: Any, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return the content of the page, see `report.sections`. params: None for a page without the model."""
    form = settings.data.form
    bases = f"base{'s' * (len(form.bases) > 1)} {', '.join(map(str, form.bases))}"
    width = f"any width, trained on up to {form.digits} digits" if form.widths else f"{form.digits} digits"
    order = "least significant digit first" if form.lowest_first else "most significant digit first"
    description = f"continues rows by {', '.join(form.names)} in {bases}, of terms of {width}, {order}"
    request = f"Type two terms, such as {form.sample()}."
    prompt = sections.text(request)
    if not (form.widths or form.lowest_first):
        rule_names = [str(number) for number in range(1, len(form.names) + 1)] if form.headings else [""]
        rules = [
            sections.rule(a, b, constant=c, modulus=10**form.digits, name=name)
            for name, (a, b, c) in zip(rule_names, form.numbers, strict=True)
        ]
        prompt = sections.terms(request, form.digits, rules)
    digits = max(form.bases)
    content = {
        "vocabulary": [*form.characters],
        "task": sections.task(description, prompt, judges="terms", certifies=True, digits=digits),
        "facts": page_data.exact_facts(evaluation, "of held-out terms") if evaluation else [],
        "right": page_data.right(_bars(evaluation) if evaluation else None),
        "wrong": _wrong(evaluation),
    }
    return content if params is None else content | _model_parts(settings, rows_, params)


def _model_parts(settings: Settings, rows_: Any, params: Any) -> dict:
    form, batch = settings.data.form, sections.some_rows(training.validation(settings, rows_))
    given_B = (batch.weights_BT > 0).argmax(1)
    examples = [form.text(tokens_T[:given]) for tokens_T, given in zip(batch.tokens_BT, given_B, strict=True) if given]
    return {
        "probe": sections.probe(batch, batch.term_BT),
        "ablation": ablate.loss_drops(training.make_loss, settings, params, batch),
        "examples": sections.spread(examples, sections.EXAMPLES),
    }


def _bars(found: dict) -> list[dict]:
    def bars(title: str, of: list[dict], group: str, series: str, note: Any) -> dict:
        kinds = tuple(dict.fromkeys(each[series] for each in of))
        shares = {(each[group], each[series]): each["free_running"] for each in of}
        groups = [
            (f"{n}", note(n), [shares.get((n, kind)) for kind in kinds]) for n in dict.fromkeys(g for g, _ in shares)
        ]
        return sections.bars(title, "free-running", kinds, groups)

    trained = lambda digits: "trained" if digits <= found["trained_digits"] else "longer"  # noqa: E731
    by_width = bars("By digits of a term", found["widths"], "digits", "rows", trained)
    return [by_width, bars("By base", found["pairs"], "base", "rule", lambda base: "all widths")]


def _wrong(found: dict | None) -> dict:
    cells = lambda wrong: [sections.cell(wrong[name].strip(), code=True) for name in ("given", "expected", "predicted")]  # noqa: E731
    table_rows = found and [[f"{wrong['digits']}, {wrong['rows']}", *cells(wrong)] for wrong in found["errors"]]
    head = ["digits, rows", "given", "expected", "predicted"]
    return sections.listing("Wrong terms", "Some wrong terms of each number of digits, free-running.", head, table_rows)
