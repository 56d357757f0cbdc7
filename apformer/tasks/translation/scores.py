"""Score translations by sacrebleu: BLEU in its standard form, and in the form of the literature of Multi30k.

    bleu        cased texts, tokenised by sacrebleu (13a, or its tokenizer of the language; Post 2018)
    tokenized   texts in lower case, normalised and tokenised as by Moses (sacremoses), so that sacrebleu tokenises
                nothing: the figure of `multi-bleu.perl` for such files
    chrf        cased texts (Popović 2015)

The two kinds of BLEU (Papineni et al. 2002) of the same translations differ by points and must not be compared.
"""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from apformer import files
from apformer.errors import UserError, typed
from apformer.report import tables
from apformer.tasks.translation.corpus import Config

WITHOUT_SPACES = {"zh": "zh", "ja": "ja-mecab", **dict.fromkeys(("bo", "dz", "km", "lo", "my", "th"), "char")}
LENGTHS = (1, 6, 11, 16, 21, 31)  # least words of a reference in each row of the table
LOW = 10  # BLEU below which a translation is of little use
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
        raise UserError('scores need the text extra: pip install "apformer[text]"') from None


def moses(language: str) -> Callable[[str], Any]:
    """Return a function from a text to its tokens, joined by spaces, as in Multi30k's `lc.norm.tok` files.

    The text is put in lower case, its punctuation is normalised, and then made tokens of its own.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)


def language_of(cfg: Config) -> str:
    """Return the language of the translations: the suffix of --target, as in train.de, or else --to_language.

    If neither begins with a code of two letters, English, whose rules sacremoses uses for unknown languages.
    """
    codes = (re.split("[-_]", name)[0].lower() for name in (PurePath(cfg.target or "").suffix[1:], cfg.to_language))
    return next((code for code in codes if re.fullmatch("(?!md)[a-z]{2}", code)), "en")  # train.md is Markdown


def plain(language: str, **options: Any) -> Any:
    """Return sacrebleu's BLEU with its tokenizer for a language without spaces, or 13a for others.

    Characters are the tokens if the library of that tokenizer is missing.
    """
    import sacrebleu

    try:
        return sacrebleu.BLEU(tokenize=WITHOUT_SPACES.get(language, "13a"), **options)
    except RuntimeError:
        return sacrebleu.BLEU(tokenize="char", **options)


def score(translations: Sequence[str], references: Sequence[str], language: str) -> files.Json:
    """Return both kinds of BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations.

    For languages without spaces between words, sacrebleu tokenises for both kinds of BLEU, the second in lower case.
    """
    import sacrebleu
    import sacremoses

    tokenized = plain(language, lowercase=True), str, ""
    if language not in WITHOUT_SPACES:
        # force: without it sacrebleu warns that the texts are tokenised already.
        metric = sacrebleu.BLEU(tokenize="none", lowercase=True, force=True)
        tokenized = metric, moses(language), f"|lc.norm.moses-{language}|sacremoses:{sacremoses.__version__}"
    # (metric, function that prepares a text, end of the signature)
    metrics = {"bleu": (plain(language), str, ""), "tokenized_bleu": tokenized, "chrf": (sacrebleu.CHRF(), str, "")}
    scored: files.Json = {"exact": exact(translations, references)}
    for name, (metric, prepare, end) in metrics.items():
        sides = [[prepare(text) for text in side] for side in (translations, references)]
        scored |= {name: corpus_score(metric, *sides), NAMES[name][1]: f"{metric.get_signature()}{end}"}
    return scored


def corpus_score(metric: Any, translations: Sequence[str], references: Sequence[str]) -> float | None:
    """Return a score; None if it is 0 even for the references, such as BLEU for references under four words."""
    value = metric.corpus_score(translations, [references]).score
    return value if value or metric.corpus_score(references, [references]).score else None


def exact(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of translations that equal their references."""
    return float(np.mean([text == reference for text, reference in zip(translations, references, strict=True)]))


def by_length(translations: Sequence[str], references: Sequence[str], language: str) -> list[files.Json]:
    """Return scores by the words of the references: "words" [least, most or None], "sentences", "bleu", "exact"."""
    groups, metric = defaultdict(list), plain(language)
    tokenize = metric.tokenizer if language in WITHOUT_SPACES else str
    for text, reference in zip(translations, references, strict=True):
        groups[max(1, bisect(LENGTHS, len(tokenize(reference).split())))].append((text, reference))
    table = []
    for group, pairs in sorted(groups.items()):
        sides = list(zip(*pairs, strict=True))
        most = LENGTHS[group] - 1 if group < len(LENGTHS) else None
        row = {"words": [LENGTHS[group - 1], most], "sentences": len(pairs)}
        table.append(row | {"bleu": corpus_score(metric, *sides), "exact": exact(*sides)})
    return table


def by_part(result: files.Json) -> list[list[str]]:
    """Return a table of the scores of each part; its first row is the header."""
    rows = [["part", "sentences", *(name for name, _ in NAMES.values()), "exact"]]
    for name, part in {"test": result, **result["parts"]}.items():
        values = [points(part[key]) for key in NAMES]
        rows.append([name, f"{part['sentences']:,}", *values, tables.percent(part["exact"])])
    return rows


def points(score: float | None) -> str:
    """Return a score from 0 to 100 as text; a dash for None."""
    return "-" if score is None else f"{score:.2f}"


def length_name(least: int, most: int | None) -> str:
    """Return the range of words of a group of references as text."""
    return f"{least} and more" if most is None else f"{least} to {most}"


def doubt(path: Path) -> str | None:
    """Return a warning about the translations of a run without an evaluation or with low scores; else None."""
    try:
        result = files.read_json(path / "evaluation.json")
        good = result["exact"] > 0.5 or (result["chrf"] or 0) > 50 or (result["bleu"] or 0) > LOW
    except (UserError, KeyError, TypeError):
        return f"{path} has no evaluation: if its training was stopped, {typed('resume', path)} finishes it"
    if good:
        return None
    keys = [key for key in ("bleu", "chrf") if result[key] is not None]
    reached = " and ".join(f"{points(result[key])} {NAMES[key][0]}" for key in keys)
    fault = f"{path} is hardly trained, and reached {reached} on its test sentences"
    return f"{fault}: give more --steps or more pairs"
