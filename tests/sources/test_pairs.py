import itertools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.placement import Rows


def numbered(count, width=2, start=0):
    """Rows that tell which they are."""
    return np.repeat(np.arange(start, start + count, dtype=np.float32)[:, None], width, axis=1)


def batches(source, count, batch_size=4, *, seed=0, step=0, rows=None):
    feed = source.open_feed(rows or Rows(batch_size), seed=seed, step=step)
    return list(itertools.islice(feed, count))


def made(source, fed, batch_size, seed=0):
    return source.pairs(jax.random.key(seed), fed, batch_size)


def test_paired_rows_stay_together_and_come_once_in_a_pass():
    source = an.pairs.paired(numbered(12), numbered(12) + 100)
    fed = batches(source, 3)
    view1, view2 = (np.concatenate([x[view] for x in fed]) for view in (0, 1))
    np.testing.assert_array_equal(view1 + 100, view2)
    assert sorted(view1[:, 0]) == list(range(12))
    assert list(view1[:, 0]) != list(range(12))


def test_a_batch_is_a_function_of_seed_and_step():
    source = an.pairs.paired(numbered(10), numbered(10))
    whole = batches(source, 6, seed=3)
    for step, batch in enumerate(whole):
        chex.assert_trees_all_equal(batch, batches(source, 1, seed=3, step=step)[0])
    assert not np.array_equal(whole[0][0], batches(source, 1, seed=4)[0][0])


def test_hosts_share_the_rows_of_a_batch():
    source = an.pairs.grouped(numbered(24), np.arange(24) % 3)
    whole = batches(source, 3, 8, seed=1)
    for batch, parts in zip(
        whole,
        zip(*(batches(source, 3, seed=1, rows=Rows(8, host, 2)) for host in (0, 1)), strict=True),
        strict=True,
    ):
        chex.assert_trees_all_equal(batch, jax.tree.map(lambda *own: np.concatenate(own), *parts))


def test_held_out_pairs_are_not_trained_on():
    source = an.pairs.paired(numbered(40), numbered(40)).with_held_out(8)
    held_out = source.held_out(8)
    seen = {x for batch in batches(source, 20) for x in batch[0][:, 0]}
    kept = {x for batch in batches(held_out, 4) for x in batch[0][:, 0]}
    assert len(kept) == 8
    assert len(seen) == 32
    assert not seen & kept
    assert source.held_out(9) is None
    assert an.pairs.paired(numbered(4), numbered(4)).held_out(2) is None


def test_a_mapped_array_is_read_by_rows_alone(tmp_path):
    """An array that is larger than the machine's memory, of which next to nothing is on disk."""
    path = tmp_path / "huge.dat"
    huge = np.memmap(path, np.float32, "w+", shape=(2**33, 4))
    source = an.pairs.paired(huge, huge)
    assert source.table.arrays[0] is huge
    rows = source.table.take(np.array([0, 2**32, 2**33 - 1]), np.zeros(3, np.uint64))
    assert rows[0].shape == (3, 4)


def test_bytes_go_to_the_device_as_they_are_and_are_taken_from_0_to_1():
    images = np.full((6, 4, 4, 3), 255, np.uint8)
    source = an.pairs.paired(images, images)
    (fed,) = batches(source, 1)
    assert fed[0].dtype == np.uint8
    assert source.fed(4)[0].dtype == np.uint8
    np.testing.assert_array_equal(made(source, fed, 4).view1, np.ones((4, 4, 4, 3)))
    whole = an.pairs.paired(np.ones((4, 2), np.int64), np.ones((4, 2)))
    assert whole.fed(4)[0].dtype == np.float32


def test_time_lagged_pairs_stay_in_their_session():
    sessions = [numbered(5), numbered(9, start=100)]
    source = an.pairs.time_lagged(sessions, lag=2)
    assert len(source) == source.pair_count == 3 + 7
    first, second, _ = (np.concatenate(x) for x in zip(*batches(source, 5, 2), strict=True))
    np.testing.assert_array_equal(second - first, np.full_like(first, 2))
    assert sorted(first[:, 0]) == [0, 1, 2, *range(100, 107)]
    single = an.pairs.time_lagged(numbered(5), 2)
    assert len(single) == 3


def test_held_out_moments_are_the_last_of_each_session_and_share_no_row():
    source = an.pairs.time_lagged([numbered(52), numbered(102, start=1000)], lag=2)
    source = source.with_held_out(30)
    train, test = (
        {float(x) for view in table.take(np.arange(len(table)), None) for x in view[:, 0]}
        for table in (source.table, source.held_out_pairs)
    )
    assert not train & test
    assert {51.0, 1101.0} <= test
    assert {0.0, 1000.0} <= train
    assert len(source.held_out_pairs) == 30


def test_augmented_views_have_keys_of_their_own():
    source = an.pairs.augmented(
        numbered(6), lambda key, x: x + 0.1 * jax.random.uniform(key, x.shape)
    )
    (fed,) = batches(source, 1)
    pairs = made(source, fed, 4)
    for view in (pairs.view1, pairs.view2):
        np.testing.assert_array_equal(jnp.floor(view), fed[0])
    assert pairs.done1 is pairs.done2 is None
    assert not np.array_equal(pairs.view1, pairs.view2)
    np.testing.assert_array_equal(pairs.view1, made(source, fed, 4).view1)


def test_an_augmentation_may_tell_what_it_did():
    def shifted(key, rows):
        shift = jax.random.uniform(key, (len(rows), 1))
        return rows + shift, {"shift": shift, "is_large": shift > 0.5}

    source = an.pairs.augmented(numbered(6), shifted)
    (fed,) = batches(source, 1)
    pairs = made(source, fed, 4)
    for view, done in ((pairs.view1, pairs.done1), (pairs.view2, pairs.done2)):
        np.testing.assert_allclose(view, fed[0] + np.repeat(done["shift"], 2, axis=1), rtol=1e-6)
        np.testing.assert_array_equal(done["is_large"], done["shift"] > 0.5)
    assert not np.array_equal(pairs.done1["shift"], pairs.done2["shift"])
    for wrong in (lambda key, x: (x, x), lambda key, x: (x, {}, {})):
        with pytest.raises(TypeError, match="must return rows, or rows and what was done to each"):
            made(an.pairs.augmented(numbered(6), wrong), fed, 4)


@pytest.mark.parametrize("held_out", [0, 8])
def test_pairs_have_the_number_of_their_row_among_those_to_train_on(held_out):
    source = an.pairs.paired(numbered(40), numbered(40) + 100).with_held_out(held_out)
    rows = source.table.take(np.arange(len(source)), np.zeros(len(source), np.uint64))[0]
    for fed in batches(source, 10):
        pairs = made(source, fed, 4)
        np.testing.assert_array_equal(rows[pairs.number], pairs.view1)
        assert pairs.number.dtype == np.int32
    assert pairs.done1 is pairs.done2 is None


def test_grouped_partners_have_the_label_and_are_drawn_anew():
    labels = np.array(["a", "b", "a", "b", "a", "c", "a", "b"])
    with pytest.warns(UserWarning, match="1 of 8 rows are left out"):
        source = an.pairs.grouped(numbered(8), labels)
    partners = {}
    for first, second, _ in batches(source, 50, 7):
        for row, partner in zip(first[:, 0].astype(int), second[:, 0].astype(int), strict=True):
            assert row != partner
            assert labels[row] == labels[partner]
            partners.setdefault(int(row), set()).add(int(partner))
    assert partners[0] == {2, 4, 6}
    assert partners[1] == {3, 7}
    assert 5 not in partners


@pytest.mark.parametrize("count", [3, 40])
def test_held_out_groups(count):
    """Of many labels whole ones are held out, of few some rows of each."""
    labels = np.arange(240) % count
    source = an.pairs.grouped(numbered(240), labels).with_held_out(48)
    train, test = (
        {int(x) for view in table.take(np.arange(len(table)), np.zeros(len(table), np.uint64))
         for x in view[:, 0]}
        for table in (source.table, source.held_out_pairs)
    )  # fmt: skip
    assert not train & test
    assert len(test) == 48
    assert ({labels[i] for i in train} & {labels[i] for i in test} == set()) == (count == 40)


def test_an_iterator_of_pairs_is_read_in_its_order():
    pairs = [(np.full(3, i), np.full(3, -i)) for i in range(10)]
    source = an.pairs.from_iterator(iter(pairs))
    fed = batches(source, 9, 4)
    assert [list(batch[0][:, 0]) for batch in fed] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert list(fed[0][1][:, 0]) == [0, -1, -2, -3]
    assert source.example().shape == (2, 3)


def test_what_can_be_iterated_over_again_has_no_end_and_any_start():
    pairs = [(np.full(3, i), np.full(3, -i)) for i in range(6)]
    source = an.pairs.from_iterator(pairs)
    whole = batches(source, 5, 4)
    assert list(whole[1][0][:, 0]) == [4, 5, 0, 1]
    np.testing.assert_array_equal(whole[3], batches(source, 1, 4, step=3)[0])
    with pytest.raises(ValueError, match="can't go back to where a run stopped"):
        batches(an.pairs.from_iterator(iter(pairs)), 1, 4, step=1)


def test_batches_of_an_iterator_are_cut_anew():
    source = an.pairs.from_iterator(
        ((numbered(3, start=3 * i), numbered(3)) for i in range(4)), batched=True
    )
    assert [list(x[0][:, 0]) for x in batches(source, 5, 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


def test_the_head_of_an_iterator_is_not_lost_and_held_out_pairs_are_skipped():
    pairs = ((np.full(1, i), np.full(1, i)) for i in range(10))
    source = an.pairs.from_iterator(pairs)
    assert [int(a[0]) for a, _ in source.head(4)] == [0, 1, 2, 3]
    source = source.with_held_out(2)
    assert [list(x[0][:, 0]) for x in batches(source, 9, 4)] == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert source.held_out(2).pair_count == 2
    assert source.held_out(3) is None


ROWS = numbered(6)
CASES = {
    "unequal length": (
        lambda: an.pairs.paired(ROWS, ROWS[:5]),
        "view1 and view2 must have as many rows, got 6 and 5",
    ),
    "unequal shape": (lambda: an.pairs.paired(ROWS, ROWS[:, :1]), "one shape, for one encoder"),
    "bytes and floats": (
        lambda: an.pairs.paired(ROWS.astype(np.uint8), ROWS),
        "both be bytes or neither, got uint8 and float32",
    ),
    "no rows": (lambda: an.pairs.paired(ROWS[:0], ROWS[:0]), "must not be empty"),
    "one axis": (lambda: an.pairs.paired(ROWS[:, 0], ROWS[:, 0]), "one observation a row"),
    "texts": (lambda: an.pairs.paired([["a"]], [["b"]]), "must hold real numbers, got dtype <U1"),
    "no lag": (lambda: an.pairs.time_lagged(ROWS, 0), "at least 1, got 0"),
    "half a lag": (lambda: an.pairs.time_lagged(ROWS, 1.5), "whole number of rows"),
    "a short session": (
        lambda: an.pairs.time_lagged([ROWS, ROWS[:3]], 3),
        "session 1 has 3 rows, with lag=3 at least 4 are needed",
    ),
    "sessions that differ": (
        lambda: an.pairs.time_lagged([ROWS, ROWS[:, :1]], 1),
        "all sessions must have rows alike",
    ),
    "no labels alike": (lambda: an.pairs.grouped(ROWS, np.arange(6)), "no two of the 6 labels"),
    "labels missing": (lambda: an.pairs.grouped(ROWS, [0, 0]), r"labels must be [6]"),
    "a label that is NaN": (
        lambda: an.pairs.grouped(ROWS, [0.0, 0.0, np.nan, np.nan, 1.0, 1.0]),
        "got NaN for 2 of 6 rows; leave those rows out",
    ),
    "labels of two kinds": (
        lambda: an.pairs.grouped(ROWS, np.array(["a", None] * 3, object)),
        "of one kind that can be sorted, got NoneType, str; leave out rows that have none",
    ),
    "masked entries": (
        lambda: an.pairs.time_lagged(np.ma.array(ROWS, mask=ROWS > 3)),
        "session 0 has 4 masked entries, and all are needed",
    ),
    "no pair": (lambda: an.pairs.from_iterator([1, 2]), "must give pairs (view1, view2), got int"),
    "an empty iterator": (lambda: an.pairs.from_iterator([]), "gave none"),
    "views that differ": (
        lambda: an.pairs.from_iterator([(ROWS, ROWS[:2])]),
        "both views of a pair must have one shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_line(case):
    make, expected = CASES[case]
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        make()
    assert "\n" not in str(error.value)


def test_an_augmentation_without_a_key_is_refused():
    with pytest.raises(TypeError, match=r"must take \(key, rows\)"):
        an.pairs.augmented(ROWS, lambda x: x)


def test_an_augmentation_that_changes_the_shape_is_refused():
    source = an.pairs.augmented(ROWS, lambda key, x: x[:, :1])
    (fed,) = batches(source, 1)
    with pytest.raises(ValueError, match="maps rows to as many like them"):
        made(source, fed, 4)
