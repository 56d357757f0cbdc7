"""Where a language model begins, and what of it is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Where a language model begins, and what of it is trained."""

    init_from: str | None = None
    """Train this GPT-2 folder or run further, by its tokenizer. For GPT-2: `hf download gpt2 --local-dir gpt2`."""
    lora_rank: int = 0
    """Train low-rank adapters of this rank, and keep the weights that the model began with. With 0 all are trained."""
    lora_alpha: float = 16.0
    """Scale of the adapters: the product of the two factors is multiplied by lora_alpha / lora_rank."""
    accumulate: int = 1
    """Batches per step, one after the other. Their gradients are averaged."""
    remat: bool = False
    """Compute the inside of the blocks a second time for the gradient: less memory, more time (transformers)."""
