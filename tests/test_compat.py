"""What older versions of jax call differently."""

import types

import pytest

from aninfonce_jax.compat import abstract_platform


@pytest.mark.parametrize(
    ("kind", "platform"),
    [("cpu", "cpu"), ("TPU v5 lite", "tpu"), ("TPU v4", "tpu"), ("NVIDIA H100", "gpu")],
)
def test_a_platform_is_told_by_the_kind_of_a_device_where_nothing_else_tells_it(kind, platform):
    assert abstract_platform(types.SimpleNamespace(device_kind=kind, num_cores=1)) == platform
    newer = types.SimpleNamespace(device_kind="a name", platform=platform)
    assert abstract_platform(newer) == platform
