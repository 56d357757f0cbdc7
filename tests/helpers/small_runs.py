"""Small runs of every kind, untrained, as training and evaluation leave them, each with its page."""

import json
from dataclasses import replace
from functools import partial

from apformer import files, model, recurrent, seq2seq
from apformer.analysis import circuit
from apformer.commands import evaluate, report, train
from apformer.runs import fit, recipes
from apformer.tasks import choose
from apformer.tasks.digits import generator as wide
from apformer.tasks.progressions import generator
from apformer.tasks.text import corpus as text
from apformer.tasks.translation import corpus

MODEL = model.Config(d_model=8, n_heads=2, n_layers=2, d_ff=8, position="relative", window=6, attention_sink=True)
DATA = generator.Config(max_terms=6, max_difference=120)
WIDE = replace(recipes.digits(3, "msb").model, d_model=16)
PAIRS = corpus.Config(from_language="figures", to_language="en", largest=400, numbers=200, byte_pairs=300)
TRANSLATOR = seq2seq.Config(
    d_model=8, n_heads=2, n_encoder_layers=2, n_decoder_layers=1, d_ff=8, norm_position="pre", final_norm=True
)
OPTIONS = {text.Config: recipes.TextOptions(), corpus.Config: recipes.Teaching(beams=1)}
TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))


def keep(path, architecture, data, params=None, members=1, evaluated=True):
    """The directory of a run of these, its best checkpoint untrained or of the parameters given."""
    training = recipes.Training(steps=2, members=members, run_dir=str(path))
    options = OPTIONS.get(type(data), recipes.Options(test_sequences=30))
    settings, rows = choose.read(recipes.Settings(training, architecture, data, options=options))
    params = fit.initial_state(settings).params if params is None else params
    train.keep(settings, params, rows, range(members))
    other = "nats" if isinstance(data, corpus.Config) else "exact"
    files.write_text(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in _metrics(members, other)))
    if evaluated:
        evaluate.evaluate_run(path, settings, rows)
    report.write(path, settings, rows)
    return path


def _metrics(members, other):
    """Two records, of each member a loss of its own, and what else is measured."""
    for step in (1, 2):
        loss, exact = zip(*((3 - step + 0.1 * k, 0.4 * step / (k + 1)) for k in range(members)), strict=True)
        named = {"loss": loss, other: exact, "validation_loss": loss, f"validation_{other}": exact}
        values = {name: value if members > 1 else value[0] for name, value in named.items()}
        yield {"step": step, "learning_rate": 1e-3, "seconds": 1.0} | values


def bottles(path):
    """A text file, and the data of a run on it."""
    file = path.parent / "bottles.txt"
    file.write_text(TEXT)
    return text.Config(text=str(file), context=24)


KINDS = {
    "progressions": partial(keep, architecture=MODEL, data=DATA),
    "members": partial(keep, architecture=MODEL, data=DATA, members=16),
    "recurrent": partial(keep, architecture=recurrent.Config(d_model=8, n_layers=2), data=DATA),
    "pairs": partial(keep, architecture=TRANSLATOR, data=PAIRS),
    "wide": partial(keep, architecture=WIDE, data=wide.Config(digits=3), evaluated=False),
    "circuit": partial(keep, architecture=circuit.config(3), data=DATA, params=circuit.params(3), evaluated=False),
}


def make(kind, path):
    """The directory of a run of a kind."""
    if kind == "text":
        return keep(path, model.Config(d_model=8, position="learned", max_len=24), bottles(path))
    return KINDS[kind](path)
