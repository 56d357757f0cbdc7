"""Score free-running translations of the test part by sacrebleu (see `scores`).

Translations are those of the beam search, never teacher-forced. The validation part and as many training sentences, at
most a thousand each, are scored too: higher scores of the training sentences show memorisation.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import jax
import numpy as np

from apformer import seq2seq
from apformer.decoding.bind import Model
from apformer.report import attention, tables
from apformer.report.sections import spread
from apformer.settings import Settings
from apformer.tasks import Evaluation, Progress
from apformer.tasks.translation import scores, training, vocabularies
from apformer.tasks.translation.search import search

SAMPLES = 8
BESIDE = 1000  # most sentences of the validation or the training part
LISTED, WRONG = 80, 60  # most translations on the page, and most wrong ones among them


def evaluate(
    model: Model, settings: Settings, rows: training.Rows, progress: Progress, translate: Callable = search
) -> Evaluation:
    """Translate the test part, and score the translations.

    Args:
        model: The translator.
        settings: Settings of its run.
        rows: As `training.load` returns them.
        progress: Called with the number of translated sentences, and of all.
        translate: Function translate(sources, params, settings, progress=...) -> tokens of each translation.
    """
    options, cfg, tokenizers = settings.options, settings.data, rows["tokenizers"]
    test, language = rows["lines"]["test"], scores.language_of(cfg)
    parts, most = {"test": test}, min(BESIDE, len(rows["lines"]["validation"].sources))
    for name in ("validation", "train"):
        part = rows["lines"][name]
        parts[name] = part.choose(spread(range(len(part.sources)), most))
    sources = [
        source_S
        for part in parts.values()
        for source_S in training.encode_side(tokenizers[0], part.sources, part.names[0], cfg)
    ]
    begun = time.perf_counter()
    tokens = translate(sources, model.params, settings, progress=progress)
    seconds = round(time.perf_counter() - begun, 1)
    texts = [*map(tokenizers[1].decode, tokens)]
    translations = texts[: len(test.sources)]
    rest = iter(texts)
    scored = {}
    for name, part in parts.items():
        count = len(part.sources)
        scored[name] = {"sentences": count} | scores.score([*islice(rest, count)], part.targets, language)
    head = ("source", "reference", "translation")
    triples = [*zip(test.sources, test.targets, translations, strict=True)]
    lines = [dict(zip(head, triple, strict=True)) for triple in triples]
    result = {
        "beams": options.beams,
        "alpha": options.alpha,
        "seconds": seconds,
        **scored.pop("test"),
        "parts": scored,
        "by_length": scores.by_length(translations, test.targets, language),
        "samples": spread(lines, SAMPLES),
        "listed": listed(lines),
    }
    clean = ["\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in (head, *triples)]
    shown = next((n for n in range(len(lines)) if 4 <= len(tokens[n]) <= 16), 0)
    written = tokens[shown][: cfg.longest - 1]  # learned positions must also hold the end token before it
    figures = draw_attention(model.params, settings.model, sources[shown], written, tokenizers)
    return Evaluation(result, table(result), figures, {"translations.tsv": "".join(clean)})


def listed(lines: list[dict]) -> list[dict]:
    """Return some lines for the page, mostly wrong translations; their keys are source, reference and translation."""
    is_right = [line["translation"] == line["reference"] for line in lines]
    wrong = spread([n for n, right in enumerate(is_right) if not right], WRONG)
    right = spread([n for n, right in enumerate(is_right) if right], LISTED - len(wrong))
    return [lines[n] for n in sorted([*right, *wrong])]


def draw_attention(
    params: Any,
    cfg: seq2seq.Config,
    source_S: np.ndarray,
    target_T: np.ndarray,
    tokenizers: vocabularies.Pair,
) -> dict[str, Any]:
    """Return {name: figure} of the attentions of encoder, decoder and cross-attention for a pair of sentences."""

    def pieces(tokens_T: np.ndarray, tokenizer: vocabularies.Tokenizer) -> list[str]:
        words = [tokenizer.bytes_of(token).decode(errors="replace") for token in tokens_T]
        return [word.strip() or repr(word) for word in words] + ["end"]

    source, target = pieces(source_S[:-1], tokenizers[0]), pieces(target_T, tokenizers[1])
    before = ["end", *target[:-1]]  # inputs of the decoder
    sides = {
        "encoder_attention": (source, source),
        "decoder_attention": (before, before),
        "cross_attention": (source, target),
    }
    inputs_BT = np.concatenate([[cfg.target_vocab_size - 1], target_T]).astype(np.int32)[None]
    apply = jax.jit(partial(seq2seq.apply, cfg=cfg, capture=tuple(sides)))
    _, captured = apply(params, source_S[None], inputs_BT)
    return {  # the mean over heads
        name: attention.draw(np.asarray(captured[name])[:, 0].mean(axis=1, keepdims=True), *texts)
        for name, texts in sides.items()
    }


def table(result: dict[str, Any]) -> str:
    """Return an evaluation as text for a terminal."""
    lines = [f"beam {result['beams']}, length penalty {result['alpha']:g}, {result['seconds']:.0f} s", ""]
    lines += tables.columns(scores.by_part(result))
    lines += ["", *(f"{name}: {result[signature]}" for name, signature in scores.NAMES.values()), ""]
    rows = [["words of the reference", "sentences", "BLEU", "exact"]]
    for row in result["by_length"]:
        values = scores.points(row["bleu"]), tables.percent(row["exact"])
        rows.append([scores.length_name(*row["words"]), f"{row['sentences']:,}", *values])
    lines += tables.columns(rows)
    if any(row["bleu"] is None for row in result["by_length"]):
        lines.append("-: BLEU needs a sentence of four words")
    for sample in result["samples"]:
        verdict = "exact" if sample["translation"] == sample["reference"] else f"reference: {sample['reference']}"
        lines += ["", sample["source"], f"  -> {sample['translation']}", f"     {verdict}"]
    return "\n".join(lines)
