"""One strict session: eight CPU devices, no silent rank promotion, warnings are errors.

Programs are compiled once for all tests, workers, child processes and later sessions: what
jax compiled is kept in .pytest_cache/compiled, under a key of the program, the flags and the
versions. Traces are not kept, so tests that count them see what they always saw.

The device count must be set before jax first looks for devices, hence here and not in
a test module.
"""

import gc
import importlib.metadata
import importlib.util
import itertools
import os
import signal
from pathlib import Path

# A runner in the background ignores Ctrl-C, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_JAX = tuple(map(int, importlib.metadata.version("jax").split(".")[:2]))
_FLAGS = {
    "--xla_force_host_platform_device_count": "8",
    # Tests compile much and compute little.
    "--xla_backend_optimization_level": "0",
}
# With the older of two code generators compiling takes a third to a half of the time. Its
# retirement is proposed (openxla/xla#48001), and XLA ends a process that asks for what it does not
# know.
if _JAX < (0, 11):
    _FLAGS["--xla_cpu_use_fusion_emitters"] = "false"
_GIVEN = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join(
    [_GIVEN, *(f"{name}={value}" for name, value in _FLAGS.items() if name not in _GIVEN)]
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

_COMPILED = Path(__file__).resolve().parent.parent / ".pytest_cache" / "compiled"
# As compile_cache.py says: older versions have trouble when they read a program back; with
# zstandard, which jax prefers to zlib, a damaged file has no checksum to show it by.
if _JAX >= (0, 10) and not any(map(importlib.util.find_spec, ("zstandard", "compression"))):
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

# Tests trace much, which makes many small objects, and little of it is garbage: the collector
# need not look so often.
gc.set_threshold(50_000, 20, 50)

import jax  # noqa: E402

from aninfonce_jax.distributed.cpu_threads import provide_threads  # noqa: E402

provide_threads()
jax.config.update("jax_numpy_rank_promotion", "raise")
if not hasattr(jax, "enable_x64"):  # before jax 0.8
    from jax.experimental import enable_x64

    jax.enable_x64 = enable_x64

import pytest  # noqa: E402
import tiny_runs  # noqa: E402
from image_files import write_folder, write_mnist  # noqa: E402
from shared_folders import make_once  # noqa: E402
from small_configs import SMALL, SMALL_DECODED, SMALL_IMAGES, SMALL_VAE  # noqa: E402

from aninfonce_jax import config as config_lib  # noqa: E402
from aninfonce_jax.build import build_experiment  # noqa: E402
from aninfonce_jax.config.schema import Config  # noqa: E402

# Every compiled program takes some 15 memory maps, of which Linux gives a process 65,530 by
# default; beyond them jax crashes as it compiles.
_MOST_MAPS = 20_000
# A test may compile hundreds of programs.
_TESTS_BETWEEN_LOOKS = 5
_finished = itertools.count(1)


def pytest_runtest_logfinish():
    """Lets go of compiled programs before there are too many for one process."""
    maps = Path("/proc/self/maps")
    if next(_finished) % _TESTS_BETWEEN_LOOKS or not maps.exists():
        return
    if maps.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()


def _nested(flat: dict[str, object]) -> dict[str, object]:
    """Returns dotted names with their values as a config file would have them."""
    sections: dict[str, dict[str, object]] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    return {section: _nested(x) if "" not in x else x[""] for section, x in sections.items()}


def _config_with(base: dict[str, object], changes: dict[str, object]) -> Config:
    """Returns the run of a config file and a command line: a changed kind drops what it must."""
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    (run,) = config_lib.resolve(_nested(base), changed).runs.values()
    return run


@pytest.fixture(scope="session")
def small_config():
    """Builds the config of a run that takes seconds, with dotted keys changed."""

    def build(**changes: object) -> Config:
        return _config_with(SMALL, changes)

    return build


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """Sixty images of two classes to train on, and twenty to test on."""
    sizes = {"train": {"a": 30, "b": 30}, "test": {"a": 10, "b": 10}}
    return make_once(tmp_path_factory, "images", lambda folder: write_folder(folder, sizes))


def _image_config_with(folder: Path, changes: dict[str, object]) -> Config:
    return _config_with(SMALL_IMAGES | {"source.folder": str(folder)}, changes)


@pytest.fixture
def image_config(image_folder):
    """Builds the config of a small run on images, with dotted keys changed."""

    def build(**changes: object) -> Config:
        return _image_config_with(image_folder, changes)

    return build


@pytest.fixture(scope="session")
def synthetic_runs(tmp_path_factory):
    """Work directories that the loop wrote: AnInfoNCE and InfoNCE, latents and floor known."""
    box = {"source.space": "box", "source.marginal": "uniform"}
    kinds = ("aninfonce", "infonce")

    def make(folder: Path) -> None:
        for kind in kinds:
            config = _config_with(SMALL, box | {"objective.kind": kind})
            command = f"python -m aninfonce_jax.main --config.objective.kind={kind}"
            tiny_runs.train(build_experiment(config), folder / kind, command)

    folder = make_once(tmp_path_factory, "synthetic-runs", make)
    return [folder / kind for kind in kinds]


@pytest.fixture(scope="session")
def image_runs(tmp_path_factory, image_folder):
    """Work directories that the loop wrote: InfoNCE and AnInfoNCE, classes known."""
    kinds = ("infonce", "aninfonce")

    def make(folder: Path) -> None:
        for kind in kinds:
            config = _image_config_with(image_folder, {"objective.kind": kind})
            tiny_runs.train(build_experiment(config), folder / kind)

    folder = make_once(tmp_path_factory, "image-runs", make)
    return [folder / kind for kind in kinds]


@pytest.fixture(scope="session")
def pairs_run(tmp_path_factory):
    """A work directory that the loop wrote of a run of which nothing but pairs is known."""
    return make_once(tmp_path_factory, "waves", tiny_runs.train_pairs)


@pytest.fixture(scope="session")
def known_run(tmp_path_factory):
    """A work directory that the loop wrote of a run of which everything is known."""
    return make_once(tmp_path_factory, "chords", tiny_runs.train_known)


@pytest.fixture(scope="session")
def mnist_folder(tmp_path_factory):
    """Files as MNIST has them, of sixty images to train on and thirty to test on."""
    return make_once(tmp_path_factory, "mnist", lambda folder: write_mnist(folder, 60, 30))


@pytest.fixture(scope="session")
def vae_run(tmp_path_factory, mnist_folder):
    """A work directory that the loop wrote of a small VAE: 8 x 8 pixels from 3 latents."""

    def make(folder: Path) -> None:
        config = _config_with(SMALL_VAE, {"source.folder": str(mnist_folder)})
        tiny_runs.train(build_experiment(config), folder)

    return make_once(tmp_path_factory, "vae", make)


@pytest.fixture
def decoded_config(vae_run, mnist_folder):
    """Builds the config of a small run on what the small VAE decodes, with dotted keys changed."""
    folders = {"source.folder": str(mnist_folder), "source.decoder": str(vae_run)}

    def build(**changes: object) -> Config:
        return _config_with(SMALL_DECODED | folders, changes)

    return build


@pytest.fixture
def undrawn_figures():
    """Figures of reports are written, but not drawn: that is what tests/report is for."""
    from sketched_figures import sketched_figures

    with sketched_figures():
        yield


@pytest.fixture
def fake_store(monkeypatch):
    """An object store in memory, with one bucket, behind gs://bucket."""
    import fake_store as fake_store_lib

    return fake_store_lib.install(monkeypatch)
