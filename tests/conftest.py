"""One strict session: eight CPU devices, no silent rank promotion, warnings are errors.

Programs are compiled once for all tests, workers, child processes and later sessions: what
jax compiled is kept in .pytest_cache/compiled, under a key of the program, the flags and the
versions. Traces are not kept, so tests that count them see what they always saw.

The device count must be set before jax first looks for devices, hence here and not in
a test module.
"""

import os
from pathlib import Path

_FLAGS = {
    "--xla_force_host_platform_device_count": "8",
    # Tests compile much and compute little.
    "--xla_backend_optimization_level": "0",
}
_GIVEN = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join(
    [_GIVEN, *(f"{name}={value}" for name, value in _FLAGS.items() if name not in _GIVEN)]
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

_COMPILED = Path(__file__).resolve().parent.parent / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# A process that is killed while it writes leaves a file that can't be read; so does, for a
# moment, one that is still writing. jax then compiles, as without the file, and warns. Tests of
# what a child process says must not depend on that; pyproject.toml says the same to pytest.
os.environ["PYTHONWARNINGS"] = ",".join(
    given
    for given in (
        os.environ.get("PYTHONWARNINGS", ""),
        "ignore:Error reading persistent compilation cache entry",
    )
    if given
)

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
if not hasattr(jax, "enable_x64"):  # before jax 0.8
    from jax.experimental import enable_x64

    jax.enable_x64 = enable_x64

import pytest  # noqa: E402
from image_files import write_folder  # noqa: E402

from aninfonce_jax import config as config_lib  # noqa: E402
from aninfonce_jax.config_schema import Config  # noqa: E402

SMALL = {
    "dgp.dim": 4,
    # Compiles in a fraction of the time that the exact sampler takes.
    "dgp.space": "real",
    "dgp.marginal": "normal",
    "dgp.conditional": "normal",
    "dgp.mixing.candidates": 50,
    "encoder.widths": (16, 16),
    "optimizer.name": "adam",
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup_steps": 2,
    "train.steps": 12,
    "train.batch_size": 16,
    "train.steps_per_dispatch": 2,
    "eval.every": 4,
    "eval.samples": 64,
    "eval.floor_batches": 2,
    "checkpoint.every": 4,
    "log.every": 2,
    "log.tensorboard": False,
}


# What a run on pictures changes of it.
SMALL_IMAGES = {
    "data.name": "folder",
    "data.image_size": 16,
    "encoder.kind": "resnet10",
    "encoder.width": 0.125,
    "encoder.projector": (16,),
    "encoder.dim": 8,
    "encoder.output": "none",
    "objective.kind": "aninfonce",
    "objective.negatives": "both",
    "optimizer.ema_decay": 0.0,
    "train.steps": 4,
    "train.batch_size": 8,
    "eval.every": 2,
    "eval.floor_batches": 1,
    "eval.train_images": 40,
    "eval.readout_images": 16,
    "eval.batch_size": 16,
    "eval.neighbours": 5,
    "checkpoint.every": 2,
}


def _config_with(base: dict[str, object], changes: dict[str, object]) -> Config:
    values = config_lib.default_config()
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    values.update_from_flattened_dict(base | changed)
    return config_lib.from_dict(values)


@pytest.fixture
def small_config():
    """Builds the config of a run that takes seconds, with dotted keys changed."""

    def build(**changes: object) -> Config:
        return _config_with(SMALL, changes)

    return build


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """Sixty pictures of two classes to train on, and twenty to test on."""
    root = tmp_path_factory.mktemp("pictures")
    write_folder(root, {"train": {"a": 30, "b": 30}, "test": {"a": 10, "b": 10}})
    return root


@pytest.fixture
def image_config(image_folder):
    """Builds the config of a small run on pictures, with dotted keys changed."""

    def build(**changes: object) -> Config:
        return _config_with(SMALL | SMALL_IMAGES | {"data.folder": str(image_folder)}, changes)

    return build
