"""What was compiled is kept where it is safe, within bounds, and trouble is told in one line."""

import os
import subprocess
import sys
import warnings

import jax
import pytest

from aninfonce_jax import compile_cache


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """No cache of the tests' own, a cache folder of the user's, and what is set."""
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    made = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True}

    class Config:
        def __getattr__(self, name):
            return made[name]

        def update(self, name, value):
            made[name] = value

    monkeypatch.setattr(jax, "config", Config())
    return made


def test_a_folder_of_the_user_and_of_the_kind_of_machine(settings, tmp_path, monkeypatch):
    compile_cache.use()
    folder = compile_cache.default_folder()
    assert settings["jax_compilation_cache_dir"] == str(folder)
    assert folder.parent == tmp_path / "aninfonce_jax" / "xla"
    assert folder.is_dir()
    monkeypatch.setattr(compile_cache, "_describe_cpu", lambda: "another")
    assert compile_cache.default_folder() != folder
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert compile_cache.default_folder().is_absolute()


@pytest.mark.parametrize(
    "own", [{"jax_compilation_cache_dir": "/mine"}, {"jax_enable_compilation_cache": False}]
)
def test_settings_of_the_user_stay(settings, tmp_path, own):
    settings |= own
    expected = dict(settings)
    compile_cache.use()
    assert settings == expected
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told_in_a_line(settings, tmp_path, capsys):
    (tmp_path / "aninfonce_jax").write_text("a file")
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "what is compiled can't be kept in" in line


def test_the_oldest_files_go_first(tmp_path):
    for age, name in enumerate(["d", "c", "b", "a"]):
        path = tmp_path / f"{name}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "mine").write_bytes(bytes(1000))
    compile_cache.trim(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c-cache", "d-cache", "mine"]


def test_trouble_is_told_once_and_other_warnings_are_shown(settings, capsys):
    shown = []
    warnings.showwarning = lambda message, *rest: shown.append(str(message))
    compile_cache.use()
    for text in ("Error reading persistent compilation cache entry for 'x'", "other") * 2:
        warnings.showwarning(UserWarning(text), UserWarning, "file", 1)
    assert shown == ["other", "other"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "is of no use, so that it is compiled: Error reading" in line


PROGRAM = """
import jax, jax.numpy as jnp
from aninfonce_jax import compile_cache
compile_cache._LEAST_SECONDS = 0
compile_cache.use()
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(12.0).reshape(4, 3).T[:, :3]).tolist())
"""


def test_programs_are_kept_and_damaged_ones_compiled_again(tmp_path):
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAX_COMPILATION_CACHE_DIR", "PYTHONWARNINGS")
    } | {"XDG_CACHE_HOME": str(tmp_path)}

    def run():
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip

    first = run()
    kept = sorted(tmp_path.rglob("*-cache"))
    assert kept
    second = run()
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert sorted(tmp_path.rglob("*-cache")) == kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-20])
    third = run()
    assert third.stdout == first.stdout
    (line,) = third.stderr.splitlines()
    assert line.startswith("aninfonce_jax: warning: a compiled program in")


def test_programs_for_a_cpu_are_not_kept_by_a_version_that_crashes_on_them(settings, monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", (0, 7, 2))
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is None
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is not None
