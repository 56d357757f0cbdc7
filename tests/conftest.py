"""What every test stands on: the CPU, strict dtypes and ranks, and parameters of which each one matters.

An implicit promotion or broadcast in the library is an error here, so that a wrong dtype or a wrong axis fails.
"""

import ctypes
import gc
import math
import os
import signal
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a proof has threads of its own
# Compiling is most of what tests do, and what they compile runs for a moment; the experiments run fully optimised code.
# Its emitters of fusions take most of that time. jaxlib 0.10 does without them if asked to; 0.12 refuses the flag.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false" * (tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)),
)

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# A program says where each of its operations was written, for which jax walks the stack each time it traces one.
jax.config.update("jax_traceback_in_locations_limit", 0)

# No deadline: the first example of a shape compiles.
hypothesis.settings.register_profile("apformer", deadline=None, max_examples=20)
hypothesis.settings.load_profile("apformer")


# What only a loss of power would show is left to the tests in a process of their own.
os.fsync = lambda _: None

# A job in the background ignores these two, and so would the commands that tests start and stop.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_configure(config):
    """Compile a program once for all tests that run it, in this process or another, and not again the next time."""
    if getattr(config, "cache", None) is not None:
        settings = {"jax_compilation_cache_dir": str(config.cache.mkdir("jax"))}
        settings["jax_persistent_cache_min_compile_time_secs"] = 0.0
        for name, value in settings.items():
            jax.config.update(name, value)
            os.environ[name.upper()] = str(value)  # for processes that tests start


def pytest_collection_finish():
    """What was imported stays: the collector of garbage need not look through it time and again while jax traces."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # bytes of the machine


def resident():
    """Bytes of memory that this process holds; where only Linux could say, more than any limit."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else math.inf


@pytest.fixture(scope="module", autouse=True)
def programs_end():
    """Modules share compiled programs until their process is large: those of all tests together hold six gigabytes."""
    yield
    if resident() > MEMORY / 8:
        jax.clear_caches()
        gc.collect()
        with suppress(OSError, AttributeError):  # glibc's: else the process stays as large, and clears time and again
            ctypes.CDLL(None).malloc_trim(0)


def pytest_xdist_auto_num_workers():
    """One process more than there are cores: tests wait for the processes that they start, and for the disk."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path, config):
    """Leave three folders out unless they are asked for alone, as `-m NAME`, `-m "NAME or NAME"` or by their paths.

    tests/parity turns 64-bit numbers on for its whole process; tests/notebooks and tests/faults take minutes.
    """
    name = collection_path.name
    alone = name in config.getoption("markexpr").split(" or ") or all(name in arg for arg in config.args)
    return True if name in ("parity", "notebooks", "faults") and not alone else None


def pytest_collection_modifyitems(config, items):
    """Leave the long tests out where `pytest` stands alone: whole runs, several devices, a browser.

    Asked for by their paths or by -m they are run, as by `.ci/run`.
    """
    if config.getoption("markexpr") or config.args != config.getini("testpaths"):
        return
    short = []
    long = []
    for item in items:
        (long if item.get_closest_marker("long") else short).append(item)
    items[:] = short
    config.hook.pytest_deselected(items=long)


@pytest.fixture
def fails(capsys):
    """A function (sentence, exit code, *args): the command prints it in one line, the last, and exits so."""
    from apformer import cli

    def check(sentence, exit_code, *args):
        capsys.readouterr()
        assert cli.main([str(arg) for arg in args]) == exit_code
        out, err = capsys.readouterr()
        last = err.splitlines()[-1]
        assert out == "" and last.startswith("apformer: ") and sentence in last, err

    return check


@pytest.fixture
def says(capsys):
    """A function (*args) to what a command, which ends well, prints."""
    from apformer import cli

    def call(*args):
        capsys.readouterr()
        assert cli.main([str(arg) for arg in args]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def made_run(tmp_path_factory):
    """A function (kind) to the directory of a run of helpers.small_runs, made once: who changes it copies it."""
    from apformer.report import figures
    from tests.helpers import small_runs

    def make(kind):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "save", lambda *_: None)  # which no test asks for
            return small_runs.make(kind, tmp_path_factory.mktemp(kind) / "run")

    return cache(make)


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory):
    """A text file of 300 progressions of small_runs.ROWS."""
    from apformer.tasks.progressions import generator, text_file
    from tests.helpers.small_runs import ROWS

    path = tmp_path_factory.mktemp("data") / "rows.txt"
    path.write_text(text_file.to_text(generator.draw(jax.random.key(9), ROWS, 300), ROWS.digits))
    return path


@pytest.fixture
def without_figures(monkeypatch):
    """Evaluations keep no figures, where these are not tested: to draw them takes most of an evaluation's time."""
    from apformer.report import figures

    monkeypatch.setattr(figures, "save", lambda *_: None)


@pytest.fixture
def without_pictures(without_figures, monkeypatch):
    """Nor is there a page of a run, where that is not tested."""
    from apformer.commands import report

    monkeypatch.setattr(report, "write", lambda *_: "no page")


@pytest.fixture(scope="session")
def random_params():
    """A function (cfg, seed=0, dtype=float32) to parameters of which each one matters."""
    from tests.helpers.small_models import draw_params

    return draw_params
