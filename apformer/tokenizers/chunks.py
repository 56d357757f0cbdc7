r"""Cut a text into special tokens and chunks, before byte pairs are merged.

A pattern cuts a text into words with the space before them, numbers and marks. No merge crosses from one chunk to the
next. With GPT-2's pattern a number is one chunk, and only contractions in lower case are cut off. With GPT-4's (that of
cl100k_base in `tiktoken`) numbers are cut into groups of three digits, contractions may be in any case, and a mark
includes the line ends after it.

A special token, such as <|endoftext|>, is not part of a text but a sign for the model.
"""

from collections.abc import Collection, Iterable
from functools import cache
from types import ModuleType
from typing import Any

from apformer.errors import DATA, UserError

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_PATTERN = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",  # the end of a contraction
        r"[^\r\n\p{L}\p{N}]?\p{L}+",  # a word, and the space or mark before it
        r"\p{N}{1,3}",  # a number, three digits at a time
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",  # marks, the space before them, the line ends after them
        r"\s*[\r\n]+",  # white space up to the last line end
        r"\s+(?!\S)",  # spaces, all but the one that belongs to the word after them
        r"\s+",
    ]
)
# The byte of each token below 256 in the vocabularies of GPT-2 and GPT-4: printing characters come first.
BYTES = tuple(sorted(range(256), key=lambda byte: chr(byte) == " " or not chr(byte).isprintable()))


def library() -> ModuleType:
    """Import the `tokenizers` package. Raises UserError (exit USAGE) if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise UserError('byte pairs need the text extra: pip install "apformer[text]"') from None
    return tokenizers


def split(text: str, pattern: str = GPT4_PATTERN) -> list[str]:
    """Return the chunks of a text, which make up the text. With the pattern "" the text is one chunk.

    Raises UserError (exit DATA) that names a lone surrogate.
    """
    refuse_surrogates(text)
    if not pattern:
        return [text] if text else []
    return [chunk for chunk, _ in _by_pattern(library(), pattern).pre_tokenize_str(text)]


@cache
def _by_pattern(tokenizers: ModuleType, pattern: str) -> Any:  # Python's own `re` has no \p{L}.
    try:
        return tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    except Exception as error:  # which is all that the library raises
        raise UserError(f"{pattern} is no regular expression ({error}): give another pattern", DATA) from None


def refuse_special(text: str, names: Iterable[str], allowed: str | Collection[str]) -> None:
    """Raise UserError (exit DATA) if a text spells one of the special tokens `names` that is not allowed.

    allowed: "all", or names of special tokens, as in `tiktoken`. Without this check, the author of a part of a text
    could end the text.
    """
    refused = [name for name in names if allowed != "all" and name not in allowed and name in text]
    if refused:
        name = min(refused, key=text.index)
        fault = f"character {text.index(name) + 1} begins the special token {name}"
        remedy = 'give --special_tokens, in Python special_tokens=True or allowed_special="all", to read it as one'
        raise UserError(f"{fault}: {remedy}, or remove it from the text", DATA)


def refuse_surrogates(text: str) -> None:
    """Raise UserError (exit DATA) that names the first lone surrogate in a text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        fault = f"character {error.start + 1} is {ascii(text[error.start])}, half of a character"
        raise UserError(f"{fault}; give a text in UTF-8", DATA) from None
