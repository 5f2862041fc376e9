import collections
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from image_files import encode, random_image, write_folder

from aninfonce_jax.data import pipeline
from aninfonce_jax.data.datasets import ImageFolder
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import Loading, evaluation_batches, training_batches
from aninfonce_jax.data.source import DataError, Subset
from aninfonce_jax.placement import Rows

DECODER = Decoder(8)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """23 images: no batch size divides it."""
    root = tmp_path_factory.mktemp("images")
    write_folder(root, {"train": {"a": 9, "b": 8, "c": 6}})
    return ImageFolder(root, "train")


@pytest.fixture
def damaged(tmp_path):
    """40 images, of which 5, 6 and 30 can't be read."""
    write_folder(tmp_path, {"train": {"a": 10, "b": 30}})
    source = ImageFolder(tmp_path, "train")
    for index, data in ((5, b""), (6, b"not an image"), (30, encode(random_image(16, 16))[:-40])):
        (tmp_path / source[index].id).write_bytes(data)
    return source


def take(batches, count):
    with batches:
        return [next(batches) for _ in range(count)]


def assert_same(batches, others):
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        for name in ("image", "label", "index", "mask"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(other, name))


def test_a_batch_holds_the_examples_it_names(source):
    batch = take(training_batches(source, DECODER, Rows(6), seed=0), 1)[0]
    assert batch.image.shape == (6, 8, 8, 3)
    assert [x.dtype for x in (batch.image, batch.label, batch.index, batch.mask)] == [
        np.uint8,
        np.int32,
        np.int32,
        bool,
    ]
    for row, index in enumerate(batch.index):
        np.testing.assert_array_equal(batch.image[row], DECODER(source[index].image))
        assert batch.label[row] == source[index].label
    assert batch.mask.all()


def test_every_position_restores_exactly(source):
    whole = take(training_batches(source, DECODER, Rows(6), seed=1), 14)
    for start in range(14):
        rest = take(training_batches(source, DECODER, Rows(6), seed=1, start=start), 14 - start)
        assert_same(rest, whole[start:])


def test_the_position_is_that_of_the_next_batch(source):
    with training_batches(source, DECODER, Rows(6), seed=1, start=3) as batches:
        assert batches.position == 3
        for expected in (4, 5, 6):
            next(batches)
            assert batches.position == expected


@pytest.mark.parametrize("hosts", [1, 2, 3, 6])
def test_no_example_is_lost_or_repeated_on_any_number_of_hosts(source, hosts):
    """23 batches of 6 are exactly 6 epochs; together the hosts see what one alone sees."""
    streams = [
        take(training_batches(source, DECODER, Rows(6, host, hosts), seed=2), 23)
        for host in range(hosts)
    ]
    joined = [
        np.concatenate([batch.index for batch in batches]) for batches in zip(*streams, strict=True)
    ]
    epochs = np.concatenate(joined).reshape(6, 23)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(23), (6, 1)))
    alone = take(training_batches(source, DECODER, Rows(6), seed=2), 23)
    np.testing.assert_array_equal(joined, [batch.index for batch in alone])


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (4, 1), (2, 5)])
def test_threads_change_nothing(source, threads, ahead):
    loading = Loading(threads=threads, ahead=ahead)
    batches = training_batches(source, DECODER, Rows(6), seed=3, loading=loading)
    assert_same(take(batches, 10), take(training_batches(source, DECODER, Rows(6), seed=3), 10))


class Watched(Subset):
    """A source that calls `on_read` with the index of what is read."""

    def __init__(self, source, on_read):
        super().__init__(source, np.arange(len(source)))
        self.on_read = on_read

    def __getitem__(self, index):
        self.on_read(index)
        return super().__getitem__(index)


def test_threads_share_the_rows_of_a_batch(source):
    together = threading.Barrier(3)

    def meet(index):
        if index < 6:
            # Fails unless three rows of the first batch are read at the same time.
            together.wait(timeout=60)

    loading = Loading(threads=3, ahead=1)
    batches = evaluation_batches(Watched(source, meet), DECODER, Rows(6), loading=loading)
    assert take(batches, 1)[0].index.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("threads", [1, 8])
def test_threads_do_not_add_to_the_batches_held(source, threads):
    read = []
    loading = Loading(threads=threads, ahead=2)
    watched = Watched(source, read.append)
    with evaluation_batches(watched, DECODER, Rows(2), loading=loading) as batches:
        for taken in range(1, 5):
            next(batches)
            # The batches handed out, and the two ahead of them.
            rows = 2 * (taken + 2)
            wait_until(lambda rows=rows: len(read) >= rows)
            assert sorted(read) == list(range(rows))


def test_worker_processes_change_nothing(damaged):
    """One worker from the start, two from a position; images that can't be read are told."""
    allowed = Loading(max_bad_share=0.5)
    with training_batches(damaged, DECODER, Rows(8), seed=4, loading=allowed) as batches:
        whole = [next(batches) for _ in range(11)]
        unreadable = batches.unreadable
    for workers, start in ((1, 0), (2, 5)):
        loading = Loading(workers=workers, max_bad_share=0.5)
        with training_batches(
            damaged, DECODER, Rows(8), seed=4, start=start, loading=loading
        ) as batches:
            # One of each worker, which is set up then.
            first = [next(batches) for _ in range(workers)]
            # As a scheduler does, which means the main process.
            signal_workers(signal.SIGTERM)
            rest = [next(batches) for _ in range(11 - start - workers)]
            assert_same([*first, *rest], whole[start:])
            assert batches.unreadable == unreadable
            signal_workers(signal.SIGKILL)
            with pytest.raises(DataError, match="a process that loads images was ended"):
                collections.deque(batches, maxlen=0)


def signal_workers(number):
    for child in multiprocessing.active_children():
        os.kill(child.pid, number)


KILLED = """
import multiprocessing, pathlib, sys, time
from aninfonce_jax.data.datasets import ImageFolder
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.placement import Rows
from aninfonce_jax.data.pipeline import Loading, training_batches

if __name__ == "__main__":
    source = ImageFolder(pathlib.Path(sys.argv[1]), "train")
    batches = training_batches(source, Decoder(8), Rows(4), seed=0, loading=Loading(workers=1))
    next(batches)
    print(multiprocessing.active_children()[0].pid, flush=True)
    time.sleep(600)
"""


def test_workers_end_with_a_killed_parent(source, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    root = Path(pipeline.__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen(
        [sys.executable, script, source._root.parent],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    worker = int(parent.stdout.readline())
    assert is_running(worker)
    parent.kill()
    parent.communicate()
    wait_until(lambda: not is_running(worker))


def wait_until(happened):
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process):
    try:
        # A zombie that nobody has waited for has ended, too.
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_kept_batch_holds_no_shared_memory(source):
    with evaluation_batches(source, DECODER, Rows(12), loading=Loading(workers=1)) as batches:
        kept = list(batches)
    assert all(type(batch.image) is np.ndarray and batch.image.base is None for batch in kept)
    assert_same(kept, list(evaluation_batches(source, DECODER, Rows(12))))


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [4, 8, 24, 32])
def test_evaluation_counts_each_example_once(source, hosts, batch_size):
    seen = collections.Counter()
    lengths = set()
    for host in range(hosts):
        with evaluation_batches(source, DECODER, Rows(batch_size, host, hosts)) as batches:
            got = list(batches)
        lengths.add(len(got))
        for batch in got:
            assert batch.image.shape[0] == batch_size // hosts
            seen.update(batch.index[batch.mask].tolist())
            padding = ~batch.mask
            assert (batch.index[padding] == -1).all()
            assert (batch.label[padding] == -1).all()
            assert not batch.image[padding].any()
    assert seen == dict.fromkeys(range(23), 1)
    # A host that ran out early would leave the others waiting in a collective.
    assert lengths == {-(-23 // batch_size)}


def test_evaluation_restores_at_every_position(source):
    with evaluation_batches(source, DECODER, Rows(4)) as batches:
        whole = list(batches)
        assert len(batches) == 6
    for start in range(7):
        with evaluation_batches(source, DECODER, Rows(4), start=start) as batches:
            assert_same(list(batches), whole[start:])


def test_unreadable_examples_are_replaced_and_told(damaged):
    loading = Loading(max_bad_share=0.1)
    with training_batches(damaged, DECODER, Rows(8), seed=0, loading=loading) as batches:
        got = [next(batches) for _ in range(10)]
    assert set(batches.unreadable) == {5, 6, 30}
    assert "train/a/6.JPEG: not a readable image" in batches.unreadable[6]
    indices = np.concatenate([batch.index for batch in got])
    assert not {5, 6, 30} & set(indices.tolist())
    assert all(batch.mask.all() for batch in got)
    # Two epochs: those that can be read are all there, some of them as stand-ins too.
    counts = np.bincount(indices, minlength=40)
    assert counts.sum() == 80
    assert (np.delete(counts, [5, 6, 30]) >= 2).all()


def test_unreadable_examples_are_masked_in_an_evaluation(damaged):
    loading = Loading(max_bad_share=0.1)
    with evaluation_batches(damaged, DECODER, Rows(16), loading=loading) as batches:
        got = list(batches)
    counted = np.concatenate([batch.index[batch.mask] for batch in got])
    assert counted.tolist() == [index for index in range(40) if index not in (5, 6, 30)]
    assert set(batches.unreadable) == {5, 6, 30}


def test_too_many_unreadable_examples_are_fatal(damaged):
    loading = Loading(max_bad_share=0.05)
    with (
        evaluation_batches(damaged, DECODER, Rows(8), loading=loading) as batches,
        pytest.raises(
            DataError,
            match=r"3 of 40 images can't be read, more than a share of 0.05; the last was "
            r"train/b/27.JPEG: .*Premature end.*; fetch the data again, or raise max_bad_share",
        ),
    ):
        list(batches)


def test_one_unreadable_image_is_not_too_many_of_a_few(damaged):
    """Of 8 examples, one is more than a share of 0.01, which nobody means by it."""
    one, two = (Subset(damaged, indices) for indices in (np.arange(8) + 6, np.arange(8)))
    with evaluation_batches(one, DECODER, Rows(4)) as batches:
        assert sum(batch.mask.sum() for batch in batches) == 7
    for few, share in ((one, 0), (two, 0.01)):
        loading = Loading(max_bad_share=share)
        with (
            evaluation_batches(few, DECODER, Rows(4), loading=loading) as batches,
            pytest.raises(DataError, match=f"of 8 images .* more than a share of {share:g};"),
        ):
            list(batches)


def test_a_data_set_that_went_away_is_fatal_at_once(tmp_path):
    write_folder(tmp_path, {"train": {"a": 30}})
    source = ImageFolder(tmp_path, "train")
    (tmp_path / "train").rename(tmp_path / "gone")
    loading = Loading(max_bad_share=1)
    with (
        training_batches(source, DECODER, Rows(4), seed=0, loading=loading) as batches,
        pytest.raises(DataError, match=r"21 images in a row can't be read, the last was .*No such"),
    ):
        next(batches)


def test_what_can_not_work_is_refused(source, monkeypatch):
    with pytest.raises(DataError, match="at least one batch of 24, got 23 examples; lower"):
        training_batches(source, DECODER, Rows(24), seed=0)
    with pytest.raises(ValueError, match="start must be from 0 to 6 batches, got 7"):
        evaluation_batches(source, DECODER, Rows(4), start=7)
    with pytest.raises(ValueError, match="workers must be at least 0"):
        Loading(workers=-1)
    with pytest.raises(ValueError, match="max_bad_share must be from 0 to 1, got 2"):
        Loading(max_bad_share=2)
    usage = collections.namedtuple("usage", "free")
    monkeypatch.setattr(pipeline.shutil, "disk_usage", lambda path: usage(2**20))
    with pytest.raises(DataError, match=r"must have 18 MiB free for 4 workers, got 1; enlarge"):
        training_batches(source, Decoder(256), Rows(6), seed=0, loading=Loading(workers=4))


def test_a_closed_stream_has_ended(source):
    before = loading_threads()
    batches = training_batches(source, DECODER, Rows(6), seed=0)
    next(batches)
    assert loading_threads() - before
    batches.close()
    batches.close()
    assert list(batches) == []
    wait_until(lambda: not loading_threads() - before)


def loading_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("load")}
