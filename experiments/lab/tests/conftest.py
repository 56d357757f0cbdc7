"""What the laboratory's tests stand on: the CPU, strict dtypes and ranks, and programs that compile quickly."""

import gc
import os
from importlib.metadata import version

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a proof has threads of its own
# As in tests/conftest.py: what tests compile runs for a moment.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false" * (tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)),
)

import hypothesis
import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # to find where an operation was written takes time
hypothesis.settings.register_profile("lab", deadline=None, max_examples=20)
hypothesis.settings.load_profile("lab")


def pytest_configure(config: pytest.Config) -> None:
    """Compile a program once for all tests that run it, and not again the next time."""
    if getattr(config, "cache", None) is not None:
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look through it while jax traces."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def random_params():
    """A function (cfg, seed=0, kind=sparse) to parameters of which each one matters: all are drawn."""
    from apformer_lab import sparse

    def draw(cfg, seed=0, kind=sparse):
        rng = np.random.default_rng(seed)

        def leaf(path, shape):
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return jax.device_put((centre + 0.4 * rng.standard_normal(shape.shape)).astype(np.float32))

        shapes = jax.eval_shape(lambda key: kind.init(key, cfg), jax.random.key(0))
        return jax.tree_util.tree_map_with_path(leaf, shapes)

    return draw


@pytest.fixture(scope="session")
def same_in_pieces():
    """A function that feeds rows to a cache in pieces, with garbage after them, and compares with whole rows."""

    def compare(extend, params, tokens_BT, cfg, cache, whole_BTV, schedule, **tolerance):
        at_B = np.zeros(len(tokens_BT), int)
        for lengths_B in schedule:
            width = max(map(max, schedule)) if max(lengths_B) > 1 else 1  # two programs
            piece_BT = np.full((len(tokens_BT), width), 7, np.int32)
            for b, length in enumerate(lengths_B):
                piece_BT[b, :length] = tokens_BT[b, at_B[b] : at_B[b] + length]
            logits_BTV, cache = extend(params, piece_BT, cache, cfg, lengths_B=np.array(lengths_B, np.int32))
            for b, length in enumerate(lengths_B):
                expected = np.asarray(whole_BTV)[b, at_B[b] : at_B[b] + length]
                np.testing.assert_allclose(logits_BTV[b, :length], expected, **tolerance)
            at_B += lengths_B
        assert cache["length"].tolist() == at_B.tolist()

    return compare
