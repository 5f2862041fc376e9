"""A trace of some training steps, for TensorBoard and Perfetto."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Self

import jax

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.types import PyTree

# A program that was compiled and kept before its parts had these names would be traced without.
_NAMES_COUNT = "jax_compilation_cache_include_metadata_in_key"


class Profile:
    """Traces the steps from `start` to `stop`, or those of them that a session takes.

    Calls to the device end at both, so that these steps are traced and no others. The device is
    waited for at both, and nowhere else. Use it in `with`: a trace that is under way when the
    run is stopped is written, too.

    Args:
      steps: start and stop, in steps done; None: nothing is traced.
      last: the step at which the run ends.
      workdir: of the run.
      say: takes a line for the user.
      is_first: whether this process traces; of several only one does, but all are given the
        same steps.

    Raises:
      ConfigError: if the run has no such steps, or its folder can't hold a trace.
    """

    def __init__(
        self,
        steps: tuple[int, int] | None,
        *,
        last: int,
        workdir: AnyPath,
        say: Callable[[str], None],
        is_first: bool = True,
    ) -> None:
        self._steps = steps if is_first else None
        # In every process: those whose calls do not end together wait for each other for ever.
        self._edges = steps or ()
        self._say = say
        self._folder = workdir / workdir_lib.PROFILE_FOLDER
        self._began: int | None = None
        self._step = 0
        self._end = contextlib.ExitStack()
        if steps is None:
            return
        if not 0 <= steps[0] < steps[1] <= last:
            raise ConfigError(
                f"--profile={steps[0]}:{steps[1]} must name steps of the run, which ends at "
                f"{last}: 0 <= START < STOP <= {last}"
            )
        if not isinstance(workdir, Path):
            raise ConfigError(f"--profile writes into a local --workdir only, got {workdir}")

    def limit(self, step: int, following: int) -> int:
        """Returns up to which step a call may go that begins at `step`."""
        return min([following, *(edge for edge in self._edges if edge > step)])

    def before(self, step: int, state: PyTree) -> None:
        """Begins the trace, if this step is its first."""
        if self._steps is None or self._began is not None or step < self._steps[0]:
            return
        if step >= self._steps[1]:
            start, stop = self._steps
            self._say(f"no profile: steps {start} to {stop} are done, the run stands at {step}")
            self._steps = None
            return
        jax.block_until_ready(state)
        jax.profiler.start_trace(str(self._folder))
        self._began = step

    def after(self, step: int, state: PyTree) -> None:
        """Writes the trace, if it ends at this step."""
        self._step = step
        if self._steps is not None and self._began is not None and step >= self._steps[1]:
            jax.block_until_ready(state)
            self._write()

    def __enter__(self) -> Self:
        if self._steps is not None:
            before = getattr(jax.config, _NAMES_COUNT)
            self._end.callback(jax.config.update, _NAMES_COUNT, before)
            jax.config.update(_NAMES_COUNT, True)
        return self

    def __exit__(self, *_: object) -> None:
        with self._end:
            if self._began is not None:
                self._write()

    def _write(self) -> None:
        jax.profiler.stop_trace()
        self._say(f"profile of steps {self._began} to {self._step}: {self._folder}")
        self._steps = self._began = None
