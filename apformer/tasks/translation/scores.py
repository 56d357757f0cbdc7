"""Score translations by sacrebleu: BLEU as it is to be reported, and as the literature of Multi30k reports it.

    bleu        of the texts as they are, cased, cut into words by sacrebleu (13a; Post 2018)
    tokenized   of the texts in lower case, normalised and cut into words as Moses does (sacremoses), so that sacrebleu
                cuts nothing: what `multi-bleu.perl` says of files that were prepared like this
    chrf        of the texts as they are (Popović 2015)

The two kinds of BLEU (Papineni et al. 2002) of the same translations differ by points and must not be compared.
"""

from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import Any

import numpy as np

from apformer.errors import USAGE, UserError
from apformer.tasks.translation.corpus import Config

LENGTHS = (1, 6, 11, 16, 21, 31)  # words of a reference at which the rows of the table begin
NO_MOSES = 'no tokenised BLEU, which needs the text extra: pip install -e ".[text]"'


def library() -> ModuleType:
    """Import sacrebleu. Raises UserError (exit USAGE) if the text extra is missing."""
    try:
        import sacrebleu
    except ImportError:
        raise UserError('scores need the text extra: pip install -e ".[text]"', USAGE) from None
    return sacrebleu


def moses(language: str) -> tuple[Callable[[str], str], str] | None:
    """Return a function from a text to its words, joined by spaces, and its name; None without sacremoses.

    The text is put in lower case, its punctuation normalised and then cut off, as in Multi30k's `lc.norm.tok` files.
    """
    try:
        import sacremoses
    except ImportError:
        return None
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)

    def words(text: str) -> str:
        return tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)

    return words, f"lc.norm.moses-{language}|sacremoses:{sacremoses.__version__}"


def language_of(cfg: Config) -> str:
    """Return the language of the translations: --to_language of number words, the suffix of --target, as in train.de.

    English, whose rules sacremoses takes for languages that it does not know, where neither is a code of two letters.
    """
    code = cfg.to_language if cfg.source is None else PurePath(cfg.target).suffix[1:]
    return code if len(code) == 2 and code.isalpha() else "en"


def score(
    found: list[str],
    references: list[str],
    sacrebleu: ModuleType,
    cut: tuple[Callable[[str], str], str] | None = None,
) -> dict[str, Any]:
    """Return BLEU and chrF, 0 to 100, with their signatures, and the share of exact translations.

    BLEU is None where no reference has four words, as of German number words. The BLEU of the literature needs `cut`,
    which `moses` returns.
    """
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    scores = {
        "bleu": _bleu(bleu, found, references),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(found, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "exact": float(np.mean([text == reference for text, reference in zip(found, references, strict=True)])),
        "tokenized_bleu": None,
        "tokenized_signature": NO_MOSES,
    }
    if cut is None:
        return scores
    words, name = cut
    # force: sacrebleu else warns of texts that were cut before, which is what is wanted.
    tokenized = sacrebleu.BLEU(tokenize="none", lowercase=True, force=True)
    sides = [[words(text) for text in side] for side in (found, references)]
    value = _bleu(tokenized, *sides)
    return scores | {"tokenized_bleu": value, "tokenized_signature": f"{tokenized.get_signature()}|{name}"}


def _bleu(metric: Any, found: list[str], references: list[str]) -> float | None:
    """Return a corpus score; None where not even the references themselves have one."""
    perfect = metric.corpus_score(references, [references]).score
    return metric.corpus_score(found, [references]).score if perfect else None


def by_length(found: list[str], references: list[str], sacrebleu: ModuleType) -> list[dict[str, Any]]:
    """Return scores by the words of the references: "words" [least, most or None], "sentences", "bleu", "exact"."""
    group_N = np.digitize([len(reference.split()) for reference in references], LENGTHS[1:])
    table = []
    for group, (least, after) in enumerate(zip(LENGTHS, (*LENGTHS[1:], None), strict=True)):
        rows = np.flatnonzero(group_N == group)
        if len(rows):
            scores = score([found[n] for n in rows], [references[n] for n in rows], sacrebleu)
            words = [least, None if after is None else after - 1]
            table.append({"words": words, "sentences": len(rows), "bleu": scores["bleu"], "exact": scores["exact"]})
    return table
