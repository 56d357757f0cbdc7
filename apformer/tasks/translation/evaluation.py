"""What a translator is worth: free-running translations of the test part, scored by sacrebleu (see `scores`).

Scored is what the beam search writes, never teacher-forced tokens. Beside the test part stand the validation part and
as many sentences of the training part: how much better these are says how much was learned by heart.
"""

import time
from itertools import islice

import jax
import numpy as np

from apformer import seq2seq
from apformer.report import attention, tables
from apformer.tasks import Evaluation
from apformer.tasks.translation import memory, scores, training
from apformer.tasks.translation.search import search

SAMPLES = 8
ATTENTION = ("encoder_attention", "decoder_attention", "cross_attention")  # what is drawn
BESIDE = 1000  # sentences of another part at most


def evaluate(model, settings, rows, progress):
    """Scores of the translations of the test part, and the translations themselves."""
    sacrebleu, options = scores.library(), settings.options
    cut = scores.moses(scores.language_of(settings.data))
    tokenizers, lines = rows["tokenizers"], rows["lines"]["test"]
    beside = {name: some(rows["lines"][name], min(BESIDE, len(lines.sources))) for name in ("validation", "train")}
    parts = {"test": lines, **beside}
    sources = [
        source_S
        for part in parts.values()
        for source_S in training.encode_side(tokenizers[0], part.sources, part.names[0], settings.data)
    ]
    begun = time.perf_counter()
    remembered = memory.build(model.params, settings, rows, sources) if options.memory else None
    tokens = search(
        sources,
        model.params,
        settings,
        options,
        memory=remembered,
        progress=lambda done: progress(done, len(sources)),
    )
    seconds = time.perf_counter() - begun
    texts, scored = iter([tokenizers[1].decode(tokens_T) for tokens_T in tokens]), {}
    written = {name: [*islice(texts, len(part.sources))] for name, part in parts.items()}
    for name, part in parts.items():
        of_part = scores.score(written[name], part.targets, sacrebleu, cut)
        scored[name] = {"sentences": len(part.sources), **of_part}
    found = written["test"]
    result = {
        "beams": options.beams,
        "alpha": options.alpha,
        **{name: getattr(options, name) for name in ("mbr", "memory") if getattr(options, name)},
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
    read, source, target = what_it_read(model.params, settings.model, sources[shown], written, tokenizers)
    before = ["end", *target[:-1]]  # each token was written after these
    pictures = {
        "encoder_attention": attention.by_layer(read["encoder_attention"], source, source),
        "decoder_attention": attention.by_layer(read["decoder_attention"], before, before),
        "cross_attention": attention.by_layer(read["cross_attention"], source, target),
    }
    return Evaluation(result, table(result), pictures, {"translations.tsv": "".join(f"{row}\n" for row in clean)})


def some(lines, count):
    """Lines spread over all: `count` of them, or all where there are no more."""
    kept = np.linspace(0, len(lines.sources) - 1, min(count, len(lines.sources))).astype(int)
    return lines._replace(sources=[lines.sources[n] for n in kept], targets=[lines.targets[n] for n in kept])


def what_it_read(params, cfg, source_S, target_T, tokenizers):
    """({name of an attention: weights LHTS}, the source's pieces, the target's and the end)."""
    end = np.int32(cfg.target_vocab_size - 1)
    inputs_BT = np.concatenate([[end], target_T]).astype(np.int32)[None]
    _, captured = jax.jit(seq2seq.apply, static_argnames=("cfg", "capture"))(
        params, source_S[None], inputs_BT, cfg, capture=ATTENTION
    )

    def pieces(tokens_T, tokenizer):
        words = [tokenizer.bytes_of(token).decode(errors="replace") for token in tokens_T]
        return [word.strip() or repr(word) for word in words] + ["end"]

    source, target = tokenizers
    weights = {name: np.asarray(weights_LBHTS)[:, 0] for name, weights_LBHTS in captured.items()}
    return weights, pieces(source_S[:-1], source), pieces(target_T, target)


def table(result):
    """An evaluation for a terminal."""
    agreed = f", the best {result['mbr']} compared" if "mbr" in result else ""
    looked_up = f", {result['memory']:,} training pairs looked up" if "memory" in result else ""
    method = f"beam {result['beams']}, length penalty {result['alpha']:g}{agreed}{looked_up}"
    lines = [f"{method}, {result['seconds']:.0f} s", ""]
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


def _points(score):
    return "-" if score is None else f"{score:.2f}"
