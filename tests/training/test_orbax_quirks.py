import asyncio
import gc
import logging

import pytest

from aninfonce_jax.training.orbax_quirks import without_background_tracebacks


def abandon_a_failure(message):
    """Leaves a failed future to the garbage collector, as TensorStore's writes are."""
    loop = asyncio.new_event_loop()
    try:
        loop.create_future().set_exception(ValueError(message))
    finally:
        loop.close()
    gc.collect()


@pytest.fixture(autouse=True)
def no_other_filters(monkeypatch):
    """After a save that failed filters stay for as long as the process, here that of all tests."""
    monkeypatch.setattr(logging.getLogger("asyncio"), "filters", [])


WRITE = "RESOURCE_EXHAUSTED: No space left on device [tensorstore_spec='...']"


def test_asyncio_keeps_failed_writes_to_itself(caplog):
    with without_background_tracebacks():
        abandon_a_failure(WRITE)
    assert not caplog.records


@pytest.mark.parametrize("message", ["something of the user's own", ""])
def test_asyncio_still_tells_of_others(caplog, message):
    with without_background_tracebacks():
        abandon_a_failure(message)
    assert "never retrieved" in caplog.text


def test_nothing_is_kept_back_afterwards(caplog):
    with without_background_tracebacks():
        pass
    abandon_a_failure(WRITE)
    assert "never retrieved" in caplog.text
