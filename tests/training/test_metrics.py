"""Metric rows say what was measured when; a killed or resumed run leaves no trace in them."""

import contextlib
import gc
import io
import json
import pathlib
import struct
import subprocess
import sys
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.workdir import read_metrics


def rows_of(workdir: pathlib.Path) -> list[dict]:
    return read_metrics(workdir / "metrics.jsonl")


def write_steps(workdir, steps, **kwargs):
    workdir.mkdir(exist_ok=True)
    with MetricWriter(workdir, tensorboard=False, **kwargs) as writer:
        for step in steps:
            writer.write(step, "train", {"loss": jnp.float32(1 / (step + 1))})
            if step % 4 == 0:
                writer.write(step, "eval", {"r2": 0.01 * step, "factors": [0.5, step]})


def test_rows_hold_scalars_and_lists(tmp_path):
    with MetricWriter(tmp_path, tensorboard=False) as writer:
        writer.write(
            5,
            "train",
            {
                "loss": jnp.float32(0.5),
                "half": jnp.array([1.5, 2.0], jnp.bfloat16),
                "count": jnp.int32(3),
                "done": True,
                "python": 0.1,
                "list": [1.0, 2.5],
                "numpy": np.array([[1, 2], [3, 4]]),
                "unknown": None,
            },
        )
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert line == (
        '{"step": 5, "split": "train", "loss": 0.5, "half": [1.5, 2.0], "count": 3, "done": true, '
        '"python": 0.1, "list": [1.0, 2.5], "numpy": [[1, 2], [3, 4]], "unknown": null}'
    )


def test_what_is_not_finite_becomes_null(tmp_path):
    with MetricWriter(tmp_path, tensorboard=False) as writer:
        values = jnp.array([1.0, jnp.nan, -jnp.inf])
        writer.write(1, "eval", {"vector": values, "scalar": float("nan")})
    text = (tmp_path / "metrics.jsonl").read_text()

    def refuse(name):
        raise AssertionError(f"{name} is not strict JSON")

    row = json.loads(text, parse_constant=refuse)
    assert row == {"step": 1, "split": "eval", "vector": [1.0, None, None], "scalar": None}


@given(st.lists(st.floats(width=32) | st.integers(-(2**31), 2**31 - 1) | st.booleans(), max_size=4))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_any_numbers_survive(tmp_path_factory, numbers):
    workdir = tmp_path_factory.mktemp("run")
    with MetricWriter(workdir, tensorboard=False) as writer:
        writer.write(0, "train", {f"x{i}": number for i, number in enumerate(numbers)})
    (row,) = rows_of(workdir)
    for i, number in enumerate(numbers):
        expected = number if np.isfinite(number) else None
        assert row[f"x{i}"] == expected
        assert type(row[f"x{i}"]) is type(expected)


def test_rows_are_written_one_call_late_with_the_step_they_were_given(tmp_path):
    with MetricWriter(tmp_path, tensorboard=False) as writer:
        values = {"loss": jnp.float32(1)}
        factors = np.array([1.0, 2.0])
        writer.write(10, "train", values | {"factors": factors})
        assert rows_of(tmp_path) == []
        values["loss"] = jnp.float32(99)
        factors[:] = 99
        writer.write(10, "eval", {"r2": 0.5})
        first = {"step": 10, "split": "train", "loss": 1.0, "factors": [1.0, 2.0]}
        assert rows_of(tmp_path) == [first]
        writer.flush()
        second = {"step": 10, "split": "eval", "r2": 0.5}
        assert rows_of(tmp_path) == [first, second]
        writer.flush()
        writer.write(20, "train", {"loss": 0.25})
        assert rows_of(tmp_path) == [first, second]
    assert rows_of(tmp_path) == [first, second, {"step": 20, "split": "train", "loss": 0.25}]
    writer.close()


def test_a_write_does_not_wait_for_its_own_values(tmp_path, monkeypatch):
    """Only the row before is brought to the host."""
    fetched = []
    original = np.asarray

    def spy(value, *args, **kwargs):
        if isinstance(value, jax.Array):
            fetched.append(float(original(value)))
        return original(value, *args, **kwargs)

    monkeypatch.setattr("aninfonce_jax.training.metrics.np.asarray", spy)
    with MetricWriter(tmp_path, tensorboard=False) as writer:
        writer.write(1, "train", {"loss": jnp.float32(1)})
        assert fetched == []
        writer.write(2, "train", {"loss": jnp.float32(2)})
        assert fetched == [1.0]
    assert fetched == [1.0, 2.0]


@pytest.mark.parametrize("name", ["step", "split"])
def test_names_of_the_row_itself_are_refused(tmp_path, name):
    with (
        MetricWriter(tmp_path, tensorboard=False) as writer,
        pytest.raises(ValueError, match=f"a metric can't be called {name}"),
    ):
        writer.write(1, "train", {name: 1.0})


@pytest.mark.parametrize("resume_step", [1, 3, 4, 7, 10])
def test_a_resumed_run_leaves_the_file_of_an_uninterrupted_one(tmp_path, resume_step):
    write_steps(tmp_path / "whole", range(12))
    write_steps(tmp_path / "resumed", range(11))
    write_steps(tmp_path / "resumed", range(resume_step + 1, 12), resume_step=resume_step)
    whole, resumed = (tmp_path / name / "metrics.jsonl" for name in ("whole", "resumed"))
    assert resumed.read_bytes() == whole.read_bytes()
    assert [path.name for path in (tmp_path / "resumed").iterdir()] == ["metrics.jsonl"]


def test_a_resume_takes_the_rows_of_the_checkpoint_over_those_of_the_file(tmp_path):
    write_steps(tmp_path / "whole", range(12))
    (tmp_path / "resumed").mkdir()
    with MetricWriter(tmp_path / "resumed", tensorboard=False) as writer:
        for step in range(7):
            writer.write(step, "train", {"loss": 0.0})
    rows = [row for row in rows_of(tmp_path / "whole") if row["step"] <= 6]
    with MetricWriter(
        tmp_path / "resumed", tensorboard=False, resume_step=6, expected_rows=rows
    ) as writer:
        assert writer.rows == rows
        assert "is not the one that this run wrote" in writer.mended
    write_steps(tmp_path / "resumed", range(7, 12), resume_step=6, expected_rows=rows)
    whole, resumed = (tmp_path / name / "metrics.jsonl" for name in ("whole", "resumed"))
    assert resumed.read_bytes() == whole.read_bytes()


def test_a_fresh_start_drops_what_an_earlier_attempt_left(tmp_path):
    write_steps(tmp_path, range(3))
    write_steps(tmp_path, [0], resume_step=0)
    assert [(row["step"], row["split"]) for row in rows_of(tmp_path)] == [(0, "train"), (0, "eval")]


def test_a_cut_last_line_is_repaired_wherever_it_was_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = ['{"step": 1, "split": "train", "λ": 1.5}\n', '{"step": 2, "split": "train"}\n']
    whole = "".join(lines).encode()
    first = len(lines[0].encode())
    for cut in range(first, len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = 2 if cut >= len(whole) - 1 else 1  # only the newline may be missing
        assert len(read_metrics(path)) == complete
        MetricWriter(tmp_path, tensorboard=False, resume_step=5).close()
        assert path.read_bytes().endswith(b"}\n")
        assert rows_of(tmp_path) == list(map(json.loads, lines[:complete]))
    path.write_bytes(whole[: first - 8])
    assert read_metrics(path) == []
    path.write_bytes("λ".encode()[:1])
    assert read_metrics(path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 1, "loss"', r"metrics.jsonl, line 2: not valid JSON \("),
        ("", r"line 2: not valid JSON"),
        ("[1, 2]", r"line 2: expected an object with an integer step"),
        ('{"split": "train"}', r"line 2: expected an object with an integer step"),
    ],
)
def test_damage_elsewhere_is_an_error_with_its_place(tmp_path, line, message):
    path = tmp_path / "metrics.jsonl"
    content = f'{{"step": 0}}\n{line}\n{{"step": 2}}\n'
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_metrics(path)
    with pytest.raises(ValueError, match=message):
        MetricWriter(tmp_path, tensorboard=False, resume_step=5)
    assert path.read_text() == content


def test_other_processes_write_nothing(tmp_path):
    with MetricWriter(tmp_path / "run", writes=False) as writer:
        writer.write(1, "train", {"loss": 1.0})
        writer.flush()
    assert not (tmp_path / "run").exists()


def read_events(folder: pathlib.Path) -> list:
    """Parses TensorBoard's record files: length, its checksum, an Event, its checksum."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    def masked(data: bytes) -> int:
        crc = crc32c(data)
        return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    events = []
    for path in sorted(folder.iterdir()):
        data = io.BytesIO(path.read_bytes())
        while header := data.read(8):
            (length,) = struct.unpack("<Q", header)
            assert struct.unpack("<I", data.read(4))[0] == masked(header)
            body = data.read(length)
            assert struct.unpack("<I", data.read(4))[0] == masked(body)
            events.append(Event.FromString(body))
    return events


def scalars_of(events) -> dict[tuple[str, int], float]:
    return {
        (value.tag, event.step): value.simple_value
        for event in events
        for value in event.summary.value
    }


def test_tensorboard_gets_the_same_scalars(tmp_path):
    with MetricWriter(tmp_path) as writer:
        writer.write(1, "train", {"loss": jnp.float32(0.5), "unknown": None})
        writer.write(2, "eval", {"factors": jnp.array([0.25, 0.75])})
    events = read_events(tmp_path / "tensorboard")
    assert scalars_of(events) == {
        ("train/loss", 1): 0.5,
        ("eval/factors/0", 2): 0.25,
        ("eval/factors/1", 2): 0.75,
    }
    assert not any(event.HasField("session_log") for event in events)


def test_tensorboard_hides_the_steps_that_a_resume_undoes(tmp_path):
    for resume_step in (0, 4):
        with MetricWriter(tmp_path, resume_step=resume_step) as writer:
            writer.write(resume_step + 1, "train", {"loss": 1.0})
    starts = [e.step for e in read_events(tmp_path / "tensorboard") if e.HasField("session_log")]
    assert starts == [5]


@pytest.mark.parametrize("target", ["metrics.jsonl", "tensorboard"])
def test_a_full_disk_is_raised_at_once_and_leaves_nothing_open(tmp_path, monkeypatch, target):
    from tensorboardX import record_writer

    opened = pathlib.Path.open if target == "metrics.jsonl" else open
    place = pathlib.Path if target == "metrics.jsonl" else record_writer

    def open_full(path, *args, **kwargs):
        is_meant = target in str(path) and args[0] in ("a", "wb")
        return opened(pathlib.Path("/dev/full") if is_meant else path, *args, **kwargs)

    monkeypatch.setattr(place, "open", open_full, raising=False)
    threads = threading.active_count()
    writer = MetricWriter(tmp_path)
    assert threading.active_count() == threads
    for step in range(50):  # a queue in between would be full by now, and wait
        with contextlib.suppress(OSError):
            writer.write(step, "train", {"loss": 1.0})
    with pytest.raises(OSError, match="No space left on device"):
        writer.close()
    gc.collect()
    writer.close()


def test_no_heavy_framework_is_imported(tmp_path):
    code = (
        "import sys, pathlib, aninfonce_jax.training.metrics as m\n"
        "m.MetricWriter(pathlib.Path(sys.argv[1])).close()\n"
        "loaded = {'tensorflow', 'torch', 'wandb', 'orbax'} & sys.modules.keys()\n"
        "assert 'tensorboardX' in sys.modules and not loaded, loaded\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def test_missing_wandb_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"'my-project' needs wandb: pip install aninfonce-jax"):
        MetricWriter(tmp_path, wandb_project="my-project")


def test_wandb_gets_the_rows_and_one_identity_per_workdir(tmp_path, monkeypatch):
    started, logged, finished = [], [], []
    run = types.SimpleNamespace(
        log=lambda values, step: logged.append((step, values)),
        finish=lambda: finished.append(True),
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **kwargs: started.append(kwargs) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for workdir, resume_step in (("a", 0), ("a", 1), ("b", 0)):
        with MetricWriter(
            tmp_path / workdir,
            tensorboard=False,
            wandb_project="project",
            wandb_config={"seed": 1},
            resume_step=resume_step,
        ) as writer:
            writer.write(resume_step + 1, "eval", {"r2": [0.5, 0.25]})
    assert logged[0] == (1, {"eval/r2/0": 0.5, "eval/r2/1": 0.25})
    assert (len(logged), len(finished)) == (3, 3)
    assert started[0] == started[1]
    assert started[0]["id"] != started[2]["id"]
    assert (started[0]["project"], started[0]["config"]) == ("project", {"seed": 1})
