"""Bringing processes together, and to an end: `jax.distributed`, with words for what fails."""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from aninfonce_jax.at_once import stop_at_once
from aninfonce_jax.cli import (
    EXIT_PEER_LOST,
    EXIT_PREEMPTED,
    EXIT_USAGE,
    complain,
    introduce,
    last_complaint,
)
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.cluster import LEFT_TO_JAX, Cluster
from aninfonce_jax.distributed.cpu_threads import provide_threads
from aninfonce_jax.distributed.equal import require_equal
from aninfonce_jax.distributed.peers import ALONE, PeerError, Peers, exit_code_of, of_runtime
from aninfonce_jax.distributed.platforms import expected_platform
from aninfonce_jax.distributed.roll_call import MissingError, call_roll
from aninfonce_jax.distributed.watch import leave_at_once

# Seconds that the runtime gets beyond our own limits: its abort says nothing of use.
_SLACK_SECONDS = 30


# Seconds that another process has to say why it failed.
_REASON_SECONDS = 3.0


def run_together(cluster: Cluster, run: Callable[[Peers], int]) -> int:
    """Runs a command as one of several processes; returns its exit code, or ends the process.

    All of them end alike: where one fails, the others are told, say so, and leave with its
    code. After a failure the process is ended at once: the runtime would wait for others.
    """
    try:
        peers = join(cluster)
    except (MissingError, PeerError) as error:
        return complain(error, EXIT_PEER_LOST)
    except ConfigError as error:
        return complain(error, EXIT_USAGE)
    if not peers.are_many:
        return run(peers)
    with contextlib.ExitStack() as stack:
        if not peers.is_first:
            # Only the first of several processes speaks; complaints go to stderr.
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(peers.watched())
        code = _run_to_end(peers, run)
        if code not in (0, EXIT_PREEMPTED):
            _leave(peers, code)
    import jax

    jax.distributed.shutdown()
    return code


def _run_to_end(peers: Peers, run: Callable[[Peers], int]) -> int:
    try:
        with peers.telling():
            code = run(peers)
        if code in (0, EXIT_PREEMPTED):
            peers.at("waiting for the others to end")
            peers.wait_for_all("the end")
    except PeerError as error:
        return complain(error, error.code)
    except BaseException as error:
        traceback.print_exc()
        return exit_code_of(error)
    return code


def _leave(peers: Peers, code: int) -> None:
    """Ends a process that has failed, when the others know."""
    if last_complaint():
        # Where process 0 is gone already, the runtime aborts while this one still ends.
        peers.leaving(code)
    peers.tell(last_complaint() or "it left without a word", code)
    deadline = time.monotonic() + _REASON_SECONDS
    while not last_complaint() and time.monotonic() < deadline:
        try:
            peers.check()
        except PeerError as error:
            complain(error, code)
        time.sleep(0.1)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def join(cluster: Cluster) -> Peers:
    """Brings this process together with the others; before any other call of jax.

    Raises:
      MissingError: some did not come in time.
      PeerError: process 0 went away at once.
      ConfigError: they do not fit together, can't be found, or the port can't be used.
    """
    import jax

    timeout = cluster.initialization_timeout
    known = (cluster.coordinator, cluster.process_id, cluster.num_processes)
    if None not in known:
        introduce(cluster.process_id or 0, cluster.num_processes or 1)
        call_roll(
            cluster.coordinator or "", cluster.process_id or 0, cluster.num_processes or 1, timeout
        )
    if "JAX_CPU_COLLECTIVES_IMPLEMENTATION" not in os.environ:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    arguments: dict[str, Any] = {}
    if cluster.kind == "flags":
        arguments["cluster_detection_method"] = "deactivate"
    with _clock(timeout + _SLACK_SECONDS / 2, cluster):
        try:
            jax.distributed.initialize(
                cluster.coordinator,
                cluster.num_processes,
                cluster.process_id,
                cluster.local_device_ids,
                initialization_timeout=timeout + _SLACK_SECONDS,
                heartbeat_timeout_seconds=2 * cluster.heartbeat_timeout + _SLACK_SECONDS,
                **arguments,
            )
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            if cluster.kind in LEFT_TO_JAX and "should be defined" in str(error):
                return ALONE  # jax knows of no others
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise ConfigError(
                f"the processes of {cluster.kind} can't be brought together: {reason}; give each "
                "one --coordinator=HOST:PORT --num_processes=N --process_id=I, or "
                "--num_processes=1 to run on its own"
            ) from error
        # The runtime has put a handler of its own in the place of ours.
        stop_at_once()
        provide_threads()
        _require_one_platform()
        if jax.process_count() == 1:
            return ALONE
    introduce(jax.process_index(), jax.process_count())
    peers = of_runtime()
    peers.heartbeat_timeout = cluster.heartbeat_timeout
    return peers


def _require_one_platform() -> None:
    """Raises ConfigError, in every process, if they would not all take devices of one kind."""
    from aninfonce_jax.compat import place_among_processes
    from aninfonce_jax.distributed.store import RuntimeStore

    peers = Peers(*place_among_processes(), RuntimeStore(), prefix="aninfonce_jax/platforms/")
    values = {"the platform of its devices": expected_platform(os.environ)}
    require_equal(peers, "platforms", values)


@contextlib.contextmanager
def _clock(seconds: float, cluster: Cluster) -> Iterator[None]:
    """Ends the process with a line if what is inside takes longer: the runtime can't be stopped."""

    def ring() -> None:
        where = f" at {cluster.coordinator}" if cluster.coordinator else ""
        leave_at_once(
            f"the processes of {cluster.kind} did not come together within {seconds:.0f} s "
            f"(--initialization_timeout): is process 0{where} running, are all the others, and "
            "can they reach it?",
            EXIT_PEER_LOST,
        )

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
