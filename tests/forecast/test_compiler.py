"""Asking compilers, and what they answer."""

import importlib.util
import subprocess
import sys

import pytest

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.forecast import compiler
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.compiler import check_compilers, exhausted

GIB = 2**30


@pytest.mark.parametrize(
    ("message", "total", "usable"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (40.00G) exceeds available HBM (15.75G).",
            40 * GIB,
            15.75 * GIB,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 1.50T of 95.74G hbm. Exceeded hbm capacity by 1.40T.",
            1.5 * 1024 * GIB,
            95.74 * GIB,
        ),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.", 6, 100),
    ],
)
def test_too_little_memory_is_an_answer(message, total, usable):
    memory = exhausted(message, (1, 2, 3), usable=100)
    assert not memory.fits
    assert memory.rest is None
    assert (memory.total, memory.usable) == (int(total), int(usable))
    assert (memory.parameters, memory.optimizer, memory.batch) == (1, 2, 3)


def test_another_failure_is_not_taken_for_it():
    assert exhausted("INTERNAL: Mosaic failed to compile", (1, 2, 3), usable=100) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v5e:4x4", r"v5e:4x4 needs Google's TPU compiler.*pip install 'aninfonce-jax\[tpu\]'"),
        ("h100:8", r"h100:8 needs jax's CUDA plugin.*pip install 'aninfonce-jax\[gpu-compile\]'"),
    ],
)
def test_a_missing_compiler_says_what_to_install(monkeypatch, name, says):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=says):
        check_compilers(parse_topologies(name))


TINY = """
import sys
from aninfonce_jax.main import main
sys.exit(main(["aninfonce_jax", "--mode=compile", "--config.compare=", "--workdir=" + sys.argv[1],
    "--topology=" + sys.argv[2], "--compiles=" + sys.argv[3],
    "--config.source.mixing.candidates=10", "--config.encoder.widths=16",
    "--config.source.space=real", "--config.source.marginal=normal",
    "--config.source.conditional=normal", "--config.encoder.output=none",
    "--config.optimizer.kind=adam", *sys.argv[4:]]))
"""


def run_tiny(tmp_path, topology, *more, compiles=0):
    """Compiles a tiny run in a process of its own: compilers stay loaded for good."""
    command = [sys.executable, "-c", TINY, tmp_path, topology, str(compiles), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


needs_tpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed; pip install 'aninfonce-jax[tpu]'",
)
needs_gpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="the CUDA plugin is not installed; pip install 'aninfonce-jax[gpu-compile]'",
)


@needs_tpu_compiler
def test_a_tiny_run_is_compiled_for_a_tpu(tmp_path):
    done = run_tiny(tmp_path, "v5e:2x2")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "fits: ",
        "of 15.75 GiB",
        "loss ",
        "all-reduce over data (4 devices)",
        "chip-hours",
    ):
        assert words in done.stdout
    assert (tmp_path / "compile.html").exists()
    assert "largest batch that fits: not searched; --compiles=6 does" in done.stdout


@pytest.mark.slow
@needs_tpu_compiler
def test_a_run_that_does_not_fit_is_told_what_would(tmp_path):
    large = ["--config.objective.strategy=dense", "--config.train.batch_size=131072"]
    done = run_tiny(tmp_path, "v5e:2x2", *large, compiles=1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "does not fit: it takes at least 16" in done.stdout
    assert "fits with objective.strategy=ring" in done.stdout


@pytest.mark.slow
@needs_tpu_compiler
def test_a_tiny_run_is_compiled_for_a_single_chip(tmp_path):
    done = run_tiny(tmp_path, "v5e:1x1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "fits: " in done.stdout
    assert "1 × TPU v5e" in done.stdout


@needs_tpu_compiler
def test_a_slice_that_there_is_not_gets_one_line(tmp_path):
    done = run_tiny(tmp_path / "new", "v5e:1x3", "--config.train.batch_size=30")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--topology=v5e:1x3: the compiler says" in done.stderr


@pytest.mark.slow
@needs_gpu_compiler
@pytest.mark.parametrize("topology", ["h100:8", "a100:2x4"])
def test_a_tiny_run_is_compiled_for_gpus(tmp_path, topology):
    done = run_tiny(tmp_path, topology)
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "fits: ",
        "all-reduce over data (8 devices)",
        "without a GPU these are not known",
    ):
        assert words in done.stdout
