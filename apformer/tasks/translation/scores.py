"""Score translations by sacrebleu: BLEU as it is to be reported, and as the literature of Multi30k reports it.

    bleu        of the texts as they are, cased, cut into words by sacrebleu (13a; Post 2018)
    tokenized   of the texts in lower case, normalised and cut into words as Moses does (sacremoses), so that sacrebleu
                cuts nothing: what `multi-bleu.perl` says of files that were prepared like this
    chrf        of the texts as they are (Popović 2015)

The two kinds of BLEU (Papineni et al. 2002) of the same translations differ by points and must not be compared.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from apformer.errors import USAGE, UserError
from apformer.report import tables
from apformer.tasks.translation.corpus import Config

LENGTHS = (1, 6, 11, 16, 21, 31)  # words of a reference at which the rows of the table begin
NAMES = {  # key: (name, key of its signature)
    "bleu": ("BLEU", "bleu_signature"),
    "tokenized_bleu": ("tokenised BLEU", "tokenized_signature"),
    "chrf": ("chrF", "chrf_signature"),
}


def require() -> None:
    """Raise UserError (exit USAGE) if the text extra is missing."""
    try:
        import sacrebleu  # noqa: F401
        import sacremoses  # noqa: F401
    except ImportError:
        raise UserError('scores need the text extra: pip install "apformer[text]"', USAGE) from None


def moses(language: str) -> Callable[[str], str]:
    """Return a function from a text to its words, joined by spaces.

    The text is put in lower case, its punctuation normalised and then cut off, as in Multi30k's `lc.norm.tok` files.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)


def language_of(cfg: Config) -> str:
    """Return the language of the translations: --to_language of number words, the suffix of --target, as in train.de.

    English, whose rules sacremoses takes for languages that it does not know, where neither is a code of two letters.
    """
    code = cfg.to_language if cfg.source is None else PurePath(cfg.target).suffix[1:]
    return code if len(code) == 2 and code.isalpha() else "en"


def score(found: Sequence[str], references: Sequence[str], language: str) -> dict[str, Any]:
    """Return both kinds of BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations."""
    import sacrebleu
    import sacremoses

    chrf, words = sacrebleu.CHRF(), moses(language)
    cut = [[words(text) for text in side] for side in (found, references)]
    plain, signature = bleu(found, references)
    # force: sacrebleu else warns of texts that were cut before, which is what is wanted.
    tokenized, tokenized_signature = bleu(*cut, tokenize="none", lowercase=True, force=True)
    return {
        "bleu": plain,
        "bleu_signature": signature,
        "chrf": chrf.corpus_score(found, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "exact": exact(found, references),
        "tokenized_bleu": tokenized,
        "tokenized_signature": f"{tokenized_signature}|lc.norm.moses-{language}|sacremoses:{sacremoses.__version__}",
    }


def bleu(found: Sequence[str], references: Sequence[str], **options: Any) -> tuple[float | None, str]:
    """Return BLEU and its signature. BLEU is None where no reference has four words, as of German number words."""
    import sacrebleu

    metric = sacrebleu.BLEU(**options)
    best, value = (metric.corpus_score(side, [references]).score for side in (references, found))
    return value if best else None, str(metric.get_signature())


def exact(found: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of texts that are their references."""
    return float(np.mean([text == reference for text, reference in zip(found, references, strict=True)]))


def by_length(found: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """Return scores by the words of the references: "words" [least, most or None], "sentences", "bleu", "exact"."""
    groups = defaultdict(list)
    for text, reference in zip(found, references, strict=True):
        groups[length(reference)].append((text, reference))
    table = []
    for words, pairs in sorted(groups.items()):
        sides = list(zip(*pairs, strict=True))
        same = {"words": [*words], "sentences": len(pairs)}
        table.append(same | {"bleu": bleu(*sides)[0], "exact": exact(*sides)})
    return table


def length(reference: str) -> tuple[int, int | None]:
    """Return the least and the most words of the references that are as long as this one, about."""
    group = max(1, bisect(LENGTHS, len(reference.split())))
    return LENGTHS[group - 1], LENGTHS[group] - 1 if group < len(LENGTHS) else None


def by_part(result: dict[str, Any]) -> list[list[str]]:
    """Return a table of the scores of each part, its head first."""
    rows = [["part", "sentences", *(name for name, _ in NAMES.values()), "exact"]]
    for name, part in {"test": result, **result["parts"]}.items():
        values = [points(part[key]) for key in NAMES]
        rows.append([name, f"{part['sentences']:,}", *values, tables.percent(part["exact"])])
    return rows


def points(score: float | None) -> str:
    """Return a score from 0 to 100 as text; a dash for one that is missing."""
    return "-" if score is None else f"{score:.2f}"


def length_name(least: int, most: int | None) -> str:
    """Return the words of a group of references as text."""
    return f"{least} and more" if most is None else f"{least} to {most}"
