"""Fuzz the parsers of every file, prompt and message that apformer reads, with a million random mutations.

A parser has to return or to raise UserError: one sentence on one line that names the file, with a documented exit code.
Anything else is a failure, which is printed with its seed. Time is CPU time; memory is the peak of one process since it
began to read.
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
EACH = 50_000  # cases per process
SEED = 16
LIMIT = 2  # seconds of CPU time per case
LONGEST = 5000  # characters of a message
CODES = {getattr(errors, name) for name in ("USAGE", "DATA", "CHECKPOINT", "DISK", "NOT_CERTIFIED")}
MOST_MESSAGES = 5  # failures of each parser to print, per process


def measure(cases, folder):
    """Return figures for `cases` inputs, shared out among the parsers. A new process starts every EACH inputs.

    The allocator of a process that reads a million files keeps memory between them; a user's process reads only a few.
    """
    total, peak = Counter(dict.fromkeys(("done", "refused", "tracebacks", "unclear", "slow"), 0)), 0
    spawn, firsts = multiprocessing.get_context("spawn"), range(0, cases, EACH)
    with (
        ProcessPoolExecutor(os.cpu_count(), mp_context=spawn, max_tasks_per_child=1) as pool,
        progress.bar(total=cases, unit="case", desc="hostile input") as bar,
    ):
        for found in as_completed([pool.submit(_part, first, cases, folder) for first in firsts]):
            counts, parsers, megabytes, messages = found.result()
            total.update(counts)
            peak = max(peak, megabytes)
            bar.update(counts["done"])
            for line in messages:
                progress.write(line)
    refused = total.pop("refused") / total["done"]
    figures = {"cases": total.pop("done"), "parsers": parsers, "refused": refused, "limit": LIMIT, "each": EACH}
    return figures | dict(total) | {"megabytes": peak}


def _part(first, cases, folder):
    """Return (counts, number of parsers, peak megabytes, messages) for the EACH cases from case `first` on."""
    place, counts, messages, failure_count = Path("/dev/shm"), Counter(), [], Counter()
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else folder) as scratch, _quiet():
        process.keep_programs()
        scratch = Path(scratch)
        (scratch / "sound").mkdir()
        every = _parsers.parsers(scratch / "sound")
        _forget_peak()
        last_clearing = time.process_time()
        for parser, case in islice(_cases(every, cases), first, first + EACH):
            last_clearing = _forget_programs(last_clearing)
            outcome, why = attempt(parser, case, scratch / "tried")
            counts.update(("done", outcome))
            if why:
                failure_count[parser.name] += 1
                if failure_count[parser.name] <= MOST_MESSAGES:
                    messages.append(f"{outcome}: {parser.name}, case {case}, seed {SEED}: {why}")
    del counts["read"]
    return counts, len(every), _peak(), messages


def _cases(every, cases):
    """Yield (parser, case number) of `cases` cases, by the shares of the parsers; the last one gets the rest."""
    total_share, left = sum(parser.share for parser in every), cases
    for parser in every:
        number = left if parser is every[-1] else min(left, max(1, round(cases * parser.share / total_share)))
        yield from ((parser, case) for case in range(number))
        left -= number


def attempt(parser, case, folder):
    """Return (outcome, message) of one case, which depends only on the parser, the case number and SEED."""
    rng = random.Random(f"{SEED} {parser.name} {case}")
    content = _mutate.mutate(rng, rng.choice(parser.seeds), parser.structure)
    return run_parser(parser, content, folder, rng.random())


def run_parser(parser, content, folder, chance=1.0):
    """Return (outcome, message) of a parser for given bytes. Outcomes other than "read" and "refused" are failures.

    chance: Below 0.002 the file is missing, below 0.001 it is a directory.
    """
    given = content if parser.file is None else _write_file(parser, content, chance, folder / parser.name)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with contextlib.redirect_stderr(io.StringIO()):
                parser.read(given)
        outcome, message = "read", ""
    except (errors.UserError, _readers.Ended) as error:
        outcome, message = "refused", _unclear(error, parser)
        if message:
            outcome = "unclear"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic in a Rust library is not an Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome, message = "tracebacks", f"{type(error).__name__}: {str(error)[:200]!r} ({where.name}:{where.lineno})"
    seconds = time.process_time() - began
    if seconds > LIMIT:
        outcome, message = "slow", f"{seconds:.1f} s, {outcome}"
    return outcome, f"{message}; {_parsers.describe_input(content)}" if message else ""


def _write_file(parser, content, chance, folder):
    """Write the file to test and return its path; for a small `chance` it is missing, or a directory."""
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
    """Return the reason why a message is not a clear sentence; "" if it is."""
    sentence, code = str(error), error.exit_code
    if code not in CODES:
        return f"exit code {code}"
    if not sentence.isprintable() or len(sentence) > LONGEST:
        return f"{len(sentence):,} characters, {sentence[:200]!r}"
    # The message may name another file of the folder, or the checkpoint that contains a manifest.
    names_file = parser.file is None or re.search(r"[\w/]+\.\w+|/1\b|" + re.escape(parser.file), sentence)
    return "" if names_file else f"names no file: {sentence[:200]!r}"


@contextlib.contextmanager
def _quiet():
    """Discard standard error, also of libraries in other languages."""
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


def _forget_programs(before):
    """Clear what JAX compiled, once per second of CPU time; return the time of the last clearing."""
    now = time.process_time()
    if now - before < 1:
        return before
    jax.clear_caches()
    return now


def _forget_peak():
    """Reset the peak of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak():
    """Return the peak memory of this process in megabytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 // 10**6
