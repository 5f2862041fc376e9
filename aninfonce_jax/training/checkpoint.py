"""Checkpoints that are either restored exactly or not at all.

Orbax writes a checkpoint into a temporary folder and renames it when it is complete,
so that a killed process never leaves half of one under a step's name. What Orbax does
not do is notice damage done later: a flipped bit in a large array restores silently
wrong. Two layers of checksums close that gap:

* The *record*, a JSON item inside the checkpoint and hence atomic with it, holds the
  digest of every leaf, taken from the host copy that is saved. Whatever happens between
  that copy and the restored array is found.
* The *seal*, a `SHA256SUMS` file over all files of the checkpoint, is added as soon as
  the save is complete. It finds damage before a parser meets it, names the file, and can
  be checked by hand: `sha256sum -c SHA256SUMS`. A process killed in the few milliseconds
  before sealing leaves a checkpoint that its record alone protects.

The record also names the run and the step, so that a checkpoint that was copied from another
run, or from another step of this one, is not taken for what its folder's name says. The
digests bind the arrays to the record.

Reading changes nothing on disk. Only a save tidies up: leftovers of interrupted saves are
removed, and checkpoints that a restore passed over are renamed to `<step>.damaged` or
`<step>.foreign`, so that they block neither that step nor a place among those kept, and can
still be examined.

Several processes: all of them save and restore, and process 0 judges. It alone hashes, so that
a thousand hosts do not read every file twice, and its verdict on a checkpoint is that of all. A
leaf whose global value one process can't see has no digest of its own and is protected by the
seal.
"""

import contextlib
import dataclasses
import errno
import math
import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import orbax.checkpoint as ocp

from aninfonce_jax.files import remove
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import registry
from aninfonce_jax.training import checksums
from aninfonce_jax.training.checkpoint_reader import JSON, CheckpointReader
from aninfonce_jax.training.leftovers import interrupted_saves, set_aside
from aninfonce_jax.training.orbax_quirks import (
    plain_path,
    reason,
    without_background_tracebacks,
)
from aninfonce_jax.training.saved_trees import (
    CheckpointError,
    as_stored,
    as_target,
    layout_of,
    named_leaves,
    snapshot,
)
from aninfonce_jax.types import PyTree
from aninfonce_jax.workdir import RECORD_FOLDER, STATE_FOLDER

__all__ = ["CheckpointError", "Checkpoints", "Restored"]

# Threads of a failed save may outlive its `Checkpoints`. What keeps them from printing tracebacks
# then stays in place until the process ends.
_STAYING = contextlib.ExitStack()


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint, exactly as it was saved.

    Attributes:
      step: the step it was saved at.
      state: the arrays, in the structure and with the shardings of the target.
      extra: the JSON saved along with the state (tuples have become lists).
      metrics: the scores at that step.
      problems: one line for each checkpoint that was passed over, and why.
    """

    step: int
    state: PyTree
    extra: dict[str, JSON]
    metrics: dict[str, float]
    problems: tuple[str, ...] = ()


class Checkpoints:
    """The checkpoints of one run: the latest few, and the best.

    Args:
      directory: where they are kept; made if it is missing.
      keep: number of latest checkpoints kept, besides the best.
      best_metric: the metric whose largest value marks the best checkpoint.
      run: what tells this run from any other, such as a hash of its config; checkpoints that
        were saved with another are passed over.
      placement: of the run; by default that of a single process.
    """

    def __init__(
        self,
        directory: AnyPath,
        *,
        keep: int,
        best_metric: str = registry.R2.key,
        run: str = "",
        placement: Placement | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1 checkpoint, got {keep}.")
        self._directory = directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._best_metric = best_metric
        self._run = run
        self._placement = placement or Placement.local()
        self._peers = self._placement.peers
        self._sealing: threading.Thread | None = None
        self._writing: int | None = None
        # Steps that a restore passed over, each with the ending that its folder is to get.
        self._unusable: dict[int, str] = {}
        self._has_failed = False
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(without_background_tracebacks())
        self._resources = contextlib.ExitStack()
        self._resources.callback(self._end_quiet)
        plain = self._resources.enter_context(plain_path(self._directory))
        self._reader = CheckpointReader(self._directory, plain, run, self._placement)
        self._manager = ocp.CheckpointManager(
            plain,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=ocp.checkpoint_managers.AnyPreservationPolicy(
                    [ocp.checkpoint_managers.LatestN(keep), _KeepStep(self)]
                ),
                # The scores are in our record, where a digest protects them. Orbax's own
                # metrics file would, once damaged, make its constructor fail or another
                # checkpoint the best.
                lightweight_initialize=True,
                # With the default, threads that wait for a folder which can't be made (disk
                # full, no permission) keep the process from exiting for five minutes.
                async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
            ),
        )
        scores = self._peers.by_first("read the scores of checkpoints", self._read_scores)
        self._scores = {int(step): score for step, score in scores.items()}

    def save(
        self,
        step: int,
        state: PyTree,
        *,
        extra: Mapping[str, JSON],
        metrics: Mapping[str, float],
    ) -> None:
        """Copies the state to the host and writes it in the background.

        The buffers of `state` may be donated as soon as this returns. A failed write
        raises CheckpointError, here or at the next call of `save`, `wait` or `close`. A step
        that is saved already is left as it is: the same step of the same run has the same
        state.

        Args:
          step: the number of steps done; must grow.
          state: a pytree of arrays; typed random keys are allowed.
          extra: JSON to keep with it.
          metrics: scores; a `best_metric` that is missing or NaN is never the best.
        """
        self.wait()
        score, is_tidied = self._peers.by_first(
            "prepare a save", lambda: self._prepare(step, metrics)
        )
        if is_tidied:
            self._unusable.clear()
            self._manager.reload()
        latest = self.latest_step
        if step in self.all_steps():
            return
        if latest is not None and step < latest:
            raise ValueError(f"checkpoints must go forward: step {step} comes after {latest}.")
        copy = jax.tree.map(snapshot, state)
        digests = {}
        if self._placement.is_first:  # whose record is written
            digests = {name: checksums.digest_array(leaf) for name, leaf in named_leaves(copy)}
        record = {
            "run": self._run,
            "step": step,
            "layout": layout_of(state),
            "sha256": digests,
            "extra": dict(extra),
            "metrics": {name: float(value) for name, value in metrics.items()},
        }
        self._scores[step] = score
        self._writing = step
        with self._told_as_failed(step):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    **{
                        STATE_FOLDER: ocp.args.StandardSave(copy),
                        RECORD_FOLDER: ocp.args.JsonSave(checksums.protect(record)),
                    }
                ),
                force=True,
            )
        if self._placement.is_first:
            self._sealing = threading.Thread(target=self._seal, args=(step,), name="seal")
            self._sealing.start()

    def restore_latest(self, target: PyTree) -> Restored | None:
        """Returns the newest checkpoint that is whole and of this run; None if there is none.

        Args:
          target: a pytree of `jax.ShapeDtypeStruct` with shardings, or of arrays.

        Raises:
          CheckpointError: there are checkpoints but none restores, or they hold other
            arrays than `target`. To start anew silently would lose a run.
        """
        self.wait()
        steps = self._peers.by_first(
            "list the checkpoints", lambda: sorted(self.all_steps(), reverse=True)
        )
        return self._restore_first(steps, target)

    def restore_best(self, target: PyTree) -> Restored | None:
        """Returns the checkpoint with the best score that is whole; else as `restore_latest`."""
        self.wait()

        def order() -> list[int]:
            ranked = self._ranked()
            return ranked + sorted(set(self.all_steps()) - set(ranked), reverse=True)

        return self._restore_first(self._peers.by_first("rank the checkpoints", order), target)

    @property
    def latest_step(self) -> int | None:
        """The newest step that no restore has passed over, with the one that is being written."""
        return max((step for step in self.all_steps() if step not in self._unusable), default=None)

    @property
    def best_step(self) -> int | None:
        """The step with the best score, the newer one of two alike; None without scores."""
        best = next(iter(self._ranked()), None)
        return best if best is not None and self._scores[best] > -math.inf else None

    def all_steps(self) -> tuple[int, ...]:
        """Returns all steps in ascending order, with the one that is being written."""
        return tuple(sorted(self._manager.all_steps()))

    def wait(self) -> None:
        """Waits until the last save is complete and sealed; raises if it failed."""
        with self._told_as_failed(self._writing):
            self._manager.wait_until_finished()
        if self._sealing is not None:
            self._sealing.join()
            self._sealing = None

    def close(self) -> None:
        """Waits, and ends the background threads."""
        with self._resources:
            try:
                self.wait()
            finally:
                self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_quiet(self) -> None:
        if self._has_failed:
            _STAYING.push(self._quiet.pop_all())
        self._quiet.close()

    def _ranked(self) -> list[int]:
        known = [step for step in self.all_steps() if step in self._scores]
        return sorted(known, key=lambda step: (self._scores[step], step), reverse=True)

    def _read_scores(self) -> dict[int, float]:
        scores = {}
        for step in self.all_steps():
            try:
                record = self._reader.record(step)
                self._reader.check_origin(record, step)
                metrics = record["metrics"]
            except Exception:
                continue  # said by the restore that meets it
            scores[step] = _score(metrics, self._best_metric)
        return scores

    def _restore_first(self, steps: Sequence[int], target: PyTree) -> Restored | None:
        """Returns the first of `steps` that is whole, with the problems of those before it."""
        stored = jax.tree.map(lambda leaf: as_stored(leaf, self._placement), target)
        layout, problems = layout_of(target), self._peers.by_first("look around", self._leftovers)
        for step in steps:
            found, restored = self._reader.judge(step, layout), None
            if found is None:
                found, restored = self._reader.load(step, stored)
            if restored is not None:
                record, arrays = restored
                state = jax.tree.map(as_target, arrays, target)
                return Restored(step, state, record["extra"], record["metrics"], tuple(problems))
            assert found is not None
            ending, problem = found
            self._unusable[step] = ending
            self._scores.pop(step, None)
            problems.append(problem)
        if not steps:
            return None
        raise CheckpointError(
            f"no checkpoint in {self._directory} can be restored: {'; '.join(problems)}. "
            "Repair or remove the folder to start anew."
        )

    def _leftovers(self) -> list[str]:
        return [
            f"{path.name}: a save that was interrupted, ignored"
            for path in interrupted_saves(self._directory)
        ]

    def _seal(self, step: int) -> None:
        try:
            self._manager.wait_until_finished()
        except Exception:
            return  # nothing to seal; the main thread gets the same exception
        try:
            checksums.write_seal(self._directory / str(step))
        except OSError:
            return  # its record protects it; if there is no room, the next save says so

    def _prepare(self, step: int, metrics: Mapping[str, float]) -> tuple[float, bool]:
        """Makes room for a save; returns its score, and whether folders were removed or renamed.

        See the module's docstring.
        """
        score = _score({name: float(value) for name, value in metrics.items()}, self._best_metric)
        with self._told_as_failed(step):
            # Orbax would make it again, beside files of the run that are gone.
            is_local = isinstance(self._directory, pathlib.Path)
            if is_local and not self._directory.is_dir():
                raise FileNotFoundError(errno.ENOENT, "the folder was removed")
            interrupted = interrupted_saves(self._directory)
            for path in interrupted:
                remove(path)
            for unusable, ending in self._unusable.items():
                set_aside(self._directory / str(unusable), ending)
        return score, bool(interrupted or self._unusable)

    @contextlib.contextmanager
    def _told_as_failed(self, step: int | None) -> Iterator[None]:
        """Turns what Orbax raises where it can't write into one line."""
        try:
            yield
        except Exception as error:  # OSError, and TensorStore's ValueErrors of many kinds
            self._has_failed = True
            raise CheckpointError(
                f"checkpoint {step} can't be written to {self._directory}: {reason(error)}; "
                "what was saved before is kept: mend it, and the same command goes on"
            ) from error


@dataclasses.dataclass(frozen=True)
class _KeepStep:
    """Orbax preservation policy: the best step of `checkpoints`, by its own scores."""

    checkpoints: Checkpoints

    def should_preserve(self, infos: Sequence[Any], *, context: Any) -> list[bool]:
        del context
        best = self.checkpoints.best_step
        return [info.step == best for info in infos]


def _score(metrics: Mapping[str, float], name: str) -> float:
    value = metrics.get(name, -math.inf)
    return -math.inf if math.isnan(value) else value
