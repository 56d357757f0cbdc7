"""The page of a run on recurrences: where its terms are right, which are wrong, and some rows that it can ask."""

import numpy as np

from apformer.report import asked, sections
from apformer.tasks.recurrences import generator, rules, training
from apformer.tasks.recurrences.evaluation import MODES
from apformer.tokenizers import digits as tokenizer

EVALUATION = {"terms", "given", "exact_teacher_forced", "exact_free_running", "by_position", "by_rule", "errors"}
NAMES = ("teacher-forced", "free-running")


def page(settings, rows, params, evaluation, path):
    """What the page shows, see `report.sections`. params: None where the page may not ask the model."""
    cfg = settings.data
    does = f"continues linear recurrences of {cfg.digits}-digit terms: {', '.join(cfg.rules)}"
    prompt = sections.terms(
        f"Type a row, such as {generator.render(0, 3, 5, generator.given_terms(cfg), cfg)}.",
        cfg.digits,
        [_rule(number, rule, cfg) for number, rule in enumerate(cfg.rules, 1)],
    )
    shown = {
        "vocabulary": list(tokenizer.VOCABULARY),
        "task": sections.task(does, prompt, judges="terms", certifies=True, digits=10),
        "facts": _facts(evaluation) if evaluation else [],
        "right": _right(evaluation),
        "wrong": _wrong(evaluation),
    }
    return shown if params is None else shown | _ask(settings, rows, params)


def _rule(number, rule, cfg):
    a, b, c = rules.read(rule)
    name = str(number) if generator.is_named(cfg) else ""
    return sections.rule(a, b, constant=c, modulus=10**cfg.digits, name=name)


def _ask(settings, rows, params):
    cfg = settings.data
    batch = asked.few(training.validation(settings, rows))
    term_BT = np.broadcast_to(generator.term_of(cfg, training.cropped(settings)), batch.tokens_BT.shape)
    loss_fn = training.make_loss(asked.exactly(settings))
    words = generator.given_terms(cfg) + generator.is_named(cfg)
    return {
        "probe": asked.probe(batch, term_BT),
        "ablation": asked.drops(params, lambda params: loss_fn(params, batch, None)[1]),
        "examples": asked.first_terms(batch, tokenizer.decode, words),
    }


def _facts(found):
    of = f"of {sections.count(found['terms'], 'held-out term')}"
    shares = zip(NAMES, MODES, strict=True)
    return [[f"exact match, {name}", sections.percent(found[f"exact_{mode}"]), of] for name, mode in shares]


def _right(found):
    lead = (
        "A term is right when every character of it is. Teacher-forced, the model predicts each term after the true "
        "text. Free-running, it predicts each after its own text. No training row has the two terms that a row begins "
        "with as neighbours."
    )
    blocks = None
    if found:
        groups = [(g["rule"], f"{g['count']:,}", [g[mode] for mode in MODES]) for g in found["by_rule"] if g["count"]]
        blocks = [
            sections.lines(
                "By position",
                f"number of the term (the first {found['given']} are given)",
                "terms right",
                [group["term"] for group in found["by_position"]],
                {name: [g[mode] for g in found["by_position"]] for name, mode in zip(NAMES, MODES, strict=True)},
                counts=[group["count"] for group in found["by_position"]],
                share=True,
            ),
            sections.bars("By rule", "rule", NAMES, groups),
        ]
    return {"title": "Where it is right", "lead": lead, "blocks": blocks}


def _wrong(found):
    lead = "Teacher-forced: what the model says after the true text, where that is not the next term."
    rows = found and [
        [_code(wrong[name]) for name in ("row", "expected", "predicted")] + [str(wrong["term"])]
        for wrong in found["errors"]
    ]
    return sections.listing("Wrong terms", lead, ["row", "right", "the model", "term"], rows)


def _code(text):
    return sections.cell(text.strip(), code=True)
