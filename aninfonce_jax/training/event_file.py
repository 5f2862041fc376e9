"""Event files for TensorBoard, written by the thread that calls, in a local or remote folder."""

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aninfonce_jax.remote import AnyPath, RemotePath

# Between two copies to a remote folder.
_COPY_SECONDS = 60.0
# A copy is always of the whole file: beyond this many bytes the next one begins.
_COPY_BYTES = 2**22


class EventFile:
    """What TensorBoard reads.

    tensorboardX's own SummaryWriter hands its events to a thread. When a write fails there, it
    prints a traceback and ends, and soon the run waits forever for its queue to get shorter.

    Where the folder is remote, the file is written on this machine and copied whole, once a
    minute and at the end: TensorBoard sees the run up to a minute late, and a killed process
    loses the curves, though not the metrics, of its last minute.

    Args:
      folder: where TensorBoard looks.
      resume_step: the step at which the run goes on.
    """

    def __init__(self, folder: AnyPath, resume_step: int) -> None:
        with _hide_torch():
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.record_writer import RecordWriter
        self._events, self._summaries, self._open = event_pb2, summary_pb2, RecordWriter
        is_resumed = folder.exists()
        self._resources = contextlib.ExitStack()
        self._target: RemotePath | None = None
        if isinstance(folder, RemotePath):
            made = tempfile.TemporaryDirectory(prefix="aninfonce_jax-")
            self._target, self._folder = folder, Path(self._resources.enter_context(made))
        else:
            folder.mkdir(exist_ok=True)
            self._folder = folder
        self._name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        self._count = 0
        self._begin()
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
        if self._target is not None and time.monotonic() - self._copied >= _COPY_SECONDS:
            self._copy()
            if self._path.stat().st_size > _COPY_BYTES:
                self._file.close()
                self._path.unlink()
                self._begin()

    def close(self) -> None:
        """Closes the file, also where its last bytes can't be written."""
        with self._resources:
            self._file.close()
            self._copy()

    def _begin(self) -> None:
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"{self._name}.{self._count:06d}" if self._target is not None else self._name
        self._count += 1
        self._path = self._folder / name
        self._file = self._open(str(self._path))
        self._copied = time.monotonic()
        self._add(file_version="brain.Event:2")

    def _copy(self) -> None:
        if self._target is not None:
            (self._target / self._path.name).write_bytes(self._path.read_bytes())
            self._copied = time.monotonic()

    def _add(self, **content: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **content)
        self._file.write(event.SerializeToString())


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
