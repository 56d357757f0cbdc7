"""Compare our tokens with those of GPT-2 and GPT-4: `python experiments/byte_pairs.py --run_dir runs/byte_pairs`.

A third of the random strings has few different letters, a third mixes characters that the patterns treat differently,
and a third has characters of every category of Unicode. We compare

- the chunks that our two patterns cut with those that the `regex` package cuts by the patterns of `tiktoken`;
- the chunks of the GPT-2 splitter of the `tokenizers` library, which GPT-2 folders use, with those of `regex`;
- the tokens of a .tiktoken file, and of our readable byte pairs, with those of tiktoken's rule, written here in a few
  lines;
- the texts that these two decode with the original string.

The vocabulary is learned from other random strings. Each comparison prints how many strings differ, and the first of
them.
"""

import base64
import random
import sys
import tempfile
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

import regex

from apformer import files, flags
from apformer.files import FilePath
from apformer.report import progress
from apformer.tokenizers import byte_pairs, pretrained
from apformer.tokenizers.chunks import BYTES, GPT2_PATTERN, GPT4_PATTERN, split
from apformer.tokenizers.text import pre_tokenizer

# The patterns that `tiktoken` has published; the last one is from its newer versions.
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
GPT4_NEWER = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
FEW = "aaabbc  1\n'st"
KINDS = ["a", "S", "é", "日", "ſ", "'", "'ll", "'RE", "’", "1", "2345", "²", "Ⅷ", "!", "_", "...", "🙂", "\u0301"]
KINDS += [
    "\u200b",
    "\0",
    " ",
    "  ",
    "\t",
    "\u00a0",
    "\u3000",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\x85",
    "\u2028",
    "\x1c",
    "\ufeff",
    "\u0130",
    "K",
]
MERGES, TRAINING_STRINGS, MOST_EXAMPLES = 300, 500, 5


@dataclass(frozen=True)
class Compare:
    """Compare our tokens with those of GPT-2 and GPT-4 on random strings, and count the differences."""

    strings: int = 1_000_000
    """Number of random strings."""
    seed: int = 0
    """Random seed."""
    run_dir: FilePath | None = None
    """Folder for evaluation.json. By default nothing is written."""


@cache
def categories():
    """Return the characters of each Unicode category, without surrogates and unassigned code points."""
    found = {}
    for code in range(0x110000):
        found.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    return [letters for name, letters in sorted(found.items()) if name not in ("Cs", "Cn")]


def strings(seed):
    """Yield random strings without end."""
    rng, by_category = random.Random(seed), categories()
    while True:
        yield "".join(rng.choices(FEW, k=rng.randint(1, 40)))
        yield "".join(rng.choices(KINDS, k=rng.randint(1, 24)))
        yield "".join(rng.choice(rng.choice(by_category)) for _ in range(rng.randint(1, 20)))


def by_rank(ranks):
    """Return a function from a chunk to its token ids by tiktoken's rule: merge the pair of lowest rank first."""

    @lru_cache(1 << 16)
    def ids(chunk):
        parts = [bytes([byte]) for byte in chunk.encode("utf-8")]
        while candidates := [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]:
            i = min(candidates)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return tuple(ranks[part] for part in parts)

    return ids


class Way:
    """One of the two patterns, with every implementation of its chunks and tokens."""

    def __init__(self, name, pattern, published, texts):
        self.pattern, self.chunks = pattern, regex.compile(published).findall
        self.readable = byte_pairs.train("\n".join(texts), 256 + MERGES, pattern)
        tokens = [bytes([byte]) for byte in BYTES]
        tokens += [self.readable.vocab[256 + i] for i in range(len(self.readable.merges))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.tiktoken"
            path.write_text("".join(f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(tokens)))
            self.library = pretrained.load(path)
        self.by_rank = by_rank({token: i for i, token in enumerate(tokens)})

    def differences(self, text):
        """Yield the names of the comparisons in which a text differs."""
        chunks = self.chunks(text)
        ids = [token for chunk in chunks for token in self.by_rank(chunk)]
        library_ids, readable_ids = self.library.encode(text), self.readable.encode(text)
        if split(text, self.pattern) != chunks:
            yield "chunks"
        if library_ids.tolist() != ids:
            yield "tiktoken file"
        if [BYTES.index(token) if token < 256 else token for token in readable_ids] != ids:
            yield "readable"
        if not self.library.decode(library_ids) == self.readable.decode(readable_ids) == text:
            yield "text that comes back"


def compare(args):
    """Return {name of a comparison: (differences, the first strings that differ)}."""
    training_texts = [text for text, _ in zip(strings(args.seed + 1), range(TRAINING_STRINGS), strict=False)]
    ways = {
        "gpt2": Way("r50k", GPT2_PATTERN, GPT2, training_texts),
        "gpt4": Way("cl100k", GPT4_PATTERN, GPT4, training_texts),
    }
    own, newer = pre_tokenizer(GPT2_PATTERN), regex.compile(GPT4_NEWER).findall
    counts, examples = Counter(), {}
    with progress.bar(total=args.strings, desc="strings") as bar:
        for text, _ in zip(strings(args.seed), range(args.strings), strict=False):
            found = [f"{name} {what}" for name, way in ways.items() for what in way.differences(text)]
            cut = [text[begin:end] for _, (begin, end) in own.pre_tokenize_str(text)]
            found += ["gpt2 library"] * (cut != ways["gpt2"].chunks(text))
            if newer(text) != ways["gpt4"].chunks(text):
                found.append("gpt4 newer")
                found += ["gpt4 newer, no blank at the end"] * (not text[-1].isspace())
            for what in found:
                counts[what] += 1
                examples.setdefault(what, [])
                examples[what] += [text] * (len(examples[what]) < MOST_EXAMPLES)
            bar.update()
    comparisons = ("chunks", "tiktoken file", "readable", "text that comes back")
    names = [f"{name} {what}" for name in ways for what in comparisons]
    return {what: (counts[what], examples.get(what, [])) for what in [*names, "gpt2 library", *sorted(examples)]}


def run(args):
    """Compare the tokens, print the counts, and write them."""
    found = compare(args)
    for what, (count, texts) in found.items():
        print(f"{what:28}{count:>10,} of {args.strings:,} differ  {' '.join(map(ascii, texts))}")
    expected = {what: count for what, (count, _) in found.items() if not what.startswith("gpt4 newer")}
    figures = {"strings": args.strings, "comparisons": len(expected), "differences": sum(expected.values())}
    figures["newer"] = found.get("gpt4 newer", (0,))[0]
    if args.run_dir is not None:
        Path(args.run_dir).mkdir(parents=True, exist_ok=True)
        files.write_json(Path(args.run_dir) / "evaluation.json", figures)


def main():
    return flags.script("byte_pairs.py", Compare, run)


if __name__ == "__main__":
    sys.exit(main())
