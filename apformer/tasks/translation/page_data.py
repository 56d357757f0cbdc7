"""The page of a translator: its scores, its translations of test sentences, and some validation pairs.

tokens      end  y_1 .. y_T-1  end       the model reads all but the last, and predicts all but the first
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from apformer import loss, seq2seq
from apformer.analysis import ablate
from apformer.files import Json
from apformer.report import sections
from apformer.settings import Settings
from apformer.tasks.translation import batches, scores, training, vocabularies
from apformer.tokenizers import merges

ROWS = 48  # most validation pairs
WORK = 1.5e9  # multiplications for them in the page, about a second
LONGEST = 100  # most characters of an example sentence
DIFFER = (
    "the same words, in another order or number",
    "one word differs",
    "two words differ",
    "three words differ",
    "four or more words differ",
)
END = "‹end›"  # the token that ends a sentence and begins its translation


def page(settings: Settings, rows: Any, params: Any, evaluation: Json | None, path: Path) -> Json:
    """Return the content of the page, see `report.sections`."""
    cfg = settings.data
    options = settings.options
    missing = {}

    def words(tokenizer: Any) -> Json:
        pairs = sections.attempt(missing, "byte_pairs", lambda: merges.of(tokenizer))
        return {"vocabulary": [*merges.texts(tokenizer), END], "byte_pairs": pairs}

    does = f"translates numbers up to {cfg.largest:,} from “{cfg.from_language}” to “{cfg.to_language}”"
    if cfg.source:
        does = f"translates text like {Path(cfg.source).name} to text like {Path(cfg.target).name}"
    source, target = vocabularies.load(path)
    shown = words(target) | {
        "task": sections.task(
            does,
            sections.text("Type a sentence to translate.", cfg.longest),
            judges="tokens",
            plays="translate",
            end=settings.model.target_vocab_size - 1,
            search={"beams": options.beams, "alpha": options.alpha},
        ),
        "facts": _facts(evaluation) if evaluation else [],
        "right": _right(evaluation),
        "wrong": _listing(evaluation),
        "missing": missing,
    }
    if source is not target:
        shown["source_words"] = words(source) | {"end": settings.model.source_vocab_size - 1}
    return shown if params is None else shown | ask(settings, rows, params)


def ask(settings: Settings, rows: Any, params: Any) -> Json:
    """Return validation pairs, their loss without each part of the model, and example sentences with references."""
    cfg, lines = settings.model, rows["lines"]["validation"]
    few = lines.choose(sections.spread(range(len(lines.sources)), ROWS))
    sides = training.encode(rows["tokenizers"], few, settings.data)
    parameters, tokens = map(optax.tree.size, (params, sides))
    sides = [sections.spread(side, max(8, int(len(side) * WORK / (parameters * tokens)))) for side in sides]
    shown = [line for line in zip(*lines[:2], strict=True) if 0 < len(line[0]) <= LONGEST]
    shown = sections.spread(shown, sections.EXAMPLES)
    sources, targets = ([tokens_T.tolist() for tokens_T in side] for side in sides)
    return {
        "probe": {
            "sources": sources,
            "tokens": [[cfg.target_vocab_size - 1, *target] for target in targets],
            "weights": [[0.0] + [1.0] * len(target) for target in targets],
            "terms": [[-1, *range(len(target))] for target in targets],  # each token counts for itself
        },
        "ablation": ablate.drops(params, _measure(cfg, sides)),
        "examples": [source for source, _ in shown],
        "references": [target for _, target in shown],
    }


def _measure(cfg: seq2seq.Config, sides: list) -> Callable:
    """Return a function from parameters to the nats of a target token ("loss") and the exact share ("exact")."""
    (part,) = batches.pad(sides, (int(batches.longest_of(sides).max()),))
    part = jax.device_put(part)

    def measure(params: Any) -> dict[str, Any]:
        logits_BTV, weights_BT = training.predict(params, part, cfg)
        right_BT = (logits_BTV.argmax(-1) == part.target_NT).astype(jnp.float32)
        nats = loss.cross_entropy(logits_BTV, part.target_NT, weights_BT)
        return {"loss": nats, "exact": jnp.average(right_BT, weights=weights_BT)}

    return measure


def _facts(evaluation: Json) -> list[list[str]]:
    facts = [
        [name, scores.points(evaluation[key]), evaluation[signature].replace("|", " | ")]
        for key, (name, signature) in scores.NAMES.items()
    ]
    exact = f"of {sections.count(evaluation['sentences'], 'test sentence')}, identical to the reference"
    return [*facts, ["exact translations", sections.percent(evaluation["exact"]), exact]]


def _right(evaluation: Json | None) -> Json:
    """Return the section of the scores, with charts by the length of the reference."""
    shown = {
        "title": "Scores",
        "lead": "Free-running translations of the test sentences, compared with one reference each. BLEU uses the "
        "texts as they are, tokenised BLEU lower-cased words: do not compare them.",
        "blocks": None,
    }
    if evaluation is None:
        return shown

    def bars(key: str, name: str, full: int) -> Json:
        groups = [
            (scores.length_name(*group["words"]), f"{group['sentences']:,}", [group[key] and group[key] / full])
            for group in evaluation["by_length"]
        ]
        return sections.bars(f"{name} by length", "words of the reference", [name], groups, points=full > 1)

    head, *parts = scores.by_part(evaluation)
    table = sections.table("Test and training sentences", head, parts)
    return shown | {"blocks": [bars("bleu", "BLEU", 100), bars("exact", "Exact", 1), table]}


def _listing(evaluation: Json | None) -> Json:
    """Return translations beside their references, grouped by the number of different words."""
    lead = (
        "Translations of some test sentences, as searched in the evaluation. Choose a source to translate it above. A "
        "highlighted word is only in the translation or only in the reference."
    )
    head = ["source", "translation", "reference"]
    if evaluation is None:
        return sections.listing("Translations", lead, head, None)
    lines = evaluation["listed"]
    if len(lines) < evaluation["sentences"]:
        total = sections.count(evaluation["sentences"], "sentence")
        lead += f" {len(lines):,} of {total} are listed; most of these differ from their reference."
    groups = {"difference": [_difference(line) for line in lines]}
    rows = [
        [
            sections.cell(line["source"] or "∅", play=line["source"]),
            _marked(line["translation"], line["reference"]),
            _marked(line["reference"], line["translation"]),
        ]
        for line in lines
    ]
    return sections.listing("Translations", lead, head, rows, groups=groups)


def _marked(text: str, other: str) -> Json:
    """Return a text in which the words that the other text lacks are marked."""
    others = set(other.split())
    return sections.cell(*(piece for word in text.split() for piece in ((word, word not in others), " ")))


def _difference(line: Json) -> str:
    if line["translation"] == line["reference"]:
        return "exact"
    translation, reference = (set(line[name].split()) for name in ("translation", "reference"))
    return DIFFER[min(max(len(translation - reference), len(reference - translation)), len(DIFFER) - 1)]
