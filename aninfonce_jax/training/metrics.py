"""What a run writes down while it trains: metric rows, TensorBoard and W&B.

`metrics.jsonl` is the record that reports are made from; the rest is for watching. Rows
are written one call late: by then the device has finished them, so that logging never
makes it wait.
"""

import contextlib
import hashlib
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TextIO

import jax
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import finite

Value = jax.Array | np.ndarray | float | Sequence[float]
Measure = Callable[[], Mapping[str, float]]


class MetricWriter:
    """Writes rows of metrics.

    Rows go to `metrics.jsonl`, one JSON object a line: `step`, `split`, then the values,
    numbers or lists. It is strict JSON: what is not finite becomes null.

    Rows of steps that `resume_step` undoes are removed, so that the file of a resumed run
    equals that of one that was never interrupted. For this, call `flush` before a
    checkpoint is saved: a row that is still held back would be lost with the process.

    Args:
      workdir: the folder of the run.
      tensorboard: whether to write TensorBoard event files as well.
      wandb_project: the Weights & Biases project to log to; empty for none.
      wandb_config: what W&B shows as the run's configuration.
      resume_step: the step at which the run goes on; 0 starts anew.
      expected_rows: the rows that the checkpoint of that step holds; None if it holds none.
      writes: whether this process writes at all; of several only one does.

    Attributes:
      rows: all rows that are in the file.
      mended: what was wrong with the file and has been mended, in one line; "" if nothing was.
    """

    def __init__(
        self,
        workdir: pathlib.Path,
        *,
        tensorboard: bool = True,
        wandb_project: str = "",
        wandb_config: Mapping[str, Any] | None = None,
        resume_step: int = 0,
        expected_rows: Sequence[Mapping[str, Any]] | None = None,
        writes: bool = True,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.mended = ""
        self._pending: _Pending | None = None
        self._file: TextIO | None = None
        self._tensorboard: _TensorBoard | None = None
        self._wandb: Any = None
        if not writes:
            return
        workdir = pathlib.Path(workdir)
        if wandb_project:
            self._wandb = _start_wandb(workdir, wandb_project, wandb_config or {})
        path = workdir / workdir_lib.METRICS_FILE
        self.mended = workdir_lib.restore_metrics(workdir, resume_step, expected_rows)
        self.rows = workdir_lib.read_metrics(path) if path.exists() else []
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # of what is open, if the rest can't be opened
            # Line-buffered: every row is in the file before the next one begins.
            self._file = path.open("a", buffering=1, encoding="utf-8")
            if tensorboard:
                self._tensorboard = _TensorBoard(workdir, resume_step)
            stack.pop_all()

    def write(
        self,
        step: int,
        split: str,
        values: Mapping[str, Value],
        measure: Measure | None = None,
    ) -> None:
        """Takes a row, and writes the one before it.

        Args:
          step: the step that the values belong to.
          split: "train" or "eval".
          values: scalars and vectors, [n]; arrays may still be in computation.
          measure: returns further numbers; called once the values have been computed.
        """
        taken = {"step", "split"} & values.keys()
        if taken:
            raise ValueError(f"a metric can't be called {' or '.join(sorted(taken))}.")
        if self._file is None:
            return
        held = {name: _hold(value) for name, value in values.items()}
        previous, self._pending = self._pending, _Pending(int(step), split, held, measure)
        if previous is not None:
            self._emit(previous)
        self.poll()

    def poll(self) -> None:
        """Lets the row that is held back be measured, if its values are there; never waits.

        Call it often: what is measured may have to do with when they came.
        """
        if self._pending is not None:
            self._pending.poll()

    def flush(self) -> None:
        """Writes the row that is held back, waiting for the device if need be."""
        previous, self._pending = self._pending, None
        if previous is not None:
            self._emit(previous)
        if self._tensorboard is not None:
            self._tensorboard.flush()

    def close(self) -> None:
        """Flushes and closes all files; may be called twice."""
        if self._file is None:
            return
        # Each one is closed, whatever happens to the others: a disk may be full.
        with contextlib.ExitStack() as stack:
            if self._wandb is not None:
                stack.callback(self._wandb.finish)
            if self._tensorboard is not None:
                stack.callback(self._tensorboard.close)
            stack.callback(self._close_file)
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_file(self) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        file.close()

    def _emit(self, pending: "_Pending") -> None:
        assert self._file is not None
        step, split, numbers = pending.step, pending.split, pending.numbers()
        row = {"step": step, "split": split, **numbers}
        self._file.write(workdir_lib.encode_row(row))
        self.rows.append(row)
        if self._tensorboard is None and self._wandb is None:
            return
        scalars = {f"{split}/{name}": value for name, value in _scalars(numbers).items()}
        if self._tensorboard is not None:
            self._tensorboard.write(step, scalars)
        if self._wandb is not None:
            self._wandb.log(scalars, step=step)


class _Pending:
    """A row that is held back until its values are there."""

    def __init__(
        self, step: int, split: str, values: Mapping[str, Any], measure: Measure | None
    ) -> None:
        self.step = step
        self.split = split
        self._values = values
        self._measure = measure
        self._measured: Mapping[str, float] = {}

    def poll(self) -> None:
        arrays = [value for value in self._values.values() if isinstance(value, jax.Array)]
        if all(array.is_ready() for array in arrays):  # type: ignore[attr-defined]
            self._take()

    def numbers(self) -> dict[str, Any]:
        """Waits for the values, and returns them as JSON has them."""
        numbers = {name: np.asarray(value).tolist() for name, value in self._values.items()}
        self._take()
        return dict(finite(numbers | dict(self._measured)))

    def _take(self) -> None:
        if self._measure is not None:
            self._measured, self._measure = self._measure(), None


def _hold(value: Value) -> Any:
    """Returns a value that later changes can't reach, its way to the host begun."""
    if isinstance(value, jax.Array):
        value.copy_to_host_async()
        return value
    return np.array(value)


def _scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns one number per name; a vector's entries are name/0, name/1 and so on."""
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, list):
            flat |= _scalars({f"{name}/{i}": entry for i, entry in enumerate(value)})
        elif value is not None:
            flat[name] = value
    return flat


@contextlib.contextmanager
def _hide_torch() -> Iterator[None]:
    """Spares us the seconds that tensorboardX spends on importing PyTorch, if it is there."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail
    try:
        yield
    finally:
        del sys.modules["torch"]


class _TensorBoard:
    """An event file for TensorBoard, written by the thread that calls.

    tensorboardX's own SummaryWriter hands its events to a thread. When a write fails there, it
    prints a traceback and ends, and soon the run waits forever for its queue to get shorter.
    """

    def __init__(self, workdir: pathlib.Path, resume_step: int) -> None:
        with _hide_torch():
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.record_writer import RecordWriter
        self._events, self._summaries = event_pb2, summary_pb2
        folder = workdir / workdir_lib.TENSORBOARD_FOLDER
        is_resumed = folder.exists()
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        self._file = RecordWriter(str(folder / name))
        self._add(file_version="brain.Event:2")
        if is_resumed:
            # Tells TensorBoard to hide what an earlier attempt wrote beyond this step.
            session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(step=resume_step + 1 if resume_step > 0 else 0, session_log=session)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes numbers by their names."""
        value = self._summaries.Summary.Value
        values = [value(tag=name, simple_value=number) for name, number in scalars.items()]
        self._add(step=step, summary=self._summaries.Summary(value=values))

    def flush(self) -> None:
        """Writes to the disk what is still held back."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file, also where its last bytes can't be written."""
        self._file.close()

    def _add(self, **content: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **content)
        self._file.write(event.SerializeToString())


def _start_wandb(workdir: pathlib.Path, project: str, config: Mapping[str, Any]) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ImportError(
            f"logging to the W&B project {project!r} needs wandb: "
            "pip install aninfonce-jax[wandb], or leave wandb_project empty."
        ) from error
    # The same work directory is the same run, so that a resumed run goes on in its curves.
    run_id = hashlib.sha256(str(workdir.resolve()).encode()).hexdigest()[:16]
    return wandb.init(
        project=project,
        name=workdir.name,
        id=run_id,
        resume="allow",
        config=dict(config),
        dir=str(workdir),
    )
