"""The losses through the GPU compiler, which needs jax's CUDA plugin but no GPU."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.compiler import check_compilers

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def test_few_kernels_are_launched_and_little_memory_is_held():
    """Value and gradient of 32,768 rows, whose scores would take 4 GiB."""
    try:
        check_compilers(parse_topologies("h100:8"))
    except ConfigError as error:
        pytest.skip(str(error))
    run = subprocess.run(
        [sys.executable, SCRIPT, "--chunk=default,1024"],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = re.findall(r"tiles (\w+), .*: (\d+) launches, peak (\d+) MiB", run.stdout)
    assert [tile for tile, *_ in found] == ["default", "1024"]
    (launches, peak), (of_small_tiles, _) = [(int(a), int(b)) for _, a, b in found]
    assert launches < 600
    assert peak < 512
    # Which shows that they are counted.
    assert of_small_tiles > 20 * launches
