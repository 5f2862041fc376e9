"""Who has come, before the runtime waits for all: a call of the roll at the coordinator's port.

The runtime's own wait ends in an abort that names nobody. So process 0 first listens at the
same port itself; every other process says which it is. When all have come, or one has come that
does not belong, all of them are told, and the port is left to the runtime.
"""

import contextlib
import json
import socket
import time
from typing import Any

from aninfonce_jax.config.schema import ConfigError

_POLL_SECONDS = 0.2
# Bytes of one line at most: a program that is none of ours may say anything.
_LONGEST = 4096
# How many missing processes are named.
_MOST_NAMED = 20


class MissingError(RuntimeError):
    """Processes that did not come in time; the message is one line that says which."""


def call_roll(coordinator: str, process: int, processes: int, timeout: float) -> None:
    """Returns when all processes have come.

    Args:
      coordinator: HOST:PORT of process 0.
      process: which one this is.
      processes: how many there are.
      timeout: seconds to wait.

    Raises:
      MissingError: some did not come, or process 0 did not answer.
      ConfigError: two have the same number, or they differ in how many they are, or the port
        can't be used.
    """
    host, _, port = coordinator.rpartition(":")
    if process == 0:
        _answer(coordinator, int(port), processes, timeout)
    else:
        _report(host.strip("[]"), int(port), process, processes, timeout)


def named(processes: list[int]) -> str:
    """Returns which processes, in words, as many as a line holds."""
    shown = ", ".join(str(process) for process in processes[:_MOST_NAMED])
    more = f" and {len(processes) - _MOST_NAMED} more" if len(processes) > _MOST_NAMED else ""
    return f"process{'es' if len(processes) > 1 else ''} {shown}{more}"


# --- Process 0 ---


def _answer(coordinator: str, port: int, processes: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    came: dict[int, tuple[str, socket.socket]] = {}
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(coordinator, port))
        while len(came) < processes - 1 and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(min(left, _POLL_SECONDS))
            try:
                caller, _ = listener.accept()
            except TimeoutError:
                continue
            stack.enter_context(caller)
            hello = _receive(caller, _POLL_SECONDS * 10)
            if hello is None:
                continue  # somebody who looked whether the port is open
            problem = _problem(hello, processes, came)
            if problem:
                _tell_all([*(known for _, known in came.values()), caller], problem)
                raise ConfigError(problem)
            came[hello["process"]] = (str(hello.get("host")), caller)
        missing = [i for i in range(1, processes) if i not in came]
        if missing:
            problem = (
                f"{named(missing)} of {processes} did not come to process 0 at {coordinator} "
                f"within {timeout:.0f} s (--initialization_timeout); {_those(came)}: are the "
                "others started, with the same coordinator, and is the port open?"
            )
            _tell_all([known for _, known in came.values()], problem, missing=True)
            raise MissingError(problem)
        _tell_all([known for _, known in came.values()], "")


def _listen(coordinator: str, port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):  # a machine without IPv6 addresses
                return socket.create_server(
                    ("::", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
                )
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"process 0 can't listen at {coordinator}: {error.strerror or error}; choose another "
            "port in --coordinator (or JAX_COORDINATOR_PORT), or end what uses it"
        ) from error


def _problem(
    hello: dict[str, Any], processes: int, came: dict[int, tuple[str, socket.socket]]
) -> str:
    process, host = hello["process"], hello.get("host")
    if hello.get("processes") != processes:
        return (
            f"process {process} on {host} counts {hello.get('processes')} processes and process 0 "
            f"counts {processes}; give all the same --num_processes"
        )
    if process in came or process == 0:
        first = came[process][0] if process in came else socket.gethostname()
        return (
            f"two processes call themselves {process}, one on {first} and one on {host}; give "
            "each its own --process_id"
        )
    return ""


def _those(came: dict[int, tuple[str, socket.socket]]) -> str:
    if not came:
        return "no other came"
    shown = [f"{i} ({came[i][0]})" for i in sorted(came)[:_MOST_NAMED]]
    return f"{len(came)} others came: {', '.join(shown)}{', ...' * (len(came) > _MOST_NAMED)}"


def _tell_all(callers: list[socket.socket], problem: str, *, missing: bool = False) -> None:
    answer = json.dumps({"problem": problem, "missing": missing}).encode()
    for caller in callers:
        with contextlib.suppress(OSError):  # it went away
            caller.sendall(answer + b"\n")


# --- The others ---


def _report(host: str, port: int, process: int, processes: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    hello = {"process": process, "processes": processes, "host": socket.gethostname()}
    last = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=min(left, 5.0)) as caller:
                caller.sendall(json.dumps(hello).encode() + b"\n")
                # Process 0 says when it has waited for long enough; this is for its death.
                answer = _receive(caller, left + 5.0)
        except OSError as error:
            last = error.strerror or str(error)
            answer = None
        if answer is not None:
            problem = answer.get("problem")
            if not problem:
                return
            raise (MissingError if answer.get("missing") else ConfigError)(str(problem))
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    raise MissingError(
        f"process 0 at {host}:{port} did not answer within {timeout:.0f} s "
        f"(--initialization_timeout; {last}): is it started there, and is the port open?"
    )


def _receive(caller: socket.socket, timeout: float) -> dict[str, Any] | None:
    """Returns the line that the other side sends; None if it sends none, or another kind."""
    caller.settimeout(max(timeout, 0.01))
    text = b""
    try:
        while not text.endswith(b"\n") and len(text) < _LONGEST:
            part = caller.recv(_LONGEST)
            if not part:
                return None
            text += part
        value = json.loads(text)
    except (OSError, ValueError):
        return None
    if not isinstance(value, dict):
        return None
    is_known = isinstance(value.get("process"), int) or "problem" in value
    return value if is_known else None
