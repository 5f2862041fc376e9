import threading
import time

import jax
import numpy as np
import pytest

from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.data.prefetch import Prefetch
from aninfonce_jax.placement import Placement


def test_batches_come_in_order_and_the_position_counts_what_was_handed_out():
    pulled = []

    def numbers():
        for number in range(10):
            pulled.append(number)
            yield number

    with Prefetch(numbers(), lambda number: -number, depth=2, start=7) as batches:
        deadline = time.monotonic() + 60
        while len(pulled) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        # Two are ready and a third waits for room.
        assert pulled == [0, 1, 2]
        assert batches.position == 7
        assert [next(batches) for _ in range(4)] == [0, -1, -2, -3]
        assert batches.position == 11
        assert list(batches) == [-4, -5, -6, -7, -8, -9]
        assert batches.position == 17
        with pytest.raises(StopIteration):
            next(batches)


def test_what_goes_wrong_is_raised_after_the_good_batches():
    def numbers():
        yield 1
        yield 2
        raise OSError("the disk is gone")

    with Prefetch(numbers(), lambda number: number) as batches:
        assert [next(batches), next(batches)] == [1, 2]
        for _ in range(2):
            with pytest.raises(OSError, match="the disk is gone"):
                next(batches)
        assert batches.position == 2


def test_closing_ends_the_thread_though_nobody_reads():
    before = threading.active_count()
    batches = Prefetch(iter(int, 1), lambda number: number)
    next(batches)
    batches.close()
    assert threading.active_count() == before
    assert list(batches) == []


def test_images_arrive_on_the_devices_as_bytes():
    placement = Placement.local()
    rng = np.random.default_rng(0)
    host = [
        ImageBatch(
            image=rng.integers(0, 256, (16, 4, 4, 3), np.uint8),
            label=np.arange(16, dtype=np.int32),
            index=np.arange(16, dtype=np.int32),
            mask=np.ones(16, bool),
        )
        for _ in range(3)
    ]
    with Prefetch(host, placement.put_rows) as batches, jax.transfer_guard("disallow"):
        device = list(batches)
    for batch, expected in zip(device, host, strict=True):
        assert batch.image.dtype == np.uint8
        assert batch.image.sharding.is_equivalent_to(placement.split, 4)
        np.testing.assert_array_equal(batch.image, expected.image)
        np.testing.assert_array_equal(batch.mask, expected.mask)


def test_a_depth_of_nothing_is_refused():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        Prefetch([], lambda batch: batch, depth=0)
