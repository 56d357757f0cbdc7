"""What do the heads of a GPT-2 read? `python experiments/studies/gpt2_attention.py FOLDER "some text"` draws them all.

FOLDER holds config.json, model.safetensors and tokenizer.json, as `hf download gpt2` leaves them, or as `apformer
export` writes them. The table has, for each head, the share of its attention on the first token, on the token before
and on the token itself, and the number of tokens that it reads, exp(entropy); means over the tokens after the first.

    figures/gpt2_attention.png   all heads, or the mean of each layer if there are more than 64
    figures/layer_N.png          the heads of each layer
"""

import sys
from dataclasses import dataclass

import _study
import jax
import numpy as np
from tyro.conf import Positional

from apformer import flags, model
from apformer.files import FilePath
from apformer.formats import gpt2
from apformer.report import attention, figures
from apformer.tokenizers import pretrained

ENDS = {"least": np.min, "mean": np.mean, "greatest": np.max}
TEXT = "When Mary and John went to the store, John gave a bottle of milk to Mary."


@dataclass(frozen=True)
class Gpt2Attention:
    """Draw and measure the attention of every head of a GPT-2 folder."""

    folder: Positional[FilePath]
    """GPT-2 folder, with its tokenizer."""
    text: Positional[str] = TEXT
    """Text to read; the picture has its first 32 tokens."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-gpt2_attention."""


def read(folder, text):
    """Return (weights_LHTT of a text, the text of each token)."""
    (cfg, params), tokenizer = gpt2.load(folder), pretrained.load(folder)
    tokens_T = tokenizer.encode(text)
    flags.require("text", 2 <= len(tokens_T) <= cfg.max_len, Gpt2Attention(folder, text), f"2 to {cfg.max_len} tokens")
    apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params, tokens_T[None], cfg, capture=("attention",))
    return np.asarray(captured["attention"], np.float64)[:, 0], [tokenizer.decode([token]) for token in tokens_T]


def shares(weights_LHTT):
    """Return {quantity: (L, H)}: shares of weight, and number of tokens read; means over the tokens after the first."""
    plogp_LHTT = weights_LHTT * np.log(np.maximum(weights_LHTT, 1e-30))
    return {
        "first": weights_LHTT[:, :, 1:, 0].mean(-1),
        "before": np.diagonal(weights_LHTT, -1, 2, 3).mean(-1),
        "itself": np.diagonal(weights_LHTT, 0, 2, 3)[..., 1:].mean(-1),
        "tokens": np.exp(-plogp_LHTT[:, :, 1:].sum(-1)).mean(-1),
    }


def table(found):
    """Return a row for each head."""
    rows = [["layer", "head", "first token, %", "token before, %", "itself, %", "tokens read"]]
    for (layer, head), tokens in np.ndenumerate(found["tokens"]):
        cells = (f"{100 * found[name][layer, head]:.1f}" for name in ("first", "before", "itself"))
        rows.append([str(layer + 1), str(head + 1), *cells, f"{tokens:.1f}"])
    return rows


def run(args):
    """Read the text, print the table and draw the figure."""
    weights_LHTT, texts = read(args.folder, args.text)
    found = shares(weights_LHTT)
    numbers = {
        f"{name}_{end}": float(statistic(values)) for name, values in found.items() for end, statistic in ENDS.items()
    }
    study = _study.Study("gpt2_attention", args)
    study.finish(numbers, table(found), attention.draw(weights_LHTT, texts, texts))
    for layer in range(1, len(weights_LHTT) + 1):
        figure = attention.draw(weights_LHTT[layer - 1 : layer], texts, texts)
        for axes in figure.axes:
            axes.set_title(axes.get_title("left").replace("layer 1", f"layer {layer}", 1), loc="left", fontsize=9)
        figures.save(study.path / "figures", {f"layer_{layer}": figure})


if __name__ == "__main__":
    sys.exit(flags.script("gpt2_attention.py", Gpt2Attention, run))
