"""Runs that are asked to stop at a known moment."""

import contextlib

import pytest

from aninfonce_jax.stop import StopSignal
from aninfonce_jax.training.session import Session


@contextlib.contextmanager
def stopping_at_the_first_save():
    """Gives a signal for a run, which asks it to stop once it has saved a checkpoint."""
    with pytest.MonkeyPatch.context() as patch, StopSignal() as stop:
        save = Session._save

        def save_and_stop(session, step, state):
            save(session, step, state)
            stop.requested = True

        patch.setattr(Session, "_save", save_and_stop)
        yield stop
