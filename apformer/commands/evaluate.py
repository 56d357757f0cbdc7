"""Measure a run on held-out data, or a language model on a text: evaluate RUN, evaluate RUN|FOLDER --text FILE."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from apformer import files, tasks
from apformer.decoding.bind import bind_run
from apformer.errors import USAGE, UserError
from apformer.files import FilePath
from apformer.flags import parse, require
from apformer.report import architecture, figures, progress
from apformer.runs import directory, language_model
from apformer.runs.metrics import diverged, read_metrics, who_diverged
from apformer.runs.provenance import digest
from apformer.runs.restore import load_params, load_rows, load_settings
from apformer.settings import Settings
from apformer.tasks.text import corpus, folders, perplexity


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on held-out data: writes evaluation.json and figures. With --text FILE, measure what a text costs
    a language model: perplexity, nats per token, bits per byte. This writes nothing."""

    run: Positional[FilePath | None] = None
    """Run directory, or with --text a GPT-2 folder. The default is the latest run."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    json: bool = False
    """Print one JSON object instead of a table."""
    text: FilePath | None = None
    """Text file in UTF-8 to measure a language model on."""
    window: int | None = None
    """With --text: tokens that the model reads at once. The default is all it can read. Windows do not overlap."""
    stride: int | None = None
    """With --text: tokens by which the window moves. With fewer than --window, windows overlap, as in the guide to
    perplexity of `transformers`. A window then holds the last token to predict, too."""
    special_tokens: bool = False
    """With --text: read special tokens in it, such as <|endoftext|>. Without this flag, a text with some is refused."""
    adapter: FilePath | None = None
    """With --text: folder of low-rank adapters, saved alone, to merge into the model."""


def main(args: list[str]) -> None:
    """Run the command with its arguments."""
    evaluate(parse(Evaluate, args, "apformer evaluate"))


def evaluate(args: Evaluate) -> None:
    """Evaluate the best checkpoint of a run, or a language model on a text; print the table, or JSON."""
    if args.text is not None:
        result = evaluate_text(args)
        print(json.dumps(result) if args.json else perplexity.table(result))
        return
    for flag in ("window", "stride", "special_tokens", "adapter"):
        if getattr(args, flag) not in (None, False):
            raise UserError(f"--{flag} belongs to --text: give --text FILE, or drop it", USAGE)
    if args.run is not None and folders.holds_gpt2(args.run):
        raise UserError(f"{args.run} is a GPT-2 folder, which has no held-out data: give --text FILE", USAGE)
    path = directory.find(args.run)
    found = evaluate_run(path, load_settings(path), load_rows(path), args.member)
    print(json.dumps(found.result) if args.json else found.table)


def evaluate_text(args: Evaluate) -> dict:
    """Return the cost of the text of --text to a language model. Raises UserError that names the flag or the file."""
    found = language_model.load(args.run, args.member, args.adapter)
    window = language_model.window(args.run, found) if args.window is None else args.window
    most = 2**20 if found.max_tokens is None else found.max_tokens
    require("window", 2 <= window <= most, args, f"2 to {most}")
    require("stride", args.stride is None or 1 <= args.stride <= window, args, f"1 to {window}, the tokens of a window")
    text = corpus.read(args.text)
    try:
        tokens_N = found.tokenizer.encode(text, allowed_special="all" if args.special_tokens else ())
        with progress.bar(desc="evaluate", leave=False) as bar:
            told = progress.reporter(bar)
            cost = perplexity.measure(found.model, found.tokenizer, tokens_N, window, args.stride, told)
    except UserError as error:
        raise UserError(f"--text {args.text}: {error}", error.exit_code) from None
    return {"text": args.text} | cost


def evaluate_run(path: Path, settings: Settings, rows: Any, member: int | None = None) -> tasks.Evaluation:
    """Return the Evaluation of a run's best checkpoint; writes evaluation.json, figures, and the task's files."""
    task = tasks.load(settings.task)
    params, step, member = load_params(path, settings, member)
    with progress.bar(desc="evaluate", leave=False) as bar:
        found = task.evaluate(bind_run(settings, params), settings, rows, progress.reporter(bar))
    result, records = {"step": step, "member": member, "parameters_sha256": digest(params)}, read_metrics(path)
    result, table = result | found.result, found.table
    if lost := diverged(records):
        result["diverged"], table = lost, f"{table}\n{who_diverged(lost)}"
    files.write_json(path / "evaluation.json", result)
    for name, text in found.files.items():
        files.write_text(path / name, text)
    curve = figures.loss_curve(records, task.floor(settings, rows))
    figures.save(path / "figures", {"loss": curve} | architecture.pictures(settings) | found.figures)
    return found._replace(result=result, table=table)
