import pickle

import numpy as np
import pytest

from aninfonce_jax.data.order import ShuffledOrder
from aninfonce_jax.placement import Rows


def whole_batch(rows, batch, hosts):
    parts = [Rows(rows.batch_size, host, hosts).positions(batch) for host in range(hosts)]
    return np.concatenate(parts)


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 6, 12])
def test_a_batch_reads_the_same_on_any_number_of_hosts(hosts):
    rows = Rows(12)
    for batch in (0, 1, 7):
        expected = np.arange(batch * 12, (batch + 1) * 12)
        np.testing.assert_array_equal(whole_batch(rows, batch, hosts), expected)


@pytest.mark.parametrize("examples", [1, 2, 17, 1000])
def test_every_epoch_is_a_permutation(examples):
    order = ShuffledOrder(examples, seed=3)
    epochs = order(np.arange(4 * examples)).reshape(4, examples)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(examples), (4, 1)))
    if examples > 2:
        assert len({tuple(epoch) for epoch in epochs.tolist()}) == 4


def test_positions_can_be_asked_for_in_any_order():
    order = ShuffledOrder(10, seed=0)
    stream = order(np.arange(100))
    picks = np.random.default_rng(0).integers(0, 100, 300)
    np.testing.assert_array_equal(order(picks), stream[picks])
    again = pickle.loads(pickle.dumps(order))
    np.testing.assert_array_equal(again(picks), stream[picks])


def test_seeds_and_epochs_are_unrelated():
    """Seed 0's second epoch must not be seed 1's first."""
    first = [ShuffledOrder(50, seed)(np.arange(150)).reshape(3, 50) for seed in range(3)]
    assert len({tuple(epoch) for epochs in first for epoch in epochs.tolist()}) == 9


def test_the_order_stays_what_it_was():
    """A run that goes on with a later version of NumPy must not see other batches."""
    stream = ShuffledOrder(8, seed=0)(np.arange(16))
    assert stream.tolist() == [0, 3, 7, 5, 1, 2, 6, 4, 3, 7, 4, 2, 1, 6, 5, 0]


def test_positions_are_uniform():
    counts = np.zeros((6, 6))
    for seed in range(3000):
        counts[np.arange(6), ShuffledOrder(6, seed)(np.arange(6))] += 1
    # 500 expected in each cell, with a deviation of about 20.
    assert np.abs(counts - 500).max() < 5 * 21


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0,), "batch_size 0 and hosts 1"),
        ((8, 0, 0), "batch_size 8 and hosts 0"),
        ((8, 2, 2), "host must be from 0 to 1, got 2"),
        ((8, 0, 3), "multiple of the number of hosts, got 8 over 3"),
    ],
)
def test_rows_that_do_not_add_up(values, message):
    with pytest.raises(ValueError, match=message):
        Rows(*values)
