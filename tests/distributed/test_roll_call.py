"""Who has come: threads play processes, on loopback."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from process_group import free_port

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.roll_call import MissingError, call_roll, named


def call(callers, timeout=20.0, port=None):
    """Calls the roll for (process, processes) each; returns None or the error of each."""
    address = f"localhost:{port or free_port()}"

    def one(caller):
        try:
            call_roll(address, *caller, timeout)
        except (ConfigError, MissingError) as error:
            return error
        return None

    with ThreadPoolExecutor(len(callers)) as pool:
        return list(pool.map(one, callers))


def test_all_come():
    assert call([(i, 5) for i in range(5)]) == [None] * 5


def test_a_process_that_looked_only_whether_the_port_is_open_is_none():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        # It listens until the other one has come, which does not before somebody has looked.
        answered = pool.submit(call, [(0, 2)], port=port)
        while not answered.done():
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("localhost", port)) as caller,
            ):
                caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
                break
        assert call([(1, 2)], port=port) == [None]
        assert answered.result() == [None]


def test_those_who_came_hear_who_is_missing():
    first, third = call([(0, 4), (2, 4)], timeout=2.0)
    assert isinstance(first, MissingError)
    assert "processes 1, 3 of 4 did not come to process 0" in str(first)
    assert f"1 others came: 2 ({socket.gethostname()})" in str(first)
    assert str(third) == str(first)


def test_without_process_0_nobody_answers():
    (error,) = call([(1, 2)], timeout=1.0)
    assert isinstance(error, MissingError)
    assert "did not answer within 1 s" in str(error)
    assert "Connection refused" in str(error)


def test_two_of_one_number_are_refused():
    errors = call([(0, 3), (1, 3), (1, 3)])
    assert all(isinstance(error, ConfigError) for error in errors)
    assert "two processes call themselves 1" in str(errors[0])


def test_those_who_count_otherwise_are_refused():
    for error in call([(0, 2), (1, 3)]):
        assert isinstance(error, ConfigError)
        assert "counts 3 processes and process 0 counts 2" in str(error)


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("", 0)) as taken:
        (error,) = call([(0, 2)], port=taken.getsockname()[1])
    assert isinstance(error, ConfigError)
    assert "process 0 can't listen at localhost" in str(error)


@pytest.mark.parametrize(
    ("processes", "words"),
    [([3], "process 3"), ([1, 2], "processes 1, 2"), (list(range(22)), "19 and 2 more")],
)
def test_processes_by_name(processes, words):
    assert named(processes).endswith(words)
