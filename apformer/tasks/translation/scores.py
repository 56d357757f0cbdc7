"""Score translations by sacrebleu: BLEU as it is to be reported, and as the literature of Multi30k reports it.

    bleu        of the texts as they are, cased, cut into words by sacrebleu (13a, or the language's; Post 2018)
    tokenized   of the texts in lower case, normalised and cut into words as Moses does (sacremoses), so that sacrebleu
                cuts nothing: what `multi-bleu.perl` says of files that were prepared like this
    chrf        of the texts as they are (Popović 2015)

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
from apformer.errors import UserError
from apformer.report import tables
from apformer.tasks.translation.corpus import Config

WITHOUT_SPACES = {"zh": "zh", "ja": "ja-mecab", **dict.fromkeys(("bo", "dz", "km", "lo", "my", "th"), "char")}
LENGTHS = (1, 6, 11, 16, 21, 31)  # words of a reference at which the rows of the table begin
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
    """Return a function from a text to its words, joined by spaces.

    The text is put in lower case, its punctuation normalised and then cut off, as in Multi30k's `lc.norm.tok` files.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)


def language_of(cfg: Config) -> str:
    """Return the language of the translations: the suffix of --target, as in train.de, or else --to_language.

    English, whose rules sacremoses takes for languages that it does not know, where neither begins with a code of two
    letters.
    """
    told = (re.split("[-_]", code)[0].lower() for code in (PurePath(cfg.target or "").suffix[1:], cfg.to_language))
    return next((code for code in told if len(code) == 2 and code.isalpha()), "en")


def plain(language: str, **options: Any) -> Any:
    """Return sacrebleu's BLEU, which cuts words by the tokenizer of the language, or by 13a between spaces.

    Characters are words where sacrebleu has none for the language, or the library of that one is missing.
    """
    import sacrebleu

    try:
        return sacrebleu.BLEU(tokenize=WITHOUT_SPACES.get(language, "13a"), **options)
    except RuntimeError:
        return sacrebleu.BLEU(tokenize="char", **options)


def metrics(language: str) -> dict[str, tuple[Any, Callable[[str], Any], str]]:
    """Return, for each key of NAMES, a metric of sacrebleu, what prepares a text for it, and its signature's end.

    Where no spaces stand between words, both kinds of BLEU cut them by sacrebleu, the second in lower case.
    """
    import sacrebleu
    import sacremoses

    tokenized = plain(language, lowercase=True), str, ""
    if language not in WITHOUT_SPACES:
        # force: sacrebleu else warns of texts that were cut before, which is what is wanted.
        metric = sacrebleu.BLEU(tokenize="none", lowercase=True, force=True)
        tokenized = metric, moses(language), f"|lc.norm.moses-{language}|sacremoses:{sacremoses.__version__}"
    return {"bleu": (plain(language), str, ""), "tokenized_bleu": tokenized, "chrf": (sacrebleu.CHRF(), str, "")}


def score(found: Sequence[str], references: Sequence[str], language: str) -> dict[str, Any]:
    """Return both kinds of BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations."""
    scored: dict[str, Any] = {"exact": exact(found, references)}
    for name, (metric, prepare, end) in metrics(language).items():
        sides = [[prepare(text) for text in side] for side in (found, references)]
        scored |= {name: reached(metric, *sides), NAMES[name][1]: f"{metric.get_signature()}{end}"}
    return scored


def reached(metric: Any, found: Sequence[str], references: Sequence[str]) -> float | None:
    """Return a score; None where the references have none, as BLEU has of German number words, under four words."""
    best, value = (metric.corpus_score(side, [references]).score for side in (references, found))
    return value if best else None


def exact(found: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of texts that are their references."""
    return float(np.mean([text == reference for text, reference in zip(found, references, strict=True)]))


def by_length(found: Sequence[str], references: Sequence[str], language: str) -> list[dict[str, Any]]:
    """Return scores by the words of the references: "words" [least, most or None], "sentences", "bleu", "exact"."""
    groups, metric = defaultdict(list), plain(language)
    cut = metric.tokenizer if language in WITHOUT_SPACES else str
    for text, reference in zip(found, references, strict=True):
        groups[max(1, bisect(LENGTHS, len(cut(reference).split())))].append((text, reference))
    table = []
    for group, pairs in sorted(groups.items()):
        sides = list(zip(*pairs, strict=True))
        most = LENGTHS[group] - 1 if group < len(LENGTHS) else None
        same = {"words": [LENGTHS[group - 1], most], "sentences": len(pairs)}
        table.append(same | {"bleu": reached(metric, *sides), "exact": exact(*sides)})
    return table


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


def doubt(path: Path) -> str | None:
    """Return why translations of a run are worth little: no evaluation, or low scores; None if they may be good."""
    try:
        found = files.read_json(path / "evaluation.json")
        good = found["exact"] > 0.5 or (found["chrf"] or 0) > 50 or (found["bleu"] or 0) > LOW
    except (UserError, KeyError, TypeError):
        return f"{path} has no evaluation: if its training was stopped, `apformer resume {path}` ends it"
    kinds = [key for key in ("bleu", "chrf") if found[key] is not None]
    said = " and ".join(f"{points(found[key])} {NAMES[key][0]}" for key in kinds)
    fault = f"{path} is hardly trained, and reached {said} on its test sentences"
    return None if good else f"{fault}: give more --steps or more pairs"
