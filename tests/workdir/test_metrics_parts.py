"""Rows of metrics in an object store: parts that are read as one file."""

import contextlib
import json
import math

import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.remote import RemoteError, locate
from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.workdir import WorkdirError, metrics_parts

FOLDER = "gs://bucket/run"


def row(step):
    return {"step": step, "split": "train", "loss": 1.0 / (step + 1)}


def lines(steps):
    return "".join(workdir_lib.encode_row(row(step)) for step in steps).encode()


def part_names(store):
    return sorted(name.split("/")[-1] for name in store.objects if "metrics" in name)


def read(folder):
    return workdir_lib.read_metrics(folder / workdir_lib.METRICS_FILE)


def test_any_order_of_rows_and_flushes_reads_as_one_file(fake_store):
    folder = locate(FOLDER)
    file = workdir_lib.open_rows(folder, [])
    assert read(folder) == []
    written = 0
    for step in range(300):
        file.append(workdir_lib.encode_row(row(step)))
        if step % 7 in (0, 3):
            file.flush()
            written = step + 1
        assert read(folder) == [row(step) for step in range(written)]
        assert len(part_names(fake_store)) <= math.log2(step + 1) + 2
    file.close()
    assert read(folder) == [row(step) for step in range(300)]


def test_a_row_is_not_written_again_and_again(fake_store, monkeypatch):
    sizes = []
    original = fake_store.pipe_file
    monkeypatch.setattr(
        fake_store,
        "pipe_file",
        lambda path, value: (sizes.append(len(value)), original(path, value)),
    )
    file = workdir_lib.open_rows(locate(FOLDER), [])
    for step in range(256):
        file.append(workdir_lib.encode_row(row(step)))
        file.flush()
    assert sum(sizes) <= len(lines(range(256))) * (math.log2(256) + 1)


def test_rows_are_written_without_a_flush_after_a_while(fake_store, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics_parts.time, "monotonic", lambda: now[0])
    folder = locate(FOLDER)
    file = workdir_lib.open_rows(folder, [])
    file.append(workdir_lib.encode_row(row(0)))
    assert read(folder) == []
    now[0] = 31.0
    file.append(workdir_lib.encode_row(row(1)))
    assert read(folder) == [row(0), row(1)]


@pytest.mark.parametrize("deaths", range(20))
def test_a_process_that_dies_between_any_two_requests_loses_no_row(fake_store, monkeypatch, deaths):
    """Whatever request is the last one: every row that was flushed before is there, once."""
    requests = [0]

    def count(original):
        def call(*arguments, **keywords):
            requests[0] += 1
            if requests[0] > 1 + deaths:
                raise TimeoutError
            return original(*arguments, **keywords)

        return call

    for name in ("pipe_file", "rm_file"):
        monkeypatch.setattr(fake_store, name, count(getattr(fake_store, name)))
    folder, safe = locate(FOLDER), 0
    file = workdir_lib.open_rows(folder, [])
    with contextlib.suppress(RemoteError):
        for step in range(40):
            file.append(workdir_lib.encode_row(row(step)))
            file.flush()
            safe = step + 1
    assert safe < 40
    found = read(folder)
    assert found == [row(step) for step in range(len(found))]
    assert len(found) in (safe, safe + 1)


@pytest.mark.parametrize("kind", ["local", "remote"])
class TestParts:
    """A folder that was downloaded from a store holds parts, too."""

    @pytest.fixture
    def folder(self, kind, fake_store, tmp_path):
        return tmp_path if kind == "local" else locate(FOLDER)

    def put(self, folder, **parts):
        for name, steps in parts.items():
            file = "metrics.jsonl" if name == "first" else f"metrics-{int(name[1:]):08d}.jsonl"
            (folder / file).write_bytes(lines(steps))

    def names(self, folder):
        return sorted(path.name for path in folder.iterdir())

    def test_they_are_read_in_order(self, folder):
        self.put(folder, first=range(4), p4=range(4, 6), p6=range(6, 7))
        assert read(folder) == [row(step) for step in range(7)]

    def test_what_was_swallowed_is_left_out(self, folder):
        self.put(folder, first=range(8), p4=range(4, 6), p6=range(6, 9))
        assert read(folder) == [row(step) for step in range(9)]

    def test_a_gap_is_told(self, folder):
        self.put(folder, first=range(4), p6=range(6, 7))
        with pytest.raises(
            WorkdirError, match="has 4 whole rows of metrics before metrics-00000006"
        ):
            read(folder)

    def test_a_run_that_goes_on_has_one_file(self, folder):
        self.put(folder, first=range(4), p4=range(4, 6), p6=range(6, 7))
        rows = [row(step) for step in range(6)]
        assert workdir_lib.restore_metrics(folder, 5, rows) == ""
        assert self.names(folder) == ["metrics.jsonl"]
        assert read(folder) == rows

    def test_a_gap_is_mended_from_the_checkpoint(self, folder):
        self.put(folder, first=range(4), p6=range(6, 7))
        rows = [row(step) for step in range(7)]
        problem = workdir_lib.restore_metrics(folder, 6, rows)
        assert "before metrics-00000006.jsonl" in problem
        assert problem.endswith("written again from the checkpoint of step 6")
        assert self.names(folder) == ["metrics.jsonl", "metrics.jsonl.damaged"]
        assert read(folder) == rows

    def test_a_gap_without_a_checkpoint_that_knows_is_an_error(self, folder):
        self.put(folder, first=range(4), p6=range(6, 7))
        with pytest.raises(WorkdirError, match="before metrics-00000006"):
            workdir_lib.restore_metrics(folder, 6, None)

    def test_a_run_that_begins_anew_has_no_parts(self, folder):
        self.put(folder, p6=range(6, 7))
        assert workdir_lib.restore_metrics(folder, 0, None) == ""
        assert self.names(folder) == []

    def test_a_resumed_writer_ends_like_one_that_was_never_interrupted(self, folder):
        for name, until in (("whole", 9), ("cut", 6)):
            (folder / name).mkdir()
            with MetricWriter(folder / name, tensorboard=False) as writer:
                for step in range(until):
                    writer.write(step, "train", {"loss": step / 3})
                    writer.flush()
        expected = read(folder / "whole")
        with MetricWriter(
            folder / "cut", tensorboard=False, resume_step=3, expected_rows=expected[:4]
        ) as writer:
            assert writer.mended == ""
            for step in range(4, 9):
                writer.write(step, "train", {"loss": step / 3})
        assert read(folder / "cut") == writer.rows == expected


def test_event_files_reach_the_store(fake_store):
    folder = locate(FOLDER)
    with MetricWriter(folder) as writer:
        writer.write(1, "train", {"loss": 2.0})
    (name,) = [name for name in fake_store.objects if "/tensorboard/" in name]
    assert b"train/loss" in fake_store.objects[name]
    assert json.loads(fake_store.objects["bucket/run/metrics.jsonl"])["loss"] == 2.0
    with MetricWriter(folder, resume_step=1) as writer:
        writer.write(2, "train", {"loss": 1.0})
    assert sum("/tensorboard/" in name for name in fake_store.objects) in (1, 2)


def test_a_long_event_file_is_followed_by_another(fake_store, monkeypatch):
    from aninfonce_jax.training import event_file

    monkeypatch.setattr(event_file, "_COPY_SECONDS", 0.0)
    monkeypatch.setattr(event_file, "_COPY_BYTES", 100)
    with MetricWriter(locate(FOLDER)) as writer:
        for step in range(20):
            writer.write(step, "train", {"loss": 2.0})
            writer.flush()
    contents = [content for name, content in fake_store.objects.items() if "/tensorboard/" in name]
    assert len(contents) > 5
    assert sum(content.count(b"train/loss") for content in contents) == 20
    assert all(len(content) < 400 for content in contents)
