"""Options of fine-tuning a language model."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Options:
    """Options of fine-tuning a language model."""

    init_from: str | None = None
    """GPT-2 folder or run to train further, with its tokenizer. README.md says how to get GPT-2."""
    lora_rank: int = 0
    """Rank of the low-rank adapters, which are trained instead of the weights. With 0, all weights are trained."""
    lora_alpha: float = 16.0
    """Scale of the adapters: the product of their two factors is multiplied by lora_alpha / lora_rank."""
    lora_on: Literal["all", "attention"] = "all"
    """Matrices with adapters: all of the blocks, or queries, keys and values alone, as `peft` does for GPT-2."""
