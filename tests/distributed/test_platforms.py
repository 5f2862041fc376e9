"""Which platform a process is about to take."""

import pytest

from aninfonce_jax.distributed import platforms
from aninfonce_jax.distributed.platforms import expected_platform


@pytest.mark.parametrize(
    ("asked", "platform"),
    [("cpu", "cpu"), ("cuda", "gpu"), ("rocm,cpu", "gpu"), ("tpu,cpu", "tpu"), ("METAL", "METAL")],
)
def test_what_is_asked_for_counts(tmp_path, asked, platform):
    (tmp_path / "accel0").touch()
    assert expected_platform({"JAX_PLATFORMS": asked}, tmp_path) == platform


@pytest.mark.parametrize(
    ("file", "environ", "platform"),
    [
        ("accel0", {}, "tpu"),
        ("vfio/0", {"JAX_PLATFORMS": ""}, "tpu"),
        ("vfio/vfio", {}, "cpu"),
        ("nvidia3", {}, "gpu"),
        ("nvidia3", {"CUDA_VISIBLE_DEVICES": "1"}, "gpu"),
        ("nvidia3", {"CUDA_VISIBLE_DEVICES": ""}, "cpu"),
        ("null", {}, "cpu"),
    ],
)
def test_otherwise_what_there_is(monkeypatch, tmp_path, file, environ, platform):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    monkeypatch.setattr(platforms, "find_spec", lambda name: name)
    assert expected_platform(environ, tmp_path) == platform
    monkeypatch.setattr(platforms, "find_spec", lambda name: None)
    assert expected_platform(environ, tmp_path) == "cpu", "jax can't reach them"
