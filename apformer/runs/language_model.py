"""Load a language model from the folder it lies in, a run of a text or a GPT-2 folder, and write with it.

model = language_model.load("gpt2")
model.write(["The sea", "Once upon a time"], 50, temperature=0.7, seed=1)     # two texts
for pieces in model.stream(["The sea"], 50):                                  # pieces as they are drawn
    print(*pieces, end="", flush=True)
"""

import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from apformer import model, tasks
from apformer.decoding import stream
from apformer.decoding.bind import Model, bind
from apformer.decoding.generate import Sampling, sampling_of
from apformer.errors import UserError, tell
from apformer.formats import gpt2, peft
from apformer.machine import devices, process
from apformer.runs import directory, restore
from apformer.settings import architecture_of
from apformer.tasks import settings_file
from apformer.tasks.text import folders
from apformer.tokenizers import pretrained, text


class Options(TypedDict, total=False):
    """Options of `LanguageModel.stream`, which explains them."""

    temperature: float | Sequence[float]
    top_k: int | Sequence[int]
    top_p: float | Sequence[float]
    min_p: float | Sequence[float]
    repetition_penalty: float | Sequence[float]
    seed: int
    stops: Sequence[str]
    special_tokens: bool
    restart: bool


class LanguageModel(NamedTuple):
    """A language model, with its parameters and its tokenizer.

    Attributes:
        model: Functions of the model with its parameters: `model.apply(tokens_BT)` gives logits_BTV.
        max_tokens: Most tokens that it reads; None for no bound.
        tokenizer: Tokenizer of its texts.
        ends: Tokens that end a text: special tokens, and `eos_token_id` of a generation_config.json or config.json.
    """

    model: Model
    max_tokens: int | None
    tokenizer: text.Characters | text.BytePairs
    ends: frozenset

    def write(self, prompts: Sequence[str], tokens: int = 100, **options: Unpack[Options]) -> list[str]:
        """Return the texts that follow the prompts, of at most `tokens` tokens each. Takes the options of `stream`."""
        return ["".join(pieces) for pieces in zip(*self.stream(prompts, tokens, **options), strict=True)]

    def stream(
        self,
        prompts: Sequence[str],
        tokens: int = 100,
        *,
        temperature: float | Sequence[float] = 0.8,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        min_p: float | Sequence[float] = 0.0,
        repetition_penalty: float | Sequence[float] = 1.0,
        seed: int = 0,
        stops: Sequence[str] = (),
        special_tokens: bool = False,
        restart: bool = False,
    ) -> Iterator[list[str]]:
        """Yield, each time tokens are drawn, the next piece of text after each prompt, or "" for none.

        One compiled program serves all options and all texts of up to 512 tokens, prompt included. Programs differ for
        1, up to 4, up to 8, up to 16 ... prompts, and for each power of two of tokens beyond 512 (with up to n = 8, 16
        ... prompts, beyond 2048 / n). The draws of a prompt do not depend on other prompts; equal ones draw otherwise.

        Args:
            prompts: Texts to continue, each of at least one token.
            tokens: Most tokens of a text, which ends sooner before a token of `ends` and before a stop.
            temperature: Divisor of the logits; with 0 the most likely token is taken. This and the next four are
                each a number, or one for each prompt; see `decoding.generate`.
            top_k: Number of the most likely tokens to draw from; 0 for all.
            top_p: Share of probability to draw from.
            min_p: Least probability of a token, as a share of that of the most likely one.
            repetition_penalty: Divisor of the positive logits of the tokens in the row, factor of the negative ones.
            seed: Seed of the draws.
            stops: Strings before which a text ends.
            special_tokens: Read the special tokens that a prompt spells, which is refused otherwise.
            restart: Begin anew, with the last half as the prompt, where the positions of the model end.

        Raises:
            UserError: USAGE that names what is out of range, and for more tokens than there are positions; DATA for a
                prompt that the vocabulary lacks.
        """
        prompts = [prompts] if isinstance(prompts, str) else prompts
        rows = [self._encode("prompt", prompt, special_tokens) for prompt in prompts]
        stops = [stops] if isinstance(stops, str) else stops
        for stop in stops:
            self._encode("stop", stop, True)
        if not rows:
            raise UserError("there is no prompt: give at least one")
        tokens, seed = map(operator.index, (tokens, seed))  # also of numpy
        for name, value, least in (("tokens", tokens, 1), ("seed", seed, 0)):
            if not least <= value < 2**31:
                raise UserError(f"{name} {value} is out of range: give {least} to {2**31 - 1}")
        longest, most = max(map(len, rows)), self.max_tokens
        if most is not None and longest + tokens - 1 > most and not restart:
            raise UserError(
                f"{longest} tokens of a prompt and {tokens} more do not fit the {most} positions of the model"
                ": give fewer, or restart=True to continue from the last half of the text"
            )
        if most is not None and longest > most:
            tell(f"a prompt has {longest} tokens: the model reads the last {most}")
        sampling = sampling_of(len(rows), Sampling(temperature, top_k, top_p, min_p, repetition_penalty))
        writers = [stream.Text(self.tokenizer, self.ends, stops) for _ in rows]
        drawable = self.tokenizer.vocab_size
        chunks = stream.write(self.model, rows, tokens, most, sampling=sampling, seed=seed, drawable=drawable)
        return stream.texts(chunks, writers, tokens)

    def _encode(self, name: str, words: str, special_tokens: bool) -> Any:
        if not words:
            raise UserError(f"{name} is empty: give at least one character")
        try:
            return self.tokenizer.encode(words, allowed_special="all" if special_tokens else ())
        except UserError as error:
            raise UserError(f"{name} {ascii(words[:20])}: {error}", error.exit_code) from None

    def __repr__(self) -> str:
        return f"LanguageModel(vocab_size={self.tokenizer.vocab_size}, max_tokens={self.max_tokens})"


def load(folder: str | None = None, member: int | None = None, adapter: str | None = None) -> LanguageModel:
    """Load the LanguageModel in a folder.

    Compiled programs are cached on the disk, unless APFORMER_COMPILATION_CACHE is none.

    Args:
        folder: Run of a text, or GPT-2 folder; None for the latest run.
        member: Number of a member of a population; None for the best on validation rows.
        adapter: Folder of low-rank adapters, saved alone, to merge into the model.

    Raises:
        UserError: It names what is missing or damaged.
    """
    process.keep_programs()
    if folder is not None and folders.is_gpt2(folder := directory.named(folder)):
        if member is not None:
            raise UserError(f"--member {member} is of a population, and {folder} is a GPT-2 folder: drop it")
        if adapter is not None:
            folders.require_adaptable(folder)
        path, architecture = Path(folder), model
        cfg, params = gpt2.load(folder)
    else:
        path = directory.find(folder)
        settings = settings_file.read(path)
        tasks.ability(settings, "generate", path, "generate` or `apformer evaluate --text")
        architecture, cfg = architecture_of(settings), settings.model
        params, _, _ = restore.load_params(path, settings, member)
    if adapter is not None:
        params = peft.load(adapter, architecture, params, cfg)
    tokenizer = text.for_model(pretrained.load(path), cfg.vocab_size, str(path))
    ends = tokenizer.special_tokens.union(folders.ends(path))
    return LanguageModel(bind(architecture, params, cfg, devices.mesh()), architecture.max_tokens(cfg), tokenizer, ends)
