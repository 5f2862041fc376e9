"""Checkpoints on disk: read, and judged before they are used. Nothing is changed.

Several processes: process 0 judges, and its verdict is that of all; see `checkpoint.py`.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp

from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.training import checksums
from aninfonce_jax.training.orbax_quirks import one_line
from aninfonce_jax.training.saved_trees import CheckpointError, check_layout, named_leaves
from aninfonce_jax.types import PyTree
from aninfonce_jax.workdir import RECORD_FILE, RECORD_FOLDER, STATE_FOLDER

JSON = Any

# Why a checkpoint is not used: the ending that its folder's name gets, and the reason in words.
Problem = tuple[str, str]


class ForeignError(Exception):
    """A checkpoint that is whole, but is not that of this run and step."""


class CheckpointReader:
    """Reads the checkpoints of one run.

    Args:
      directory: where they are.
      plain: the same folder, under a path that Orbax takes.
      run: what tells this run from any other.
      placement: of the run.
    """

    def __init__(self, directory: AnyPath, plain: Any, run: str, placement: Placement) -> None:
        self._directory = directory
        self._plain = plain
        self._run = run
        self._placement = placement
        self._peers = placement.peers

    def record(self, step: int) -> dict[str, Any]:
        """Returns the record of a step, whose digest it is checked by."""
        # Not by Orbax's manager, which makes all processes wait for each other at every read.
        path = self._directory / str(step) / RECORD_FOLDER / RECORD_FILE
        return checksums.unprotect(json.loads(path.read_bytes()))

    def check_origin(self, record: Mapping[str, Any], step: int) -> None:
        """Raises ForeignError if a record is that of another run or step."""
        run, saved = record.get("run", "none"), record.get("step")
        if run != self._run:
            raise ForeignError(
                f"checkpoint {step} belongs to another run (config hash {run}, "
                f"this run has {self._run}): not used"
            )
        if saved != step:
            raise ForeignError(f"checkpoint {step} holds step {saved}: not used")

    def judge(self, step: int, layout: Mapping[str, str]) -> Problem | None:
        """Returns what process 0 finds wrong with a checkpoint before its arrays are read."""

        def examine() -> Problem | None:
            try:
                checksums.check_seal(self._directory / str(step))
                record = self.record(step)
                self.check_origin(record, step)
                check_layout(record["layout"], layout, step)
            except CheckpointError:
                raise
            except ForeignError as error:
                return "foreign", f"{error}"
            except Exception as error:  # of many types, on damage
                return _damaged(step, error)
            return None

        return self._peers.by_first(f"examine checkpoint {step}", examine)

    def load(
        self, step: int, stored: PyTree
    ) -> tuple[Problem | None, tuple[dict[str, JSON], PyTree] | None]:
        """Returns record and arrays of a step, or what went wrong in any of the processes."""
        found, problem = None, None
        try:
            record = self.record(step)
            # As above: one process that can't read must not leave the others waiting.
            with contextlib.closing(ocp.StandardCheckpointHandler()) as handler:
                arrays = handler.restore(
                    self._plain / str(step) / STATE_FOLDER, args=ocp.args.StandardRestore(stored)
                )
            if self._placement.is_first:
                _check_digests(record["sha256"], arrays)
            found = record, arrays
        except Exception as error:  # Orbax and TensorStore raise many types on damage
            problem = _damaged(step, error)
        problem = self._peers.decide(
            f"restore checkpoint {step}", problem, lambda all: next(filter(None, all), None)
        )
        return problem, None if problem is not None else found


def _damaged(step: int, error: Exception) -> Problem:
    return "damaged", f"checkpoint {step}: damaged, not used ({one_line(error)})"


def _check_digests(saved: Mapping[str, str | None], arrays: PyTree) -> None:
    for name, array in named_leaves(arrays):
        digest, found = saved[name], checksums.digest_array(array)
        if None not in (digest, found) and digest != found:
            raise checksums.DamagedError(f"array {name} differs from what was saved")
