"""Threads for jax's CPU devices: with too few of them, devices wait for each other for ever.

The CPU devices of a process share a pool of threads, by default as many as the process may use
cores, or as there are devices. A device that takes part in a collective holds one of them until
all other devices have come, those of other processes too. So does a device that has as much work
ahead of it as it may have, and is handed more: it waits for room, in a thread of the same
pool. On a machine with few cores these may be all the threads there are, and then the device for
which everybody waits gets none. Within a process jax ends such a wait with an abort, after a
while; across processes nothing does.
"""

import os
import re

# What jaxlib reads the size of its pools from, when it makes its CPU devices.
VARIABLE = "NPROC"
_ASKED_FOR = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def usable_cores() -> int:
    """Returns how many cores this process may use; where only Linux could tell, all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def provide_threads() -> None:
    """Sees to it that each CPU device may wait twice; to be called before jax makes its devices.

    A single device, on its own, waits for nobody and gets what jax gives it. So does everything
    where the user has set NPROC.
    """
    import jax

    from aninfonce_jax import compat

    asked_for = _ASKED_FOR.findall(os.environ.get("XLA_FLAGS", ""))
    set_in_jax = getattr(jax.config, "jax_num_cpu_devices", 1)
    devices = max(1, set_in_jax, *map(int, asked_for[-1:]))
    if devices == 1 and compat.coordination() is None:
        return
    needed = 2 * devices + 2
    if usable_cores() < needed:
        os.environ.setdefault(VARIABLE, str(needed))
