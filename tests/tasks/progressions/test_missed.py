"""Contexts that a certificate named, as candidates of the hard rows."""

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apformer.runs import recipes
from apformer.tasks.progressions import crops, training
from apformer.tasks.progressions.generator import Config, Progressions, split_of
from apformer.tokenizers.digits import decode

CFG = Config(digits=2, min_difference=-30, max_difference=30)


def record(step, *contexts):
    first, difference, given = np.array(contexts).T.tolist()
    return {"step": step, "first": first, "difference": difference, "given": given}


def rows(*records, count=4):
    return [tuple(row) for row in np.array(crops.from_records([*records], count)).T.tolist()]


def test_the_newest_come_first_and_each_once():
    early, late = record(4, (1, 3, 2), (2, 3, 2), (9, 9, 2)), record(8, (5, 1, 2), (2, 3, 3))
    assert rows(early, {"step": 6}, late, count=3) == [(5, 1, 3), (2, 3, 4), (1, 3, 3)]
    assert rows() == rows({"step": 4}) == 4 * [(0, 0, 0)]


def test_a_crop_ends_where_its_terms_leave_the_digits_and_has_the_place_of_its_context():
    contexts = (95, 2, 2), (8, -4, 2), (7, 0, 2), (1, 3, 6)
    missed = crops.from_records([record(4, *contexts)], 5)
    crops_B, before_B = crops.last_terms(missed, CFG.digits, 4)
    assert np.array([*crops_B, before_B]).T.tolist() == [
        [95, 2, 3, 0],
        [8, -4, 3, 0],
        [7, 0, 4, 0],
        [10, 3, 4, 3],
        [0, 0, 0, 0],
    ]
    rows_BN = np.array(crops.draw_missed(jax.random.key(2), missed, 8)).T
    assert set(map(tuple, rows_BN)) <= {(95, 2, 3), (8, -4, 3), (7, 0, 3), (1, 3, 7)}
    assert not crops.draw_missed(jax.random.key(2), crops.from_records([], 5), 8).terms_B.any()


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-30, 30), st.integers(2, 6)), min_size=1, max_size=9))
def test_no_row_is_of_a_held_out_line(contexts):
    first_B, difference_B, terms_B = crops.from_records([record(4, *contexts)], 5)
    assert len(first_B) == 5 and not split_of(difference_B, first_B)[terms_B > 0].any()


def test_they_are_the_last_candidates_and_change_no_other_row():
    settings = recipes.parse("--batch_size 8 --prefix_rows 2 --long_rows 1 --own_positions".split())
    given = training.missed(settings, training.FRESH, [record(250, (471, 44, 3), (103, 8, 6))])
    before, after = (training.sample(jax.random.key(3), settings, each) for each in (training.FRESH, given))
    tokens_BT, weights_BT = (np.asarray(leaf) for leaf in after.rows)
    changed_B = (tokens_BT != np.asarray(before.rows.tokens_BT)).any(1)
    last = len(tokens_BT) - 4
    assert changed_B.nonzero()[0].tolist() == [last, last + 1]
    assert after.start_B[changed_B].tolist() == [0, 12]
    place = {"471 515 559": 11, "103 111 119": 23}[decode(after.long.tokens_BT[0, :11])]
    assert after.long.weights_BT[0, place : place + 4].tolist() == 4 * [4] and after.long.weights_BT.sum() == 16
    assert [*map(decode, tokens_BT[changed_B])] == ["471 515 559 603", "127 135 143 151"]
    np.testing.assert_array_equal(weights_BT[changed_B], 2 * [7 * [0] + 8 * [1]])
    np.testing.assert_array_equal(after.prefixes.tokens_BT, before.prefixes.tokens_BT)


def test_a_run_on_a_file_sees_its_rows_alone():
    settings, file = recipes.parse([]), training.TrainRows(Progressions(*np.int32([[1], [2], [3]])))
    assert training.missed(settings, file, [record(250, (471, 44, 3))]) is file
