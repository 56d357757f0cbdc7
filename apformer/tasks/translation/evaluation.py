"""Score free-running translations of the test part by sacrebleu (see `scores`).

Scores are of the texts that the beam search writes, never of teacher-forced tokens. The validation part and as many
training sentences are scored too: the lead of these is what the model memorised.
"""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import jax
import numpy as np

from apformer import seq2seq
from apformer.decoding.bind import Model
from apformer.report import attention, tables
from apformer.settings import Settings
from apformer.tasks import Evaluation
from apformer.tasks.translation import scores, training
from apformer.tasks.translation.corpus import Lines
from apformer.tasks.translation.search import search
from apformer.tokenizers.text import BytePairs

Progress = Callable[[int, int], None]
SAMPLES = 8
ATTENTION = ("encoder_attention", "decoder_attention", "cross_attention")  # the figures
BESIDE = 1000  # sentences of another part at most


def evaluate(model: Model, settings: Settings, rows: dict[str, Any], progress: Progress) -> Evaluation:
    """Translate the test part by beam search, and score the translations."""
    return evaluate_with(search, model, settings, rows, progress)


def evaluate_with(
    translate: Callable, model: Model, settings: Settings, rows: dict[str, Any], progress: Progress
) -> Evaluation:
    """Translate the test part, and score the translations.

    Args:
        translate: Called as translate(sources, params, settings, progress=...), as `search` is.
        model: The translator.
        settings: Settings of its run.
        rows: As `training.load` returns them.
        progress: Called with how many sentences are translated, and of how many.
    """
    sacrebleu, options = scores.library(), settings.options
    moses = scores.moses(scores.language_of(settings.data))
    tokenizers, lines = rows["tokenizers"], rows["lines"]["test"]
    beside = {name: spread(rows["lines"][name], min(BESIDE, len(lines.sources))) for name in ("validation", "train")}
    parts = {"test": lines, **beside}
    sources = [
        source_S
        for part in parts.values()
        for source_S in training.encode_side(tokenizers[0], part.sources, part.names[0], settings.data)
    ]
    begun = time.perf_counter()
    tokens = translate(sources, model.params, settings, progress=lambda done: progress(done, len(sources)))
    seconds = time.perf_counter() - begun
    texts, scored = iter([tokenizers[1].decode(tokens_T) for tokens_T in tokens]), {}
    written = {name: [*islice(texts, len(part.sources))] for name, part in parts.items()}
    for name, part in parts.items():
        of_part = scores.score(written[name], part.targets, sacrebleu, moses)
        scored[name] = {"sentences": len(part.sources), **of_part}
    found = written["test"]
    result = {
        "beams": options.beams,
        "alpha": options.alpha,
        "seconds": round(seconds, 1),
        **scored.pop("test"),
        "parts": scored,
        "by_length": scores.by_length(found, lines.targets, sacrebleu),
        "samples": [
            {"source": lines.sources[n], "reference": lines.targets[n], "translation": found[n]}
            for n in np.linspace(0, len(found) - 1, min(SAMPLES, len(found))).astype(int)
        ],
    }
    columns = (["source", *lines.sources], ["reference", *lines.targets], ["translation", *found])
    clean = ("\t".join(" ".join(cell.split()) for cell in row) for row in zip(*columns, strict=True))
    shown = next((n for n in range(len(found)) if 4 <= len(tokens[n]) <= 16), 0)
    written = tokens[shown][: settings.data.longest - 1]  # the end before it has to fit learned positions, too
    weights, source, target = attention_of(model.params, settings.model, sources[shown], written, tokenizers)
    before = ["end", *target[:-1]]  # each token was written after these
    pictures = {
        "encoder_attention": attention.by_layer(weights["encoder_attention"], source, source),
        "decoder_attention": attention.by_layer(weights["decoder_attention"], before, before),
        "cross_attention": attention.by_layer(weights["cross_attention"], source, target),
    }
    return Evaluation(result, table(result), pictures, {"translations.tsv": "".join(f"{row}\n" for row in clean)})


def spread(lines: Lines, count: int) -> Lines:
    """Choose `count` lines at even distances, or all if there are no more."""
    rows = np.linspace(0, len(lines.sources) - 1, min(count, len(lines.sources))).astype(int)
    return lines._replace(sources=[lines.sources[n] for n in rows], targets=[lines.targets[n] for n in rows])


def attention_of(
    params: Any,
    cfg: seq2seq.Config,
    source_S: np.ndarray,
    target_T: np.ndarray,
    tokenizers: tuple[BytePairs, BytePairs],
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Return the weights_LHTS of each attention for a pair, and the texts of the source's and the target's tokens."""
    end = np.int32(cfg.target_vocab_size - 1)
    inputs_BT = np.concatenate([[end], target_T]).astype(np.int32)[None]
    _, captured = jax.jit(seq2seq.apply, static_argnames=("cfg", "capture"))(
        params, source_S[None], inputs_BT, cfg, capture=ATTENTION
    )

    def pieces(tokens_T: np.ndarray, tokenizer: BytePairs) -> list[str]:
        words = [tokenizer.bytes_of(token).decode(errors="replace") for token in tokens_T]
        return [word.strip() or repr(word) for word in words] + ["end"]

    source, target = tokenizers
    weights = {name: np.asarray(weights_LBHTS)[:, 0] for name, weights_LBHTS in captured.items()}
    return weights, pieces(source_S[:-1], source), pieces(target_T, target)


def table(result: dict[str, Any]) -> str:
    """Return an evaluation as text for a terminal."""
    lines = [f"beam {result['beams']}, length penalty {result['alpha']:g}, {result['seconds']:.0f} s", ""]
    rows = [["part", "sentences", "BLEU", "tokenised BLEU", "chrF", "exact"]]
    for name, found in {"test": result, **result["parts"]}.items():
        values = [_points(found[key]) for key in ("bleu", "tokenized_bleu", "chrf")]
        rows.append([name, f"{found['sentences']:,}", *values, tables.percent(found["exact"])])
    lines += tables.columns(rows)
    names = (("BLEU", "bleu"), ("tokenised BLEU", "tokenized"), ("chrF", "chrf"))
    lines += ["", *(f"{name}: {result[f'{key}_signature']}" for name, key in names), ""]
    rows = [["words of the reference", "sentences", "BLEU", "exact"]]
    for row in result["by_length"]:
        least, most = row["words"]
        words = f"{least} and more" if most is None else f"{least} to {most}"
        rows.append([words, f"{row['sentences']:,}", _points(row["bleu"]), tables.percent(row["exact"])])
    lines += tables.columns(rows)
    for sample in result["samples"]:
        verdict = "exact" if sample["translation"] == sample["reference"] else f"reference: {sample['reference']}"
        lines += ["", sample["source"], f"  -> {sample['translation']}", f"     {verdict}"]
    return "\n".join(lines)


def _points(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"
