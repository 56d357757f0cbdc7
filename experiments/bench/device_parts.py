"""Parts of device.py: `python experiments/bench/device_parts.py NAME [tiny]` prints a line for each measurement."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np
from device import MARK, ROOT, SECONDS, Measurement

from apformer import model, tasks
from apformer.decoding.generate import generate
from apformer.formats import gpt2
from apformer.runs import fit, recipes

NOMINAL = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "T4": 65e12}  # dense bfloat16, per second
VOCABULARY = 50304  # of GPT-2, up to the next multiple of 64, as in nanoGPT


def time_call(call: Callable[[], Any], turns: int = 5, warm_up: int = 2) -> float:
    """Return the median seconds of a call."""
    seconds = []
    for turn in range(warm_up + turns):
        start = time.perf_counter()
        jax.block_until_ready(call())
        if turn >= warm_up:
            seconds.append(time.perf_counter() - start)
    return median(seconds)


def memory() -> Measurement:
    """Return {"peak_GB": peak of the device's memory}, or {} if the device does not report it."""
    found = jax.devices()[0].memory_stats() or {}
    return {"peak_GB": found["peak_bytes_in_use"] / 1e9} if "peak_bytes_in_use" in found else {}


def share_of_nominal(device: str, rate: float) -> float | None:
    """Return a rate divided by the maker's bfloat16 operations per second; None for an unknown device."""
    return next((rate / most for name, most in NOMINAL.items() if name in device), None)


def machine_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the kind of the device, its clocks, and the speed of a matrix product and of a copy."""
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    yield {
        "device": device.device_kind,
        "platform": device.platform,
        "count": jax.device_count(),
        "processor": machine.processor(),
    } | ({"memory_GB": limit / 1e9} if limit else {})
    if shutil.which("nvidia-smi"):
        query = "driver_version,memory.total,clocks.max.sm,clocks.max.mem,clocks.sm,clocks.mem,power.limit"
        result = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
        )
        yield dict(zip(query.split(","), result.stdout.strip().split(", "), strict=False))
    N = 256 if tiny else 8192
    A_NN, B_NN = (jax.random.normal(key, (N, N), jnp.bfloat16) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(jnp.matmul)
    rate = 2 * N**3 / time_call(lambda: [product(A_NN, B_NN) for _ in range(10)][-1]) * 10
    yield {"product_TFLOPs": rate / 1e12, "of_nominal": share_of_nominal(device.device_kind, rate)}
    long_N = jnp.ones((1 << 20) if tiny else (1 << 30), jnp.float32)
    copy = jax.jit(lambda x_N: x_N + 1)
    yield {"copy_GB_per_s": 2 * long_N.nbytes / time_call(lambda: copy(long_N)) / 1e9}


def tests_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the exit code and the last line of the tests marked `gpu`."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-m", "gpu", "tests/machine"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    yield {"exit_code": result.returncode, "tests": (result.stdout.strip() or result.stderr.strip()).splitlines()[-1]}


def main_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the seconds of the main command from an empty cache, and its verdict."""
    small = "--digits 2 --d_model 16 --mined_per_hard 0 --prefix_rows 0 --steps 10 --log_every 10 --save_every 10"
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = subprocess.run(
            [sys.executable, ROOT / "experiments" / "run.py", *(small.split() if tiny else [])],
            cwd=folder, env=os.environ | {"XDG_CACHE_HOME": folder}, capture_output=True, text=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
    verdicts = re.findall(r"^(?:PROVEN|CERTIFIED|NOT).*$", result.stdout, re.MULTILINE)
    yield {
        "seconds": seconds,
        "exit_code": result.returncode,
        "said": verdicts or result.stderr.strip().splitlines()[-1:],
    }


def step_time(settings: Any, rows: Any, steps: int, turns: int = 5) -> float:
    """Return the seconds of a training step, as `apformer train` computes it in chunks of `steps`."""
    state = fit.initial_state(settings)

    def turn() -> Any:
        nonlocal state
        state, metrics = fit.run_steps(state, rows, settings, steps)
        return metrics

    return time_call(turn, turns) / steps


def members_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the time of a step of several members of the default recipe at once."""
    one = None
    for count in (1, 2) if tiny else (1, 16, 64):
        words = ["--recipe", "exact", "--members", str(count), "--member_mode", "vmap", "--until", "steps"]
        settings = recipes.parse(
            words
            + (["--d_model", "16", "--batch_size", "8", "--mined_per_hard", "0", "--prefix_rows", "0"] if tiny else [])
        )
        settings, rows = tasks.load(settings.task).load(settings)
        seconds = step_time(settings, tasks.load(settings.task).train_rows(rows), 2 if tiny else 50)
        one = one or seconds
        yield {"members": count, "ms": seconds * 1e3, "times_one": seconds / one} | memory()


def gpt2_settings(tiny: bool, batch_size: int) -> Any:
    """Return the settings of a GPT-2 of 124M parameters that trains in bfloat16 with AdamW."""
    settings = recipes.parse(["--recipe", "baby_gpt", "--text", __file__])
    cfg = replace(gpt2.SIZES["gpt2"], vocab_size=VOCABULARY, dropout=0.0, attention_dropout=0.0)
    if tiny:
        cfg = replace(cfg, vocab_size=256, d_model=32, n_heads=2, n_layers=2, d_ff=None, max_len=64)
    training = replace(settings.training, batch_size=batch_size, compute_dtype="bfloat16")
    adamw = replace(settings.optimizer, rule="adamw", learning_rate=6e-4)
    return replace(
        settings, model=cfg, training=training, optimizer=adamw, data=replace(settings.data, context=cfg.max_len)
    )


def operations(cfg: model.Config) -> float:
    """Return the operations of a training step for each token: 6 N + 12 L D T, as in PaLM (Chowdhery et al. 2022)."""
    shapes = jax.eval_shape(partial(model.init, cfg=cfg), jax.random.key(0))
    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) - cfg.max_len * cfg.d_model
    return 6 * numbers + 12 * cfg.n_layers * cfg.d_model * cfg.max_len


def speed(device: str, cfg: model.Config, batch_size: int, seconds: float) -> Measurement:
    """Return tokens per second, and the share of the nominal rate (model FLOPs utilisation, MFU)."""
    rate = batch_size * cfg.max_len / seconds
    share = share_of_nominal(device, rate * operations(cfg))
    return {"batch_size": batch_size, "ms": seconds * 1e3, "tokens_per_s": rate, "MFU": share}


def training_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the speed of training GPT-2 at the largest batch that fits."""
    for batch_size in (2,) if tiny else (64, 32, 16, 8, 4):
        settings = gpt2_settings(tiny, batch_size)
        tokens_N = jax.random.randint(jax.random.key(0), (1 << 20,), 0, settings.model.vocab_size).astype(jnp.uint16)
        try:
            seconds = step_time(settings, tokens_N, 1 if tiny else 5, turns=3)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            yield {"batch_size": batch_size, "memory": "too little"}
        else:
            yield speed(jax.devices()[0].device_kind, settings.model, batch_size, seconds) | memory()
            return


def pytorch_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the speed of training nanoGPT's model in compiled PyTorch, at the largest batch that fits."""
    try:
        import torch
        from yardstick import Decoder
    except ImportError as error:
        yield {"left_out": str(error)}
        return
    cfg, kind = gpt2_settings(tiny, 1).model, "cuda" if torch.cuda.is_available() else "cpu"
    steps, device = 1 if tiny else 5, torch.cuda.get_device_name() if kind == "cuda" else "cpu"
    torch.set_float32_matmul_precision("high")
    theirs = Decoder(cfg.vocab_size, cfg.max_len, cfg.d_model, cfg.n_heads, cfg.n_layers).to(kind)
    compiled = theirs if tiny else torch.compile(theirs)
    rule = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": kind == "cuda"}
    optimizer = torch.optim.AdamW(theirs.parameters(), **rule)

    def turn(rows: Any) -> None:
        for _ in range(steps):
            with torch.autocast(kind, torch.bfloat16):
                logits = compiled(rows[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
        if kind == "cuda":
            torch.cuda.synchronize()

    for batch_size in (2,) if tiny else (64, 32, 16, 8, 4):
        try:
            seconds = time_call(
                partial(turn, torch.randint(cfg.vocab_size, (batch_size, cfg.max_len + 1), device=kind)), 3
            )
        except torch.OutOfMemoryError:
            yield {"batch_size": batch_size, "memory": "too little"}
        else:
            peak = {"peak_GB": torch.cuda.max_memory_allocated() / 1e9} if kind == "cuda" else {}
            yield speed(device, cfg, batch_size, seconds / steps) | peak
            return


def generation_sizes(tiny: bool) -> tuple[model.Config, int, int, tuple[int, ...]]:
    """Return (Config, tokens of a prompt, tokens generated after it, batch sizes)."""
    cfg = gpt2_settings(tiny, 1).model
    return (cfg, 4, 4, (1, 2)) if tiny else (cfg, 16, 128, (1, 16, 128))


def generation_part(tiny: bool) -> Iterator[Measurement]:
    """Yield tokens per second of GPT-2 with a cache."""
    cfg, prompt, tokens, batch_sizes = generation_sizes(tiny)

    @jax.jit
    def init(key: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.unstack(model.init(key, cfg)))

    @jax.jit
    def write(params: Any, prompt_BT: jax.Array) -> jax.Array:
        B, T = prompt_BT.shape

        def extend(tokens_BT: jax.Array, cache: Any, lengths_B: Any = None) -> Any:
            return model.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

        return generate(extend, model.init_cache(cfg, B, T + tokens, jnp.bfloat16), prompt_BT, np.full(B, T), tokens)

    params = init(jax.random.key(0))
    for B in batch_sizes:
        prompt_BT = jax.random.randint(jax.random.key(1), (B, prompt), 0, cfg.vocab_size)
        yield {
            "batch_size": B,
            "tokens_per_s": B * tokens / time_call(partial(write, params, prompt_BT), 3, 1),
        } | memory()


def transformers_part(tiny: bool) -> Iterator[Measurement]:
    """Yield tokens per second of GPT-2 in `transformers`."""
    try:
        import torch
        import transformers
    except ImportError as error:
        yield {"left_out": str(error)}
        return
    cfg, prompt, tokens, batch_sizes = generation_sizes(tiny)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    shape = {"n_embd": cfg.d_model, "n_head": cfg.n_heads, "n_layer": cfg.n_layers, "n_positions": cfg.max_len}
    transformers.logging.set_verbosity_error()
    their_cfg = transformers.GPT2Config(vocab_size=cfg.vocab_size, **shape)
    theirs = transformers.GPT2LMHeadModel(their_cfg).to(kind, torch.bfloat16).eval()
    options = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
    options |= {"min_new_tokens": tokens, "max_new_tokens": tokens}

    @torch.inference_mode()
    def write(rows: Any) -> np.ndarray:
        return theirs.generate(rows, attention_mask=torch.ones_like(rows), **options).cpu().numpy()

    for B in batch_sizes:
        rows = torch.randint(cfg.vocab_size, (B, prompt), device=kind)
        yield {"batch_size": B, "tokens_per_s": B * tokens / time_call(partial(write, rows), 2, 1)}


def translation_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the time of a step of the recipe `translate`, on number words."""
    small = ["--numbers", "300", "--largest", "99", "--d_model", "16", "--batch_size", "8"]
    settings = recipes.parse(["--recipe", "translate", *(small if tiny else [])])
    settings, rows = tasks.load(settings.task).load(settings)
    seconds = step_time(settings, tasks.load(settings.task).train_rows(rows), 2 if tiny else 50)
    yield {"batch_size": settings.training.batch_size, "ms": seconds * 1e3} | memory()


def window_part(tiny: bool) -> Iterator[Measurement]:
    """Yield the time and the memory of a gradient with a window of 64 tokens, see window.py."""
    from window import measure

    for T in (512,) if tiny else (512, 1024, 2048, 4096, 8192, 16384, 32768):
        seconds, room = measure(T, False, 1 if tiny else 5)
        yield {"tokens": T, "ms": seconds * 1e3, "MB": room / 2**20}


PARTS = {name: globals()[f"{name}_part"] for name in SECONDS}

if __name__ == "__main__":
    for found in PARTS[sys.argv[1]]("tiny" in sys.argv):
        print(MARK + json.dumps(found), flush=True)
