"""Write text with a language model, a run or a GPT-2 folder: apformer generate RUN --prompt "ROMEO:".

RUN is a run of a text, or a GPT-2 folder: config.json, model.safetensors and a tokenizer.
Tokens are printed as they are drawn. Learned positions end at max_len: then writing starts again, with the last
max_len / 2 tokens as the new prompt.
"""

from dataclasses import dataclass
from operator import add
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from apformer.commands import Run
from apformer.errors import UserError
from apformer.files import FilePath
from apformer.flags import require_whole
from apformer.runs import language_model
from apformer.tokenizers.text import Tokenizer


@dataclass(frozen=True)
class Generate:
    """Write text with a language model.

    `hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2` fetches the published GPT-2, and
    `apformer generate gpt2` writes with it.

    All of --repetition_penalty, --temperature, --top_k, --top_p and --min_p that are given apply, in this order. Each
    sees only the tokens that those before it have left.
    """

    run: Run = None
    """Run directory or GPT-2 folder. The default is the latest run."""
    prompt: Annotated[str | None, arg(help_behavior_hint="(default: a line end)")] = None
    """Text to continue. Where the vocabulary has no line end, the default is its first token."""
    special_tokens: bool = False
    """Read special tokens in the prompt, such as <|endoftext|>. Without this flag, a prompt with some is refused."""
    tokens: int = 500
    """Most tokens to write. A text ends sooner before an end token: a special token, or a GPT-2's eos_token_id."""
    stop: UseAppendAction[tuple[str, ...]] = ()
    """Text before which the output ends: neither it nor what follows is printed. The prompt may contain it. In bash,
    --stop $'\\n\\n' ends before an empty line."""
    temperature: float = 0.8
    """Divisor of the logits. Below 1, likely tokens become likelier. With 0, the most likely token is always taken."""
    top_k: int = 0
    """Number of most likely tokens to draw from. With 0, all tokens."""
    top_p: float = 1.0
    """Share of probability to draw from: the fewest most likely tokens that add up to it. With 1, all tokens."""
    min_p: float = 0.0
    """Least probability of a token, as a share of that of the most likely one. With 0, all tokens."""
    repetition_penalty: float = 1.0
    """Divisor of the positive logits and factor of the negative ones of all tokens in the context, the prompt included.
    Above 1, they become less likely. With 1, nothing changes; 1.1 to 1.3 is usual."""
    seed: int = 0
    """Random seed of the draws."""
    samples: int = 1
    """Number of texts. They are drawn side by side and printed one after the other."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    adapter: FilePath | None = None
    """Folder of low-rank adapters, saved alone, to merge into the model."""


def generate(args: Generate) -> None:
    """Print text written by the model of a GPT-2 folder or by the best checkpoint of a run.

    Raises UserError that names the flag or the file.
    """
    require_whole("samples", args)
    model = language_model.load(args.run, args.member, args.adapter)
    prompt = first_of(model.tokenizer) if args.prompt is None else args.prompt
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "special_tokens")
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    try:
        pieces = model.stream([prompt] * args.samples, args.tokens, **options, stops=args.stop, restart=True)
    except UserError as error:  # begins with the name of an argument
        raise UserError(f"--{error}", error.exit_code) from None
    heads = [f"--- {number} of {args.samples}\n{prompt}" for number in range(1, args.samples + 1)]
    print(heads[0] if args.samples > 1 else prompt, end="", flush=True)
    for first, *others in pieces:
        print(first, end="", flush=True)
        heads[1:] = map(add, heads[1:], others)
    print("", *heads[1:], sep="\n")


def first_of(tokenizer: Tokenizer) -> str:
    """Return a line end, or the first token if the vocabulary has no line end."""
    try:
        tokenizer.encode("\n")
        return "\n"
    except UserError:
        return tokenizer.decode([0])
