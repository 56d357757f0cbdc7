"""What a proof costs is counted from shapes: held to the products that numpy really computes."""

import numpy as np

from apformer.errors import DATA
from apformer.proof import network
from apformer.tasks.progressions.proof import contexts
from tests.helpers import scripts
from tests.helpers.refusals import refused

(proof_cost,) = scripts.load("proof_cost")

BARE = {
    "n_layers": 2, "d_model": 6, "n_heads": 3, "d_ff": 5, "window": 3, "position": "relative", "vocab_size": 11,
    "similarity": "dot", "norm": "none", "norm_epsilon": 1e-5, "final_norm": False,
    "residual": True, "attention_sink": True, "output_projection": True, "feedforward_bias": True, "head_bias": True,
    "tie_embeddings": False,
}  # fmt: skip


class Counted(np.ndarray):
    """An array that counts its products. Without norms these are the products of matrices and of attention."""

    products = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        inputs = [np.asarray(each) for each in inputs]
        if out is not None:
            options["out"] = tuple(np.asarray(each) for each in out)
        found = getattr(ufunc, method)(*inputs, **options)
        if ufunc in (np.matmul, np.multiply):
            Counted.products += found.size * (inputs[0].shape[-1] if ufunc is np.matmul else 1)
        return found.view(Counted)

    def __array_function__(self, function, types, args, kwargs):
        if function is np.einsum:  # of scores or weighted values, element by element
            Counted.products += args[-1].size
            kwargs = {name: np.asarray(value) for name, value in kwargs.items()}
        found = super().__array_function__(function, types, args, kwargs)
        return found.view(Counted) if function is np.concatenate else found


def test_what_check_computes_is_counted_to_the_last_product():
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(0, [11, *[12] * 4], (200, 5)) @ 12 ** np.arange(5))
    shapes = network.shapes(BARE, contexts)
    weights = {name: rng.standard_normal(shape).view(Counted) for name, shape in shapes.items()}
    weights, found = network.complete(weights, BARE, contexts), proof_cost.Strings(BARE)
    Counted.products = 0
    network.logits(codes, weights, BARE, contexts)
    found.add(codes)
    assert Counted.products == found.multiply_adds > 0


def test_a_folder_without_a_proof_is_named(tmp_path):
    with refused(DATA, f"{tmp_path} holds no proof"):
        proof_cost.measure_proof(tmp_path)
