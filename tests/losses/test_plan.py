"""What is decided before anything is traced, as a table; nothing here compiles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from aninfonce_jax.losses import plan
from aninfonce_jax.losses.plan import Plan, Problem, Settings

MESH = {"devices": 4}
# Few, more than a CPU's cache holds, more than are computed at once.
FEW, MORE, MANY = 1000, 2000, 10_000


def make(
    rows: int,
    keys: int | None = None,
    devices: int = 1,
    platform: str = "cpu",
    kernels: bool | None = True,
    wide: bool = False,
    dim: int = 128,
    **settings: Any,
) -> Plan:
    """Plans for `rows` points that are each other's keys, or for a bank of `keys`."""
    problem = Problem(rows, keys or rows, dim, keys is None, wide, kernels, platform)
    if devices == 1:
        return plan.make_plan(problem, Settings(**settings))
    found = []

    def mapped(x: jax.Array) -> jax.Array:
        found.append(plan.make_plan(problem, Settings(axis_name="data", **settings)))
        return x

    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",), axis_types=(AxisType.Auto,))
    spread = jax.shard_map(mapped, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    jax.eval_shape(spread, jax.ShapeDtypeStruct((devices,), jnp.float32))
    return found[0]


# What is reported, what is scored with what, where other devices' keys are, how tiles are made.
HALVED = ("chunked", "each other, halved", "here", "chunked")
KEPT = ("dense", "each other", "here", "dense")
WHOLE = ("dense", "given keys", "here", "dense")
SLABS = ("chunked", "bank", "here", "chunked")
GATHERED = ("each other", "gathered")
RING = ("given keys", "ring")
TABLE = [
    # On one device, points with each other.
    ({"rows": FEW}, KEPT),
    ({"rows": MORE}, HALVED),
    ({"rows": MORE, "platform": "gpu"}, KEPT),
    ({"rows": MORE, "platform": "tpu"}, KEPT),
    ({"rows": MANY}, HALVED),
    ({"rows": MANY, "platform": "gpu"}, HALVED),
    ({"rows": MANY, "platform": "tpu"}, ("pallas", "each other", "here", "pallas")),
    ({"rows": MANY, "platform": "tpu", "kernels": None}, HALVED),
    ({"rows": MANY, "platform": "tpu", "wide": True}, HALVED),
    ({"rows": MANY, "platform": "tpu", "precision": lax.Precision.HIGH}, HALVED),
    ({"rows": MANY, "strategy": "dense"}, WHOLE),
    ({"rows": FEW, "strategy": "chunked"}, HALVED),
    ({"rows": FEW, "strategy": "pallas"}, ("pallas", "each other", "here", "pallas")),
    ({"rows": FEW, "chunk_size": 10}, HALVED),
    # On one device, a bank.
    ({"rows": FEW, "keys": FEW}, WHOLE),
    ({"rows": FEW, "keys": MANY}, SLABS),
    ({"rows": FEW, "keys": MANY, "platform": "tpu"}, ("pallas", "bank", "here", "pallas")),
    ({"rows": FEW, "keys": MANY, "strategy": "dense"}, WHOLE),
    ({"rows": FEW, "keys": FEW, "strategy": "chunked"}, WHOLE),
    ({"rows": FEW, "keys": FEW, "strategy": "chunked", "chunk_size": 9}, SLABS),
    # On several.
    ({"rows": FEW, **MESH}, ("gather", "each other", "gathered", "dense")),
    ({"rows": MANY, **MESH}, ("gather", "each other", "gathered", "fused")),
    ({"rows": MANY, **MESH, "kernels": None}, ("gather", "each other", "gathered", "chunked")),
    ({"rows": 10 * MANY, **MESH}, ("ring", "each other", "ring", "fused")),
    ({"rows": FEW, **MESH, "strategy": "ring"}, ("ring", "each other", "ring", "dense")),
    ({"rows": MANY, **MESH, "strategy": "ring"}, ("ring", "each other", "ring", "fused")),
    ({"rows": MANY, **MESH, "strategy": "dense"}, ("dense", "each other", "gathered", "dense")),
    ({**MESH, "rows": MANY, "strategy": "chunked"}, ("chunked", *GATHERED, "chunked")),
    ({"rows": MANY, **MESH, "strategy": "pallas"}, ("pallas", "each other", "gathered", "pallas")),
    ({"rows": FEW, "keys": MANY, **MESH}, ("gather", "given keys", "gathered", "fused")),
    ({"rows": MANY, "keys": MANY, **MESH, "strategy": "ring"}, ("ring", *RING, "fused")),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "expected"), TABLE, ids=lambda x: "-".join(map(str, x)))
def test_what_is_decided(asked: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = make(**asked)
    assert (found.strategy, found.contrast, found.keys, found.tile) == expected
    assert found.axis_name == ("data" if asked.get("devices") else None)


def test_an_axis_of_one_device_is_as_good_as_none() -> None:
    for asked in ({"rows": FEW}, {"rows": MORE}, {"rows": MANY}, {"rows": FEW, "keys": MANY}):
        problem = Problem(asked["rows"], asked.get("keys", asked["rows"]), 8, "keys" not in asked,
                          False, True, "cpu")  # fmt: skip
        alone = plan.make_plan(problem, Settings())
        found = []

        def mapped(
            x: jax.Array, problem: Problem = problem, found: list[Plan] = found
        ) -> jax.Array:
            found.extend(
                plan.make_plan(problem, Settings(axis_name="data", strategy=strategy))
                for strategy in ("auto", "gather", "ring")
            )
            return x

        mesh = Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Auto,))
        spread = jax.shard_map(mapped, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
        jax.eval_shape(spread, jax.ShapeDtypeStruct((1,), jnp.float32))
        assert found == [alone] * 3


def test_tiles_are_as_large_as_asked_for() -> None:
    assert make(MANY, chunk_size=7).chunk_size == 7
    assert make(MANY).chunk_size == 512
    assert make(1024, strategy="chunked").chunk_size == 1024
    assert make(MANY, platform="tpu", kernels=None).chunk_size == 1024
    assert make(FEW, MANY).chunk_size == 1024
    assert make(FEW, devices=4).chunk_size == FEW


def test_tiles_are_larger_on_a_gpu() -> None:
    """Where every tile is handed over as kernels of its own."""
    for asked in ({"rows": MANY}, {"rows": FEW, "keys": 10 * MANY}, {"rows": 10 * MANY, **MESH}):
        assert make(**asked, platform="gpu").chunk_size == 8192
        assert make(**asked, platform="gpu", chunk_size=7).chunk_size == 7
    assert make(FEW, platform="gpu").chunk_size == FEW  # all at once


@pytest.mark.parametrize("name", ["cuda", "rocm", "gpu"])
def test_a_gpu_is_a_gpu_by_any_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: name)
    assert plan.platform_of(jnp.ones(3)) == "gpu"


def test_the_platform_is_that_of_the_mesh_where_there_is_one() -> None:
    assert plan.platform_of(jnp.ones(3)) == "cpu"
