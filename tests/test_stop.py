import os
import signal

import pytest

from aninfonce_jax.stop import Preempted, StopSignal


def test_a_signal_becomes_a_flag_and_the_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        stop.raise_if_requested("not yet")
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        assert signal.getsignal(signal.SIGTERM) == before
        with pytest.raises(Preempted, match="stopped here"):
            stop.raise_if_requested("stopped here")
    assert signal.getsignal(signal.SIGTERM) == before
