"""Small runs of every kind, untrained, as training and evaluation leave them, each with its page."""

import json
from functools import partial

from apformer import files, model, recurrent, seq2seq, tasks
from apformer.commands import evaluate, report, train
from apformer.runs import fit
from apformer.settings import Settings, Training
from apformer.tasks import progressions, text, translation

MODEL = model.Config(d_model=8, n_heads=2, n_layers=2, d_ff=8, position="relative", window=6, attention_sink=True)
DATA = progressions.Config(max_terms=6, max_difference=120)
ROWS = progressions.Config(digits=2, max_difference=30, max_terms=6)
SENTENCES = translation.Config(from_language="figures", to_language="en", largest=400, numbers=200, byte_pairs=300)
TRANSLATOR = seq2seq.Config(
    d_model=8, n_heads=2, n_encoder_layers=2, n_decoder_layers=1, d_ff=8, norm_position="pre", final_norm=True
)
TEXT = "".join(f"the {k} bottles of ale stand on wall {k % 7}.\n" for k in range(99))


def on_rows(cfg, **changes):
    """The settings of a decoder on ROWS, with changes of training and of the options of the task."""
    own = {name: changes.pop(name) for name in [*changes] if hasattr(progressions.Options, name)}
    options = progressions.Options(**{"test_sequences": 40} | own)
    return Settings("progressions", "model", Training(**changes), cfg, ROWS, options)


def settings_of(task, architecture, cfg, data, options, **training):
    """The settings of a short run."""
    return Settings(task, architecture, Training(steps=2, **training), cfg, data, options)


def keep(path, task, architecture, cfg, data, options, params=None, members=1, evaluated=True, other="exact"):
    """The directory of a run of these, its best checkpoint untrained or of the parameters given."""
    settings = settings_of(task, architecture, cfg, data, options, members=members, run_dir=str(path))
    settings, rows = tasks.load(task).load(settings)
    params = fit.initial_state(settings).params if params is None else params
    train.keep(settings, params, rows, range(members))
    files.write_text(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in _metrics(members, other)))
    if evaluated:
        evaluate.save(path, evaluate.evaluate_run(path, settings, rows))
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


HOME = partial(keep, task="progressions", data=DATA, options=progressions.Options(test_sequences=30))
KINDS = {
    "progressions": partial(HOME, architecture="model", cfg=MODEL),
    "members": partial(HOME, architecture="model", cfg=MODEL, members=4),
    "recurrent": partial(HOME, architecture="recurrent", cfg=recurrent.Config(d_model=8, n_layers=2)),
    "pairs": partial(
        keep,
        task="translation",
        architecture="seq2seq",
        cfg=TRANSLATOR,
        data=SENTENCES,
        options=translation.Options(beams=1),
        other="nats",
    ),
}


def make(kind, path):
    """The directory of a run of a kind."""
    if kind == "text":
        cfg = model.Config(d_model=8, position="learned", max_len=24)
        return keep(path, "text", "model", cfg, bottles(path), text.Options())
    return KINDS[kind](path)
