"""What a run writes down while it trains: metric rows, TensorBoard and W&B.

`metrics.jsonl` is the record that reports are made from; the rest is for watching. Rows
are written one call late: by then the device has finished them, so that logging never
makes it wait.
"""

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import finite
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.training.event_file import EventFile

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
        workdir: AnyPath,
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
        self._file: workdir_lib.RowFile | None = None
        self._tensorboard: EventFile | None = None
        self._wandb: Any = None
        if not writes:
            return
        if wandb_project:
            self._wandb = _start_wandb(workdir, wandb_project, wandb_config or {})
        path = workdir / workdir_lib.METRICS_FILE
        self.mended = workdir_lib.restore_metrics(workdir, resume_step, expected_rows)
        self.rows = workdir_lib.read_metrics(path) if path.exists() else []
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # of what is open, if the rest can't be opened
            lines = [workdir_lib.encode_row(row) for row in self.rows]
            self._file = workdir_lib.open_rows(workdir, lines)
            if tensorboard:
                self._tensorboard = EventFile(workdir / workdir_lib.TENSORBOARD_FOLDER, resume_step)
            stack.pop_all()

    def write(
        self,
        step: int,
        split: workdir_lib.Split,
        values: Mapping[str, Value],
        measure: Measure | None = None,
    ) -> None:
        """Takes a row, and writes the one before it.

        Args:
          step: the step that the values belong to.
          split: of training, or of an evaluation.
          values: scalars and vectors, [n]; arrays may still be in computation.
          measure: returns further numbers; called once the values have been computed.
        """
        taken = workdir_lib.ROW_KEYS & values.keys()
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

        Call it often: a measurement, such as steps per second, may depend on when they came.
        """
        if self._pending is not None:
            self._pending.poll()

    def flush(self) -> None:
        """Writes the row that is held back, waiting for the device if need be."""
        previous, self._pending = self._pending, None
        if previous is not None:
            self._emit(previous)
        if self._file is not None:
            self._file.flush()
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
        row = workdir_lib.make_row(step, split, numbers)
        self._file.append(workdir_lib.encode_row(row))
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
        self,
        step: int,
        split: workdir_lib.Split,
        values: Mapping[str, Any],
        measure: Measure | None,
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


def _start_wandb(workdir: AnyPath, project: str, config: Mapping[str, Any]) -> Any:
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
        # wandb keeps its files on this machine, and can't write to a remote folder.
        dir=None if isinstance(workdir, RemotePath) else str(workdir),
    )
