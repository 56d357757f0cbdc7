"""Measure a run as its task does, or a language model on a text: evaluate RUN, evaluate RUN|FOLDER --text FILE."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apformer import files, plugins, tasks
from apformer.commands import Run
from apformer.errors import UserError, tell
from apformer.files import FilePath
from apformer.flags import require
from apformer.report import figures, progress, tables
from apformer.runs import directory, language_model, selection
from apformer.runs.metrics import diverged, read_metrics
from apformer.runs.provenance import digest
from apformer.runs.restore import bind_run, load_params, load_rows, load_settings
from apformer.settings import Settings
from apformer.tasks.text import corpus, folders, perplexity


@dataclass(frozen=True)
class Evaluate:
    """Measure a run as its task does, and write evaluation.json and figures.

    With --text FILE, print the perplexity, nats per token and bits per byte of a text under a language model, and write
    no file.

    Attributes:
        run: Run directory, or with --text a GPT-2 folder. The default is the latest run.
        member: Number of a member of a population. The default is the best on validation rows, beside the mean of all.
        json: Print one JSON object instead of a table.
        text: Text file in UTF-8 to measure a language model on.
        window: With --text: number of tokens that the model reads at once. The default is the most that it can read, or
            without a bound the --context of its training. Without --stride, windows do not overlap.
        stride: With --text: number of tokens by which the window moves; windows overlap if it is less than --window.
            With this flag the last token of a window is predicted but not read, as `transformers` documents.
        special_tokens: With --text: read special tokens in it, such as <|endoftext|>. Without this flag, a text with
            some is refused.
        adapter: With --text: folder of low-rank adapters, saved alone, to merge into the model.
    """

    run: Run = None
    member: int | None = None
    json: bool = False
    text: FilePath | None = None
    window: int | None = None
    stride: int | None = None
    special_tokens: bool = False
    adapter: FilePath | None = None


def evaluate(args: Evaluate) -> None:
    """Evaluate the best checkpoint of a run, or a language model on a text; print the table, or JSON."""
    if args.text is not None:
        result = evaluate_text(args, args.text)
        print(json.dumps(result) if args.json else perplexity.table(result))
        return
    for flag in ("window", "stride", "special_tokens", "adapter"):
        if getattr(args, flag) != getattr(Evaluate, flag):
            raise UserError(f"--{flag} belongs to --text: give --text FILE, or drop it")
    if args.run is not None and folders.holds_gpt2(args.run):
        raise UserError(f"{args.run} is a GPT-2 folder, which has no held-out data: give --text FILE")
    path = directory.find(args.run)
    settings, rows = load_settings(path), load_rows(path)
    evaluation = evaluate_run(path, settings, rows, args.member)
    with suppress(BrokenPipeError):  # the files have it, too
        print(json.dumps(evaluation.result) if args.json else evaluation.table, flush=True)
    if not os.access(path, os.W_OK):
        tell(f"{path} cannot be written: the result and its figures are not saved")
        return
    save(path, evaluation)
    draw(path, settings, rows, evaluation)


def evaluate_text(args: Evaluate, file: str) -> dict:
    """Return the cost of the text of --text by a language model. Raises UserError that names the flag or the file."""
    lm = language_model.load(args.run, args.member, args.adapter)
    window = args.window
    least = 1 if args.stride is None else 2
    most = lm.max_tokens or 2**20
    if window is None:  # all that it can read, or the context of training
        window = lm.max_tokens or load_settings(directory.find(args.run)).data.context
    if most < least:
        raise UserError(f"--stride {args.stride} needs a window of two tokens, and the model reads one: drop it")
    require("window", least <= window <= most, replace(args, window=window), f"{least} to {most}")
    require("stride", args.stride is None or 1 <= args.stride <= window, args, f"1 to {window}, the tokens of a window")
    text = corpus.read(file)
    try:
        tokens_N = lm.tokenizer.encode(text, allowed_special="all" if args.special_tokens else ())
        with progress.reporting("evaluate") as report:
            cost = perplexity.measure(lm.model, lm.tokenizer, tokens_N, window, args.stride, report)
    except UserError as error:
        raise UserError(f"--text {file}: {error}", error.exit_code) from None
    return {"text": file} | cost


def evaluate_run(path: Path, settings: Settings, rows: Any, member: int | None = None) -> tasks.Evaluation:
    """Return the Evaluation of a run's best checkpoint.

    For a population without a `member`, it is that of the best member, with the numbers of all finite members, their
    mean and standard deviation.
    """
    params, step, best = load_params(path, settings, member)
    evaluation = measure(settings, rows, params)
    identity = {"step": step, "member": best, "parameters_sha256": digest(params)}
    result, table = identity | evaluation.result, evaluation.table
    last = selection.steps(path / "checkpoints")[-1]
    if step < last and settings.training.average == 1:
        table += f"\nmeasured at step {step:,}, the best checkpoint; the last is of step {last:,}"
    failed = diverged(read_metrics(path))
    if failed:
        listed = ", ".join(f"{each['member']} at step {each['step']:,}" for each in failed)
        result["diverged"], table = failed, f"{table}\nDiverged, and left out: member {listed}."
    if settings.training.members > 1 and member is None:
        others = {"seconds", *vars(settings.options)}
        names = [name for name, value in evaluation.result.items() if type(value) is float and name not in others]
        result["members"] = []
        for number in sorted({*range(settings.training.members)} - {record["member"] for record in failed}):
            of_member = result
            if number != best:
                of_member = measure(settings, rows, load_params(path, settings, number)[0]).result
            result["members"].append({"member": number} | {name: of_member[name] for name in names})
        lines = [[str(each["member"]), *(f"{each[name]:.4f}" for name in names)] for each in result["members"]]
        mean = ["mean ± sd", *(tables.mean_sd([each[name] for each in result["members"]], 4) for name in names)]
        table = "\n".join([table, "", *tables.columns([["member", *names], *lines, mean])])
    return evaluation._replace(result=result, table=table)


def save(path: Path, evaluation: tasks.Evaluation) -> None:
    """Write evaluation.json and the files of the task into a run directory. Raises UserError(DISK)."""
    files.write_json(path / "evaluation.json", evaluation.result)
    for name, text in evaluation.files.items():
        files.write_text(path / name, text)


def draw(path: Path, settings: Settings, rows: Any, evaluation: tasks.Evaluation) -> None:
    """Write the figures of a run into its folder `figures`."""
    curve = figures.loss_curve(read_metrics(path), tasks.of(settings).floor(settings, rows))
    figures.save(path / "figures", {"loss": curve} | evaluation.figures)


def measure(settings: Settings, rows: Any, params: Any) -> tasks.Evaluation:
    """Return the task's Evaluation of parameters, with a progress bar."""
    with progress.reporting("evaluate") as report:
        evaluation = tasks.of(settings).evaluate(bind_run(settings, params), settings, rows, report)
    if not hasattr(evaluation, "doubt"):
        raise plugins.fault(tasks.GROUP, settings.task, "whose `evaluate` returns no tasks.Evaluation")
    return evaluation
