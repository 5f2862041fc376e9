import configparser
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aninfonce_jax.stop import Preempted, StopSignal, raised

ROOT = Path(__file__).resolve().parent.parent


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


def test_while_nothing_is_to_be_saved_a_signal_is_heeded_at_once():
    with StopSignal() as stop:
        with stop.raising("stopped while it was set up"):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        # It had come before.
        with pytest.raises(Preempted, match="while it was"), stop.raising("stopped while it was"):
            raise AssertionError("nothing should begin")
    with StopSignal() as stop:
        with pytest.raises(Preempted, match="set up"), stop.raising("stopped while it was set up"):
            signal.raise_signal(signal.SIGTERM)
        assert stop.requested


@pytest.mark.parametrize("handling", [StopSignal, raised])
def test_a_signal_that_is_ignored_stays_so(handling):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handling():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_during_the_first_imports_is_one_line(number):
    """The process says that it has begun to import, and is stopped as it does."""
    code = (
        "import importlib.abc, runpy, sys\n"
        "class Tell(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'ml_collections': print('importing', flush=True)\n"
        "sys.meta_path.insert(0, Tell())\n"
        "runpy.run_module('aninfonce_jax.main', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--workdir=/nowhere/run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert err.startswith(f"aninfonce_jax: stopped at once by {signal.Signals(number).name};")
    assert err.count("\n") == 1


def test_a_preparation_sets_its_handler_before_its_imports_too():
    code = (
        "import os, runpy, signal; import aninfonce_jax.at_once as stop;"
        "install = stop.stop_at_once;"
        "stop.stop_at_once = lambda: (install(), os.kill(os.getpid(), signal.SIGTERM));"
        "runpy.run_module('aninfonce_jax.prepare', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("aninfonce_jax: stopped at once by SIGTERM")


def test_next_to_nothing_is_imported_before_the_handler():
    """Besides what Python imports to start, and `signal` with its enums."""
    code = "import sys; bare = {*sys.modules}; import aninfonce_jax.at_once"
    show = f"import os, signal\n{code}; print(*sorted({{*sys.modules}} - bare))"
    command = [sys.executable, "-S", "-c", show]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["aninfonce_jax", "aninfonce_jax.at_once"]


def test_the_installed_script_sets_its_handler_first():
    (entry,) = (e for e in entry_points_of_setup() if e.startswith("aninfonce "))
    module, function = entry.partition("=")[2].strip().split(":")
    code = (
        "import os, signal, sys; sys.addaudithook(lambda event, names: event == 'import' and "
        "names[0] == 'aninfonce_jax.main' and os.kill(os.getpid(), signal.SIGTERM));"
        f"from {module} import {function}; {function}()"
    )
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 75
    assert done.stderr.startswith("aninfonce_jax: stopped at once by SIGTERM")


def entry_points_of_setup():
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    return parsed["options.entry_points"]["console_scripts"].strip().splitlines()


def test_the_second_signal_of_a_command_ends_it_at_once():
    code = (
        "import os, signal; from aninfonce_jax import at_once, stop; at_once.stop_at_once();"
        "signals = stop.StopSignal().__enter__(); os.kill(os.getpid(), signal.SIGINT);"
        "assert signals.requested; os.kill(os.getpid(), signal.SIGINT); print('still here')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("aninfonce_jax: stopped at once by SIGINT")
