"""Keep the circuit, weights written by hand, as a run: `python experiments/circuit.py --digits 3`, then

    apformer certify runs/circuit-3
    apformer predict runs/circuit-3 "007 010 013" --terms 3

figures/attention.png there shows what its four heads read, and report.html is its page. Its loss means nothing: what
it says of the first two terms, which nobody can predict, is arbitrary.
"""

import sys
from dataclasses import dataclass

import jax

from apformer import flags, model
from apformer.analysis import circuit
from apformer.commands import report as page
from apformer.commands import train
from apformer.report import attention, figures
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, generator, recipes
from apformer.tokenizers import digits as tokenizer


@dataclass(frozen=True)
class Circuit:
    """Keep the circuit as a run."""

    digits: int = 3
    """Digits of a term."""
    min_difference: int = 1
    """Smallest difference that is certified; may be 0 or negative."""
    max_difference: int | None = None
    """Largest difference that is certified; if not given, 500, or the largest that this many digits have."""
    run_dir: str | None = None
    """A new directory for the run; runs/circuit-<digits> if not given."""


def run(args):
    """Write the run, and say where it is."""
    largest = recipes.exact(args.digits).data.max_difference if args.max_difference is None else args.max_difference
    data = generator.Config(args.digits, min_difference=args.min_difference, max_difference=largest)
    generator.check(data)
    run_dir = args.run_dir or f"runs/circuit-{args.digits}"
    training = Training(steps=1, run_dir=run_dir)
    settings = Settings("progressions", "model", training, circuit.config(args.digits), data, Options())
    path = train.keep(settings, circuit.params(args.digits))
    figures.save(path / "figures", {"attention": picture(args.digits)})
    print(page.write(path, settings, None))
    print(path)


def picture(digits):
    """What each head reads in a short progression, as a matplotlib Figure: a row is a token, a column one it reads."""
    text = generator.render(7, 3, 4, digits)
    apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
    tokens_BT = tokenizer.encode(text)[None]
    _, captured = apply(circuit.params(digits), tokens_BT, circuit.config(digits), capture=("attention",))
    heads = [(layer, head) for layer, heads in enumerate(circuit.HEADS) for head in range(len(heads))]
    figure, panels = attention.canvas(len(heads), width=0.6 + 0.16 * len(text), height=0.16 * len(text))
    names = text.replace(" ", "\u2423")
    for axes, (layer, head) in zip(panels[0], heads, strict=True):
        name = circuit.HEADS[layer][head].split(":")[0].lower()
        axes.imshow(captured["attention"][layer, 0, head], cmap="Blues", vmin=0, vmax=1)
        axes.set_title(f"layer {layer + 1}: {name}", loc="left", fontsize=10)
        axes.set_xticks(range(len(text)), names, fontsize=8)
        axes.set_yticks(range(len(text)), names, fontsize=8)
        axes.tick_params(length=0)
    return figure


def main():
    """Run; the exit code of the process."""
    return flags.script("circuit.py", Circuit, run)


if __name__ == "__main__":
    sys.exit(main())
