"""CPU devices have threads enough to wait for each other."""

import os
import subprocess
import sys

import pytest

from aninfonce_jax.distributed import cpu_threads


@pytest.fixture
def few_cores(monkeypatch):
    monkeypatch.setattr(cpu_threads, "usable_cores", lambda: 2)
    monkeypatch.delenv(cpu_threads.VARIABLE, raising=False)
    return monkeypatch


def test_cores_where_the_system_does_not_tell_which_may_be_used(monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cpu_threads.usable_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpu_threads.usable_cores() == 1


def test_each_of_several_devices_gets_two(few_cores):
    few_cores.setenv("XLA_FLAGS", "--a=1 --xla_force_host_platform_device_count=4 --b=2")
    cpu_threads.provide_threads()
    assert os.environ[cpu_threads.VARIABLE] == "10"


def test_a_device_among_several_processes_gets_two(few_cores):
    few_cores.setenv("XLA_FLAGS", "")
    few_cores.setattr("aninfonce_jax.compat.coordination", object)
    cpu_threads.provide_threads()
    assert os.environ[cpu_threads.VARIABLE] == "4"


@pytest.mark.parametrize("flags", ["", "--xla_force_host_platform_device_count=1"])
def test_a_single_device_keeps_what_jax_gives_it(few_cores, flags):
    few_cores.setenv("XLA_FLAGS", flags)
    cpu_threads.provide_threads()
    assert cpu_threads.VARIABLE not in os.environ


def test_what_the_user_says_counts(few_cores):
    few_cores.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    few_cores.setenv(cpu_threads.VARIABLE, "3")
    cpu_threads.provide_threads()
    assert os.environ[cpu_threads.VARIABLE] == "3"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_jax_heeds_it():
    """Two pools, of which one has a thread for each device at the least."""

    def threads(pool: int) -> int:
        program = (
            "import os, jax.numpy as jnp\n"
            "jnp.ones(3).block_until_ready()\n"
            "print(len(os.listdir('/proc/self/task')))"
        )
        environment = {**os.environ, cpu_threads.VARIABLE: str(pool)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        return int(done.stdout)

    assert threads(40) - threads(20) >= 20
