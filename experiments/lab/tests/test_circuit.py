"""The weights written by hand predict every token of a progression but the digits of its first two terms."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import cli, errors, flags, model
from apformer.tokenizers import digits as tokenizer
from apformer_lab import circuit

apply = jax.jit(model.apply, static_argnames="cfg")


def encode_rows(rows, digits):
    """Rows of terms as tokens, a space after every term: (B, T) int32."""
    return np.stack([tokenizer.encode("".join(f"{term:0{digits}d} " for term in terms)) for terms in rows])


def draw_number(rng, digits, alphabet="0123456789"):
    return int("".join(rng.choice(list(alphabet), digits)))


def random_rows(digits, terms, count, seed=0):
    """Progressions of differences of every size and sign, 0 too, up to the steepest that fit."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        last = 10**digits - 1
        size = draw_number(rng, rng.integers(1, digits + 1)) % (last // (terms - 1) + 1)
        first = draw_number(rng, digits) % (last - size * (terms - 1) + 1)
        row = [first + n * size for n in range(terms)]
        rows.append(row if rng.random() < 0.5 else row[::-1])
    return rows


def run_of_zeros(rng, digits, low, length, sign):
    """A step in which e is 0 at `length` places from `low` up, and sign at the place below them.

    x is drawn, which gives 2x; y is 2x without e, which is drawn everywhere else.
    """
    while True:
        x = draw_number(rng, digits)
        double = f"{2 * x % 10**digits:0{digits}d}"
        above, run, below = np.split(list(double), [digits - low - length, digits - low])
        y_C = [*rng.integers(10, size=len(above)), *map(int, run), *rng.integers(10, size=len(below))]
        if low:
            y_C[digits - low] = int(below[0]) - sign
        y = sum(int(y_c) * 10**place for place, y_c in enumerate(reversed(y_C)))
        if 0 <= min(y_C) and max(y_C) <= 9 and 0 <= 2 * x - y < 10**digits:
            return y, x, 2 * x - y


def runs_of_zeros(digits, seed=0):
    """One such step for every length, place and sign."""
    rng = np.random.default_rng(seed)
    runs = [(low, length) for low in range(digits) for length in range(1, digits - low + 1)]
    return [run_of_zeros(rng, digits, *run, sign) for run in runs for sign in (-1, 1)]


def predicted(tokens_BT, digits):
    """Which tokens but the first follow from those before: the spaces, and all from the third term on: (T - 1)."""
    place_T = np.arange(1, tokens_BT.shape[1])
    return (place_T % (digits + 1) == digits) | (place_T >= 2 * (digits + 1))


@pytest.mark.parametrize("digits", [1, 12])
def test_longer_rows_and_borrows_over_any_run_are_right(digits):
    """Rows of three terms stand before longer ones, so that one program computes both."""
    rows = random_rows(digits, 4, 100)
    if digits > 1:
        rows += [(*row, row[-1]) for row in runs_of_zeros(digits)]
    tokens_BT = encode_rows(rows, digits)
    found = np.argmax(apply(circuit.params(digits), tokens_BT, circuit.config(digits)), -1)[:, :-1]
    right_BT = (found == tokens_BT[:, 1:])[:, predicted(tokens_BT, digits)]
    assert right_BT[:100].all() and right_BT[:, : -(digits + 1)].all()  # the fourth term of the others is no next term


def test_any_weight_of_the_other_sign_breaks_it():
    digits = 3
    weights, cfg = circuit.params(digits), circuit.config(digits)
    tokens_BT = encode_rows(runs_of_zeros(digits) + random_rows(digits, 3, 300), digits)

    @jax.jit
    def wrong(weights):
        wrong_BT = jnp.argmax(model.apply(weights, tokens_BT, cfg), -1)[:, :-1] != tokens_BT[:, 1:]
        return wrong_BT[:, predicted(tokens_BT, digits)].sum()

    assert wrong(weights) == 0
    weights = jax.tree.map(np.array, weights)
    for leaf in jax.tree.leaves(weights):
        for index in map(tuple, np.argwhere(leaf)):
            leaf[index] *= -1
            assert wrong(weights), f"weight {index} of {leaf.shape} is idle"
            leaf[index] *= -1


def test_a_term_has_a_digit():
    with pytest.raises(ValueError, match="not 0"):
        circuit.params(0)


def test_the_circuit_is_kept_continues_progressions_and_is_certified(tmp_path, monkeypatch, capsys):
    def main(*args):
        monkeypatch.setattr("sys.argv", ["circuit", "--digits", "2", *args])
        return flags.script("circuit", circuit.Circuit, circuit.run), *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    exit_code, said, _ = main("--min_difference", "-9", "--max_difference", "12")
    assert exit_code == 0 and re.fullmatch(r"runs/circuit-2/report.html: .*\nruns/circuit-2\n", said)
    assert (tmp_path / "runs/circuit-2/figures/attention.png").stat().st_size > 5000
    assert cli.main(["predict", "runs/circuit-2", "97 90", "--terms", "3"]) == 0
    assert capsys.readouterr().out == "83 76 69\n"
    assert cli.main(["certify", "runs/circuit-2"]) == 0
    certificate = json.loads((tmp_path / "runs/circuit-2/certificate.json").read_text())
    assert certificate["smallest_margin"] == circuit.SURE and certificate["errors"] == 0
    exit_code, _, said = main()
    assert exit_code == errors.USAGE and "already holds a run" in said
