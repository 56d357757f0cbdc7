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
from apformer.errors import USAGE, UserError
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
        raise UserError('scores need the text extra: pip install "apformer[text]"', USAGE) from None


def moses(language: str) -> Callable[[str], Any]:
    """Return a function from a text to its words, joined by spaces.

    The text is put in lower case, its punctuation normalised and then cut off, as in Multi30k's `lc.norm.tok` files.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)


def language_of(cfg: Config) -> str:
    """Return the language of the translations: --to_language of number words, the suffix of --target, as in train.de.

    English, whose rules sacremoses takes for languages that it does not know, where neither begins with a code of two
    letters.
    """
    code = cfg.to_language if cfg.source is None else PurePath(cfg.target or "").suffix[1:]
    code = re.split("[-_]", code)[0].lower()
    return code if len(code) == 2 and code.isalpha() else "en"


def tokenizer_of(language: str) -> str:
    """Return the name of sacrebleu's tokenizer for a language: 13a where spaces stand between words.

    Characters are words where sacrebleu has none for the language, or the library of that one is missing.
    """
    import sacrebleu

    name = WITHOUT_SPACES.get(language, "13a")
    try:
        sacrebleu.BLEU(tokenize=name)
    except RuntimeError:
        return "char"
    return name


def score(found: Sequence[str], references: Sequence[str], language: str) -> dict[str, Any]:
    """Return both kinds of BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations.

    Where no spaces stand between words, both kinds of BLEU cut them by sacrebleu, the second in lower case.
    """
    import sacrebleu
    import sacremoses

    chrf, cut = sacrebleu.CHRF(), tokenizer_of(language)
    plain, signature = bleu(found, references, tokenize=cut)
    if cut == "13a":
        words = moses(language)
        sides = [[words(text) for text in side] for side in (found, references)]
        # force: sacrebleu else warns of texts that were cut before, which is what is wanted.
        tokenized, tokenized_signature = bleu(*sides, tokenize="none", lowercase=True, force=True)
        tokenized_signature += f"|lc.norm.moses-{language}|sacremoses:{sacremoses.__version__}"
    else:
        tokenized, tokenized_signature = bleu(found, references, tokenize=cut, lowercase=True)
    return {
        "bleu": plain,
        "bleu_signature": signature,
        "chrf": chrf.corpus_score(found, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "exact": exact(found, references),
        "tokenized_bleu": tokenized,
        "tokenized_signature": tokenized_signature,
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


def by_length(found: Sequence[str], references: Sequence[str], language: str) -> list[dict[str, Any]]:
    """Return scores by the words of the references: "words" [least, most or None], "sentences", "bleu", "exact"."""
    groups, cut, group_of = defaultdict(list), tokenizer_of(language), lengths(language)
    for text, reference in zip(found, references, strict=True):
        groups[group_of(reference)].append((text, reference))
    table = []
    for words, pairs in sorted(groups.items()):
        sides = list(zip(*pairs, strict=True))
        same = {"words": [*words], "sentences": len(pairs)}
        table.append(same | {"bleu": bleu(*sides, tokenize=cut)[0], "exact": exact(*sides)})
    return table


def lengths(language: str) -> Callable[[str], tuple[int, int | None]]:
    """Return a function from a text to the least and the most words of the texts that are as long, about."""
    cut = str
    if language in WITHOUT_SPACES:
        import sacrebleu

        cut = sacrebleu.BLEU(tokenize=tokenizer_of(language)).tokenizer

    def length(text: str) -> tuple[int, int | None]:
        group = max(1, bisect(LENGTHS, len(cut(text).split())))
        return LENGTHS[group - 1], LENGTHS[group] - 1 if group < len(LENGTHS) else None

    return length


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
        exact, bleu, chrf = found["exact"], found["bleu"], found["chrf"]
    except (UserError, KeyError, TypeError):
        return f"{path} has no evaluation: if its training was stopped, `apformer resume {path}` ends it"
    if exact > 0.5 or chrf > 50 or (bleu or 0) > LOW:
        return None
    reached = f"{points(chrf)} chrF" if bleu is None else f"{points(bleu)} BLEU"
    return f"{path} is hardly trained: it reached {reached} on its test sentences; give more --steps or more pairs"
