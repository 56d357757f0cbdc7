"""Small, functional transformers in JAX, which learn arithmetic progressions or texts. README.md here is a map."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apformer import model, recurrent, seq2seq, word2vec
    from apformer.runs import load, load_language_model, read_metrics

__version__ = "0.3.0"
__all__ = ["__version__", "load", "load_language_model", "model", "read_metrics", "recurrent", "seq2seq", "word2vec"]
__dir__ = __all__.copy  # for completion


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` when it is first used: `import apformer` waits for nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'apformer' has no attribute {name!r}")
    of_runs = name.startswith(("load", "read"))
    return getattr(import_module("apformer.runs"), name) if of_runs else import_module(f"apformer.{name}")
