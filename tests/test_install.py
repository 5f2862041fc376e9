"""The wheel: its packages and files, what it needs, and that it runs where nothing else is."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "aninfonce_jax"
# Where a module is not named like the distribution that brings it.
DISTRIBUTION = {
    "PIL": "pillow",
    "absl": "absl-py",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "ml_collections": "ml-collections",
    "orbax": "orbax-checkpoint",
    "tensorflow_datasets": "tensorflow-datasets",
}
# Their own requirements bring these.
WITH_ANOTHER = {
    "etils": "orbax-checkpoint",
    "fsspec": "orbax-checkpoint",
    "markupsafe": "jinja2",
    "protobuf": "tensorflow-datasets",
    "tensorstore": "orbax-checkpoint",
}
# What a part does without, or asks for by name where it is missing.
OPTIONAL = {"jax2onnx", "pyarrow", "safetensors", "sklearn", "submitit", "wandb"}
UNDECLARED_BY_TFDS = {"importlib_resources"}


@pytest.fixture(scope="module")
def settings():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines(text):
    return [line for line in text.split("\n") if line and not line.startswith("#")]


def requirement_names(text):
    return {re.split(r"[<>=~!\[ ]", line)[0] for line in lines(text)}


def imported_modules(folder):
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    return found - set(sys.stdlib_module_names) - {"aninfonce_jax"}


def test_the_wheel_has_every_package(settings):
    in_tree = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")
    }
    assert set(lines(settings["options"]["packages"])) == in_tree | {"aninfonce_jax.configs"}


def test_the_wheel_has_every_file_that_is_no_module(settings):
    files = {
        path.relative_to(ROOT)
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    shipped = set()
    for package, patterns in settings["options.package_data"].items():
        folder = Path(*package.split("."))
        for pattern in lines(patterns):
            shipped |= {path.relative_to(ROOT) for path in (ROOT / folder).glob(pattern)}
    assert files == shipped


def test_what_is_required_is_what_is_imported(settings):
    """What only tests import is in the extra `test`."""
    imported = {DISTRIBUTION.get(name, name) for name in imported_modules(PACKAGE)}
    needed = {WITH_ANOTHER.get(name, name) for name in imported} - OPTIONAL
    required = requirement_names(settings["options"]["install_requires"])
    assert required == needed | UNDECLARED_BY_TFDS


def test_every_requirement_has_a_lower_bound_and_nothing_else(settings):
    """An upper bound would tear up an environment; the lower ones are what test_oldest.sh tests."""
    extras = settings["options.extras_require"]
    for line in lines(settings["options"]["install_requires"]) + lines(extras["test"]):
        assert re.fullmatch(r"[\w-]+>=[\d.]+", line), line


def test_the_documented_bounds_are_the_real_ones(settings):
    documented = {}
    for row in (ROOT / "docs" / "requirements.md").read_text().splitlines():
        if row.startswith("| "):
            names, versions = (cell.strip().split(", ") for cell in row.split("|")[1:3])
            documented |= zip(names, versions, strict=True)
    bounds = dict(line.split(">=") for line in lines(settings["options"]["install_requires"]))
    bounds["Python"] = settings["options"]["python_requires"].removeprefix(">=")
    assert documented == bounds | {"package": "from"}


# What `pip install jax` brings.
WITH_JAX = {"jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum"}
LOSSES = """
import jax
import jax.numpy as jnp

import aninfonce_jax as an

views = jax.random.normal(jax.random.key(0), (2, 8, 3))
mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
losses = {
    "aninfonce": lambda x, scale: an.aninfonce_loss(*x, scale).loss,
    "chunked": lambda x, scale: an.aninfonce_loss(*x, scale, strategy="chunked").loss,
    "infonce": lambda x, scale: an.infonce_loss(*x, temperature=scale[1]).loss,
    "lp": lambda x, scale: an.lp_loss(*x, p=1.5, temperature=scale[2]).loss,
    "mesh": lambda x, scale: an.over_mesh(an.aninfonce_loss, mesh, "data")(*x, scale).loss,
    "sigmoid": lambda x, scale: an.sigmoid_loss(*x, temperature=scale[0]).loss,
    "towers": lambda x, scale: an.infonce_loss(*x, temperature=scale[0], negatives="cross").loss,
    "labels": lambda x, scale: an.aninfonce_loss(*x, scale, labels=jnp.arange(8) // 2).loss,
    "full": lambda x, scale: an.aninfonce_loss(*x, an.Factored(jnp.diag(scale))).loss,
    "own": lambda x, scale: an.own_negatives_loss(*x, jnp.flip(x[0])[:, None], scale),
    "queue": lambda x, scale: an.aninfonce_loss(
        *x, scale, negatives=an.Queue.empty(9, dim=3).push(views[0]).bank()
    ).loss,
    "centring": lambda x, scale: scale[0] * an.centring_penalty(x[0]),
    "spreading": lambda x, scale: scale[0] * an.spreading_penalty(x[1]),
    "keeping": lambda x, scale: scale[0] * an.keeping_penalty(*x),
}
for name, loss in losses.items():
    value_and_gradients = RUN(jax.value_and_grad(loss, argnums=(0, 1)))
    print(name, value_and_gradients(views, jnp.arange(1.0, 4.0)))
"""
TRACED = "def RUN(function): return lambda *arguments: jax.eval_shape(function, *arguments)\n"
COMPUTED = """
def RUN(function):
    def checked(*arguments):
        value, gradients = jax.jit(function)(*arguments)
        for array in (value, *gradients):
            assert jnp.isfinite(array).all(), array
            assert jnp.abs(array).max() > 0, array
        return value
    return checked
"""
ONLY = """
import sys

import jax

allowed = {allowed}

class Missing:
    def find_spec(self, name, path=None, target=None):
        # Python has modules of its own that begin with an underscore, one per platform.
        if not name.startswith("_") and name.split(".")[0] not in allowed:
            raise ModuleNotFoundError(f"not installed here: {{name}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_the_losses_need_nothing_but_jax():
    allowed = WITH_JAX | {"aninfonce_jax"} | set(sys.stdlib_module_names)
    modules = sorted(
        f"aninfonce_jax.losses.{path.stem}" for path in PACKAGE.glob("losses/[a-z]*.py")
    )
    code = ONLY.format(allowed=allowed) + "".join(f"import {name}\n" for name in modules)
    # Tracing finds what is imported only where it is used, and compiles nothing.
    code += TRACED + LOSSES
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the files of the tree in a folder that holds nothing else."""
    clone, output = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("wheel")
    for name in ("aninfonce_jax", "configs"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", output, clone)
    (built,) = output.glob("*.whl")
    return built


def run(*command, **options):
    """Runs a command that sees nothing of the tree, and returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment, **options
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def clean_environment(tmp_path):
    """Makes an environment with packages in the versions of this one, and returns its folder."""

    def make(*install):
        pinned = tmp_path / "versions.txt"
        frozen = run(sys.executable, "-m", "pip", "freeze", "--exclude-editable")
        pinned.write_text("\n".join(line for line in frozen.split("\n") if "==" in line))
        folder = tmp_path / "environment"
        venv.create(folder, with_pip=True)
        for arguments in install:
            run(folder / "bin/python", "-m", "pip", "install", "-c", pinned, *arguments)
        return folder / "bin"

    return make


@pytest.mark.slow
def test_the_losses_alone_in_a_clean_environment(wheel, clean_environment, tmp_path):
    programs = clean_environment(["jax"], ["--no-deps", wheel])
    installed = run(programs / "python", "-m", "pip", "list", "--format=freeze")
    names = {line.split("==")[0].lower().replace("-", "_") for line in lines(installed)}
    assert names <= WITH_JAX | {"aninfonce_jax", "pip", "setuptools"}
    run(programs / "python", "-W", "error", "-c", COMPUTED + LOSSES, cwd=tmp_path)


@pytest.mark.slow
def test_the_wheel_runs_the_quickstart_in_a_clean_environment(wheel, clean_environment, tmp_path):
    programs = clean_environment([wheel])
    small = [
        "--config.train.steps=4",
        "--config.train.batch_size=16",
        "--config.eval.samples=128",
        "--config.source.mixing.candidates=50",
        "--config.encoder.widths=(16,16)",
    ]
    main = [programs / "python", "-m", "aninfonce_jax.main"]
    out = run(*main, *small, "--workdir=first", cwd=tmp_path)
    assert "report: first/report.html" in out
    assert (tmp_path / "first" / "report.html").stat().st_size > 10_000
    for name in ("quickstart", "configs/quickstart.py"):
        run(programs / "aninfonce", f"--config={name}", *small, "--workdir=first", cwd=tmp_path)
    assert "examples:" in run(programs / "aninfonce", "--help", cwd=tmp_path)
    folder = f"--workdir={tmp_path / 'first' / 'aninfonce'}"
    assert "diagnosis:" in run(programs / "aninfonce", "--mode=diagnose", folder, cwd=tmp_path)
    (tmp_path / "two.py").write_text("def sweep():\n    return {'seeds': (0, 1)}\n")
    swept = [
        *(programs / "aninfonce", "--mode=sweep", "--config=quickstart", "--sweep=two.py"),
        *("--config.compare=", *small, "--workdir=swept"),
    ]
    assert "swept/sweep.html" in run(*swept, cwd=tmp_path)
