"""Hostile input: every file, prompt and message that apformer reads, changed at random, a million times.

A parser answers with a value, or with UserError: one sentence on one line, which names the file, with a documented exit
code. Anything else is a failure, which is printed with its seed. Time is that of the processor, memory the most that
one process held since it began to read.
"""

import contextlib
import io
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import jax
from faults import _mutate, _parsers, _readers

from apformer import errors
from apformer.machine import process
from apformer.report import progress

QUESTION = "What does hostile input do to the parsers of every file, prompt and message?"
CLAIM = (
    "{cases:,} inputs for {parsers:,} parsers: {tracebacks:,} tracebacks, {unclear:,} refusals that are no clear "
    "sentence, {slow:,} cases above {limit:,} s; {refused:share} refused with a sentence, the others read; "
    "at most {megabytes:,} MB in a process of {each:,} inputs"
)
CASES = 1_000_000
EACH = 50_000  # cases of one process
SEED = 16
LIMIT = 2  # seconds of the processor for a case
LONGEST = 5000  # characters of a sentence
CODES = {getattr(errors, name) for name in ("USAGE", "DATA", "CHECKPOINT", "DISK", "NOT_CERTIFIED")}
SHOWN = 5  # failures of a parser that are told in full


def measure(cases, folder):
    """Figures of `cases` inputs, each parser with its share of them. A new process reads every EACH inputs.

    In a process that read a million files the allocator would keep memory between them, and nobody gives one process
    more than a few.
    """
    total, peak = Counter(dict.fromkeys(("done", "refused", "tracebacks", "unclear", "slow"), 0)), 0
    spawn, firsts = multiprocessing.get_context("spawn"), range(0, cases, EACH)
    with (
        ProcessPoolExecutor(os.cpu_count(), mp_context=spawn, max_tasks_per_child=1) as pool,
        progress.bar(total=cases, unit="case", desc="hostile input") as bar,
    ):
        for found in as_completed([pool.submit(_part, first, cases, folder) for first in firsts]):
            counts, parsers, megabytes, told = found.result()
            total.update(counts)
            peak = max(peak, megabytes)
            bar.update(counts["done"])
            for line in told:
                progress.write(line)
    refused = total.pop("refused") / total["done"]
    figures = {"cases": total.pop("done"), "parsers": parsers, "refused": refused, "limit": LIMIT, "each": EACH}
    return figures | dict(total) | {"megabytes": peak}


def _part(first, cases, folder):
    """(counts, number of parsers, most megabytes, failures told) of the EACH cases from `first` on of `cases`."""
    place, counts, told, told_of = Path("/dev/shm"), Counter(), [], Counter()
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else folder) as scratch, _quiet():
        process.keep_programs()
        scratch = Path(scratch)
        (scratch / "sound").mkdir()
        every = _parsers.parsers(scratch / "sound")
        _forget_peak()
        forgotten = time.process_time()
        for parser, case in islice(_cases(every, cases), first, first + EACH):
            forgotten = _forget_programs(forgotten)
            outcome, why = attempt(parser, case, scratch / "tried")
            counts.update(("done", outcome))
            if why:
                told_of[parser.name] += 1
                if told_of[parser.name] <= SHOWN:
                    told.append(f"{outcome}: {parser.name}, case {case}, seed {SEED}: {why}")
    del counts["read"]
    return counts, len(every), _peak(), told


def _cases(every, cases):
    """(parser, number of the case) of `cases` cases, each parser with its share and at least one; the last has more."""
    whole, left = sum(parser.share for parser in every), cases
    for parser in every:
        number = left if parser is every[-1] else min(left, max(1, round(cases * parser.share / whole)))
        yield from ((parser, case) for case in range(number))
        left -= number


def attempt(parser, case, folder):
    """(outcome, what is told of it) of one case; it depends on nothing but the parser, the case and SEED."""
    rng = random.Random(f"{SEED} {parser.name} {case}")
    content = _mutate.mutated(rng, rng.choice(parser.seeds), parser.structure)
    return tried(parser, content, folder, rng.random())


def tried(parser, content, folder, chance=1.0):
    """(outcome, what is told of it) of a parser and bytes: "read" or "refused", or what it must not be.

    chance: below 0.002 the file is not there, below 0.001 it is a directory.
    """
    given = content if parser.file is None else _placed(parser, content, chance, folder / parser.name)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with contextlib.redirect_stderr(io.StringIO()):
                parser.read(given)
        outcome, told = "read", ""
    except (errors.UserError, _readers.Ended) as error:
        outcome, told = "refused", _unclear(error, parser)
        if told:
            outcome = "unclear"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome, told = "tracebacks", f"{type(error).__name__}: {str(error)[:200]!r} ({where.name}:{where.lineno})"
    seconds = time.process_time() - began
    if seconds > LIMIT:
        outcome, told = "slow", f"{seconds:.1f} s, {outcome}"
    return outcome, f"{told}; {_parsers.reproduced(content)}" if told else ""


def _placed(parser, content, chance, folder):
    """The Path of the file that is tried; now and then it is a directory, or not there."""
    path = folder / "1" / parser.file
    if not path.parent.is_dir():
        shutil.copytree(parser.beside, path.parent) if parser.beside else path.parent.mkdir(parents=True)
        path.unlink(missing_ok=True)
    if path.is_dir():
        path.rmdir()
    if chance < 0.002:
        path.unlink(missing_ok=True)
        if chance < 0.001:
            path.mkdir()
    else:
        path.write_bytes(content)
    return path


def _unclear(error, parser):
    """Why a refusal is no clear sentence; "" if it is one."""
    sentence, code = str(error), error.exit_code
    if code not in CODES:
        return f"exit code {code}"
    if not sentence.isprintable() or len(sentence) > LONGEST:
        return f"{len(sentence):,} characters, {sentence[:200]!r}"
    # A folder's other file may be at fault too, and a manifest is told of with the checkpoint that it lies in.
    known = parser.file is None or re.search(r"[\w/]+\.\w+|/1\b|" + re.escape(parser.file), sentence)
    return "" if known else f"names no file: {sentence[:200]!r}"


@contextlib.contextmanager
def _quiet():
    """What this process and libraries in other languages write to standard error is not shown."""
    sys.stderr.flush()
    shown, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(shown, 2)
        os.close(shown)
        os.close(nowhere)


def _forget_programs(before):
    """Let go of what JAX compiled for earlier inputs, once a second: nobody gives one process more than a few."""
    now = time.process_time()
    if now - before < 1:
        return before
    jax.clear_caches()
    return now


def _forget_peak():
    """From now on the peak of memory counts."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak():
    """Most megabytes that this process held at once."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 // 10**6
