"""Ready-made names of the task protocol for fresh short strings, such as `123=321`.

    from apformer.tasks.strings import *

gives a module all names but Config, RECIPES, ARCHITECTURES and `sample`; its own definitions after that replace them.
The task has a VOCABULARY: the characters of its tokens as one text. Token 0 is the line feed, which ends a string and
fills the rest of its row. Its `sample` returns a `tasks.batch.Batch` whose weights are 1 for the characters to predict:
from some place in the string to the line feed that ends it.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apformer import plugins, tasks
from apformer.analysis import ablate
from apformer.decoding.bind import Model
from apformer.errors import DATA, UserError
from apformer.flags import require, require_whole
from apformer.report import attention, sections, tables
from apformer.settings import Settings
from apformer.tasks import Progress, defaults
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import *  # noqa: F403
from apformer.tasks.defaults import checked, make_loss, right_rows, token_nats
from apformer.tasks.exact_match import by_group, continue_rows
from apformer.tasks.hard_rows import TEST_KEY, VALIDATION_KEY, VALIDATION_ROWS

__all__ = ["NOT_COMPILED", "Options", "check", "evaluate", "example", "page", "predict", "validation"]
__all__ += defaults.__all__

NOT_COMPILED = {"options": ("test_sequences",)}
ROWS = 1024  # rows evaluated at once
ERRORS = 100  # most wrong strings in evaluation.json
NAMES = ("given", "expected", "predicted")  # texts of a wrong string


@dataclass(frozen=True)
class Options:
    """Options of the evaluation.

    Attributes:
        test_sequences: Number of strings in the evaluation.
    """

    test_sequences: int = 2000


def check(settings: Settings) -> int:
    """Return the longest row in tokens. Raises UserError (exit USAGE) for a flag that is out of range."""
    size = len(_vocabulary(settings))
    require("vocab_size", settings.model.vocab_size == size, settings.model, f"{size}")
    require_whole("test_sequences", settings.options)
    return jax.eval_shape(lambda: _draw(settings, 0, 1)).tokens_BT.shape[1]


def validation(settings: Settings, rows: None) -> Batch:
    """Return the batch by which the best checkpoint is chosen, the same for every seed.

    Raises:
        plugins.Fault: If the task draws tokens that are none, or strings that cannot be predicted.
    """
    batch = _draw(settings, VALIDATION_KEY, VALIDATION_ROWS)
    (tokens_BT, weights_BT), most = jax.device_get(batch), settings.model.vocab_size - 1
    if tokens_BT.min() < 0 or tokens_BT.max() > most:
        raise plugins.fault(tasks.GROUP, settings.task, f"whose `sample` draws tokens that are not 0 to {most}")
    if weights_BT[:, 0].any() or not (weights_BT > 0).any(1).all():
        raise plugins.fault(tasks.GROUP, settings.task, "whose `sample` weights a first token, or none of a row")
    return batch


def evaluate(model: Model, settings: Settings, rows: None, progress: Progress) -> tasks.Evaluation:
    """Evaluate a model on fresh strings: the loss, and exact match by the number of characters to predict.

    Each character is predicted after the true ones. Greedy decoding also writes each string that is exactly right.
    """
    count, vocabulary = settings.options.test_sequences, _vocabulary(settings)
    batch, parts = jax.device_get(_draw(settings, TEST_KEY, count)), []
    for start in range(0, count, ROWS):
        part = jax.tree.map(lambda leaf, start=start: leaf[start : start + ROWS], batch)
        parts.append(jax.device_get(_measure(model, part)))
        progress(min(start + ROWS, count), count)
    nats_B, predicted_BT, right_B = map(np.concatenate, zip(*parts, strict=True))
    counts_BT, errors = batch.weights_BT > 0, []
    for b in np.flatnonzero(~right_B)[:ERRORS]:
        first, last = np.flatnonzero(counts_BT[b])[[0, -1]]
        texts = batch.tokens_BT[b, :first], batch.tokens_BT[b, first : last + 1], predicted_BT[b, first - 1 : last]
        errors.append({name: _text(text, vocabulary) for name, text in zip(NAMES, texts, strict=True)})
    groups = enumerate(by_group(counts_BT.sum(1), {"exact": right_B}))
    result = {
        "strings": count,
        "loss": float(nats_B.sum() / counts_BT.sum()),
        "exact": float(right_B.mean()),
        "by_length": [{"length": length} | group for length, group in groups if group["count"]],
        "errors": errors,
    }
    every = {"length": "all strings", "count": count, "exact": result["exact"]}
    lines = [
        [str(group["length"]), f"{group['count']:,}", tables.percent(group["exact"])]
        for group in [*result["by_length"], every]
    ]
    head = f"{count:,} fresh strings: {result['loss']:.4f} nats per character"
    figures = attention.pictures(settings, model.params, batch, [*vocabulary])
    columns = tables.columns([["characters to predict", "count", "exactly right"], *lines])
    return tasks.Evaluation(result, "\n".join([head, "", *columns]), figures)


def page(settings: Settings, rows: None, params: Any, evaluation: dict | None, path: Path) -> dict:
    """Return the content of the page, see `report.sections`: exact match by length, and wrong strings."""
    batch, vocabulary = sections.some_rows(validation(settings, rows)), _vocabulary(settings)
    prompt = sections.text("Type the beginning of a string.", batch.tokens_BT.shape[1])
    lead = "A string is right if each of its characters is the most likely one after the true characters before it."
    shown = {
        "vocabulary": [*vocabulary],
        "task": sections.task(f"continues strings of the task {settings.task}", prompt, judges="strings"),
        "facts": [],
        "right": {"title": "Accuracy", "lead": lead, "blocks": None},
    }
    errors = None
    if evaluation:
        total = f"of {evaluation['strings']:,} strings"
        shown["facts"] = [["exactly right", sections.percent(evaluation["exact"]), total]]
        groups, x = evaluation["by_length"], "characters to predict"
        length, count, exact = ([group[name] for group in groups] for name in ("length", "count", "exact"))
        chart = sections.lines("By length", x, "strings right", length, {"strings": exact}, counts=count, share=True)
        shown["right"]["blocks"] = [chart]
        errors = [[sections.cell(text, code=True) for text in error.values()] for error in evaluation["errors"]]
    shown["wrong"] = sections.listing("Wrong strings", "Some examples.", [*NAMES], errors)
    if params is None:
        return shown
    examples = sections.spread([_prompt(batch, b, vocabulary) for b in range(len(batch.tokens_BT))], sections.EXAMPLES)
    return shown | {
        "probe": sections.probe(batch, np.where(batch.weights_BT > 0, 2, 0)),
        "ablation": ablate.loss_drops(make_loss, settings, params, batch),
        "examples": examples,
    }


def example(settings: Settings, run: str) -> str:
    """Return a command to try: the prediction of a string."""
    prompt = _prompt(validation(settings, None), 0, _vocabulary(settings))
    return f"apformer predict {run} {shlex.quote(prompt)}"


def predict(model: Model, settings: Settings, lines: list[str], name: str, terms: int) -> list[tuple[str, int]]:
    """Return the greedy continuation of each line to the end of its string, and the number 1.

    Raises:
        UserError: USAGE for `terms` other than 1, DATA for a line that begins no string, with `name` and its number.
    """
    if terms != 1:
        raise UserError(f"--terms {terms} is more than one string: leave it out")
    vocabulary, longest = _vocabulary(settings), check(settings)
    for number, line in enumerate(lines, 1):
        if unknown := sorted({*line} - {*vocabulary[1:]}):
            fault = f"has the character {unknown[0]!r}; the characters are {vocabulary[1:]}"
            raise UserError(f"{name}, line {number}: {fault}", DATA)
        if not 1 <= len(line) < longest:
            raise UserError(f"{name}, line {number}: has {len(line):,} characters; give 1 to {longest - 1:,}", DATA)
    prompts = [[vocabulary.index(letter) for letter in line] for line in lines]
    tokens_BN = continue_rows(prompts, longest, model)
    return [
        (_text(tokens_N[: longest - len(line)], vocabulary).partition("\n")[0], 1)
        for tokens_N, line in zip(tokens_BN, lines, strict=True)
    ]


def _vocabulary(settings: Settings) -> str:
    return tasks.of(settings).VOCABULARY


def _draw(settings: Settings, seed: int, count: int) -> Batch:
    """Draw strings as `sample` of the task does, `count` of them."""
    sample, run = tasks.of(settings).sample, replace(settings.training, batch_size=count)
    batch = jax.jit(lambda key: sample(key, replace(settings, training=run), None))(jax.random.key(seed))
    if len(checked(batch, settings).tokens_BT) != count:
        raise plugins.fault(tasks.GROUP, settings.task, "whose `sample` does not return training.batch_size rows")
    return batch


@jax.jit
def _measure(model: Model, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the nats of each string, the prediction of each token but the first, and the mask of right strings."""
    logits_BTV = model.apply(batch.tokens_BT[:, :-1])
    return token_nats(logits_BTV, batch).sum(1), logits_BTV.argmax(-1), right_rows(logits_BTV, batch)


def _prompt(batch: Batch, row: int, vocabulary: str) -> str:
    """Return the characters of a string before those to predict."""
    first = int((batch.weights_BT[row] > 0).argmax())
    return _text(batch.tokens_BT[row, :first], vocabulary)


def _text(tokens_T: np.ndarray, vocabulary: str) -> str:
    return "".join(vocabulary[token] for token in tokens_T)
