"""Run all measurements of an accelerator in one call: `python experiments/bench/device.py --out device.json`.

Each part runs in a process of its own, which has all of the device's memory. When its time is up, it is stopped, and
its measurements so far are kept. The record is rewritten after each part. All parts together take at most 8 minutes.

    machine       versions, clocks, memory; the speed of a matrix product and of a copy
    tests         the tests marked `gpu`
    main          the main command, from an empty cache to its proof
    members       a step of 1, 16 and 64 members at once
    training      a step of GPT-2 124M in bfloat16, at the largest batch that fits
    pytorch       the same for nanoGPT's model in compiled PyTorch
    generation    tokens per second of GPT-2 124M in bfloat16, with a cache
    transformers  the same with `transformers`
    translation   a step of the translator
    window        the gradient of a decoder whose attention has a window, for rows of growing length

The parts are in device_parts.py. `--tiny` runs each at a small size, as the tests do on a CPU. Parts whose packages
(PyTorch, transformers, pytest) are not installed are left out, and the record says so.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine

from apformer import flags

ROOT = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).with_name("device_parts.py")
MARK = "measured: "  # prefix of the lines that are measurements
SECONDS = {
    "machine": 30, "tests": 60, "training": 80, "pytorch": 80, "generation": 50, "transformers": 40, "members": 60,
    "main": 90, "translation": 45, "window": 40,
}  # fmt: skip

Measurement = dict[str, Any]


@dataclass(frozen=True)
class Device:
    """Measure an accelerator, part by part, and write one record."""

    out: str = "device.json"
    """File of the record, rewritten after each part."""
    parts: tuple[str, ...] = tuple(SECONDS)
    """Parts to run, in this order."""
    tiny: bool = False
    """Run every part at a small size."""
    seconds: int = 480
    """Seconds of all parts together."""


def main(args: Device) -> None:
    """Run the parts one after the other, and print a table of their measurements."""
    flags.require("parts", set(args.parts) <= set(SECONDS), args, f"some of {', '.join(SECONDS)}")
    deadline, record = time.monotonic() + args.seconds, {"versions": machine.versions(), "parts": {}}
    for name in args.parts:
        record["parts"][name] = run_part(name, args.tiny, min(SECONDS[name], deadline - time.monotonic()))
        Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
        for line in table(name, record["parts"][name]):
            print(line, flush=True)


def run_part(name: str, tiny: bool, seconds: float) -> Measurement:
    """Run a part; return its measurements, the seconds it took, and why it ended early if it did."""
    if seconds < 5:
        return {"measured": [], "seconds": 0, "fault": "no time was left"}
    command = [sys.executable, PARTS, name, *(["tiny"] if tiny else [])]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    start, fault = time.monotonic(), None
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            command, stdout=out, stderr=err, env=os.environ | {"PYTHONPATH": paths}, start_new_session=True
        )
        try:
            if child.wait(seconds):
                err.seek(0)
                fault = f"exit code {child.returncode}: {err.read()[-2000:].strip()}"
        except subprocess.TimeoutExpired:
            fault = f"ended after {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
        out.seek(0)
        lines = [line.removeprefix(MARK) for line in out.read().splitlines() if line.startswith(MARK)]
    measurements = [json.loads(line) for line in lines if line.endswith("}")]
    return {"measured": measurements, "seconds": round(time.monotonic() - start, 1)} | (
        {"fault": fault} if fault else {}
    )


def table(name: str, part: Measurement) -> Iterator[str]:
    """Yield the lines of a table of one part."""
    yield f"{name} ({part['seconds']} s)"
    for found in part["measured"]:
        yield "  " + ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items()
        )
    if "fault" in part:
        yield f"  {part['fault'].splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(flags.script("device.py", Device, main))
