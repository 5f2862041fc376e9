"""What was compiled is kept where it is safe, within bounds, and trouble is told in one line."""

import os
import subprocess
import sys
import warnings

import jax
import pytest
from jax._src import compilation_cache as store_of_jax

from aninfonce_jax import compile_cache


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """No cache of the tests' own, a cache folder of the user's, and what is set."""
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(store_of_jax, "LRUCache", store_of_jax.LRUCache)
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


def test_a_damaged_program_is_never_given_back(tmp_path):
    programs = compile_cache.CheckedPrograms(str(tmp_path))
    assert programs.get("one") is None
    for key, program in (("one", b"a program"), ("other", b"another")):
        programs.put(key, program)
        programs.put(key, program)
        assert programs.get(key) == program
    one, other = (tmp_path / f"{key}-checked-cache" for key in ("one", "other"))
    assert sorted(tmp_path.iterdir()) == [one, other]
    whole = one.read_bytes()
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    cut = [whole[:size] for size in range(len(whole))]
    for damaged in (*flipped, *cut, whole + b"more", other.read_bytes()):
        one.write_bytes(damaged)
        with pytest.raises(ValueError, match="is not what was written"):
            programs.get("one")
    # Compiled again, it replaces what was damaged.
    programs.put("one", b"a program")
    assert programs.get("one") == b"a program"


def test_a_program_that_cannot_be_written_leaves_nothing(tmp_path):
    programs = compile_cache.CheckedPrograms(str(tmp_path))
    (tmp_path / "key-checked-cache").mkdir()
    with pytest.raises(OSError, match="directory"):
        programs.put("key", b"a program")
    assert [path.name for path in tmp_path.iterdir()] == ["key-checked-cache"]


def test_nothing_is_kept_by_a_jax_whose_files_cannot_be_checked(settings, monkeypatch):
    monkeypatch.delattr(store_of_jax, "LRUCache")
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is None


PROGRAM = """
import jax, jax.numpy as jnp
from aninfonce_jax import compile_cache
compile_cache._LEAST_SECONDS = 0
compile_cache.use()
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(12.0).reshape(4, 3).T[:, :3]).tolist())
"""


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="before jax 0.10 programs for CPUs are not kept"
)
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
    kept = sorted(tmp_path.rglob("*-checked-cache"))
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
    for path in kept:
        programs = compile_cache.CheckedPrograms(str(path.parent))
        assert programs.get(path.name.removesuffix("-checked-cache"))


@pytest.mark.parametrize("version", [(0, 7, 2), (0, 9, 2)])
def test_programs_for_a_cpu_are_not_kept_by_older_versions(settings, monkeypatch, version):
    monkeypatch.setattr(jax, "__version_info__", version)
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is None
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    compile_cache.use()
    assert settings["jax_compilation_cache_dir"] is not None
