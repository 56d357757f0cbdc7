"""What a translator is worth: free-running translations of the test part, scored by sacrebleu.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) of what the beam search writes, never of teacher-forced tokens, with
the signatures that make them comparable (Post 2018); and how many translations are the reference, letter by letter.
"""

import time

import jax
import numpy as np

from apformer import seq2seq
from apformer.errors import USAGE, UserError
from apformer.report import attention, tables
from apformer.tasks import Evaluation
from apformer.tasks.translation import training
from apformer.tasks.translation.search import search

LENGTHS = (1, 6, 11, 16, 21, 31)  # words of a reference at which the rows of the table begin
SAMPLES = 8
ATTENTION = ("encoder_attention", "decoder_attention", "cross_attention")  # what is drawn


def evaluate(model, settings, rows, progress):
    """Scores of the translations of the test part, and the translations themselves."""
    sacrebleu, options = library(), settings.options
    tokenizer, lines = rows["tokenizer"], rows["lines"]["test"]
    sources = training.encode_side(tokenizer, lines.sources, lines.names[0], settings.data)
    begun = time.perf_counter()
    tokens = search(sources, model.params, settings, options, progress=lambda done: progress(done, len(sources)))
    seconds = time.perf_counter() - begun
    found = [tokenizer.decode(tokens_T) for tokens_T in tokens]
    result = {
        "sentences": len(found),
        "beams": options.beams,
        "alpha": options.alpha,
        "seconds": round(seconds, 1),
        **score(found, lines.targets, sacrebleu),
        "by_length": by_length(found, lines.targets, sacrebleu),
        "samples": [
            {"source": lines.sources[n], "reference": lines.targets[n], "translation": found[n]}
            for n in np.linspace(0, len(found) - 1, min(SAMPLES, len(found))).astype(int)
        ],
    }
    columns = (["source", *lines.sources], ["reference", *lines.targets], ["translation", *found])
    clean = ("\t".join(" ".join(cell.split()) for cell in row) for row in zip(*columns, strict=True))
    shown = next((n for n in range(len(found)) if 4 <= len(tokens[n]) <= 16), 0)
    read, source, target = what_it_read(model.params, settings.model, sources[shown], tokens[shown], tokenizer)
    before = ["end", *target[:-1]]  # each token was written after these
    pictures = {
        "encoder_attention": attention.by_layer(read["encoder_attention"], source, source),
        "decoder_attention": attention.by_layer(read["decoder_attention"], before, before),
        "cross_attention": attention.by_layer(read["cross_attention"], source, target),
    }
    return Evaluation(result, table(result), pictures, {"translations.tsv": "".join(f"{row}\n" for row in clean)})


def library():
    """The sacrebleu library. Raises UserError (exit USAGE) if the text extra is missing."""
    try:
        import sacrebleu
    except ImportError:
        raise UserError('scores need the text extra: pip install -e ".[text]"', USAGE) from None
    return sacrebleu


def score(found, references, sacrebleu):
    """BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations."""
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    return {
        "bleu": bleu.corpus_score(found, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(found, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "exact": float(np.mean([text == reference for text, reference in zip(found, references, strict=True)])),
    }


def by_length(found, references, sacrebleu):
    """The same by the words of the references: [{"words": [least, most or None], "sentences", "bleu", "exact"}]."""
    group_N = np.digitize([len(reference.split()) for reference in references], LENGTHS[1:])
    table = []
    for group, (least, after) in enumerate(zip(LENGTHS, (*LENGTHS[1:], None), strict=True)):
        kept = np.flatnonzero(group_N == group)
        if len(kept):
            scores = score([found[n] for n in kept], [references[n] for n in kept], sacrebleu)
            words = [least, None if after is None else after - 1]
            table.append({"words": words, "sentences": len(kept), "bleu": scores["bleu"], "exact": scores["exact"]})
    return table


def what_it_read(params, cfg, source_S, target_T, tokenizer):
    """({name of an attention: weights LHTS}, the source's pieces, the target's and the end)."""
    end = np.int32(cfg.target_vocab_size - 1)
    inputs_BT = np.concatenate([[end], target_T]).astype(np.int32)[None]
    _, captured = jax.jit(seq2seq.apply, static_argnames=("cfg", "capture"))(
        params, source_S[None], inputs_BT, cfg, capture=ATTENTION
    )

    def pieces(tokens_T):
        words = ["end" if token == end else tokenizer.bytes_of(token).decode(errors="replace") for token in tokens_T]
        return [word.strip() or repr(word) for word in words]

    weights = {name: np.asarray(weights_LBHTS)[:, 0] for name, weights_LBHTS in captured.items()}
    return weights, pieces(source_S), pieces([*target_T, end])


def table(result):
    """An evaluation for a terminal."""
    lines = [
        f"{result['sentences']:,} test sentences, beam {result['beams']}, length penalty "
        f"{result['alpha']:g}, {result['seconds']:.0f} s:",
        f"BLEU {result['bleu']:.2f} ({result['bleu_signature']}), chrF {result['chrf']:.2f} "
        f"({result['chrf_signature']}), exact {tables.percent(result['exact'])}",
        "",
    ]
    rows = [["words of the reference", "sentences", "BLEU", "exact"]]
    for row in result["by_length"]:
        least, most = row["words"]
        words = f"{least} and more" if most is None else f"{least} to {most}"
        rows.append([words, f"{row['sentences']:,}", f"{row['bleu']:.2f}", tables.percent(row["exact"])])
    lines += tables.columns(rows)
    for sample in result["samples"]:
        verdict = "exact" if sample["translation"] == sample["reference"] else f"reference: {sample['reference']}"
        lines += ["", sample["source"], f"  -> {sample['translation']}", f"     {verdict}"]
    return "\n".join(lines)
