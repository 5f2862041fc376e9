"""A ring that is left half-way, against the ring: a sketch of both, as a TPU's compiler sees them.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu python benchmarks/half_ring.py \
        [--topology=v5e:16x16] [--batch=1048576] [--dim=128]
    JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python benchmarks/half_ring.py --check

Points are each other's keys, spread over devices. All round the ring every device scores its own
points with everybody's: each score is computed on two devices, forward and backward. Half-way, a
device that is visited also adds to the visitors' sums and gradients, which follow them one hop
late, so that they travel while the next tile is computed, and go home from there. The two devices
opposite each other in an even ring each compute their own side.

A sketch: scores are bounded, so that one exponential serves rows and columns, and a visit is one
tile, where the loss has running maxima, chunks and kernels. All of that is in favour of half-way.

Prints, per chip: matrix products of one tile, what collectives send and whether the program goes on
meanwhile, memory, and the cycles that the compiler itself estimates for its operations, loops as
often as they run. `--check` compares both with float64 on 3, 5 and 8 devices.
"""

import argparse
import functools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from aninfonce_jax.forecast import hlo
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Array, PyTree

# No score is larger.
BOUND = 10.0


def exponentials(rows: Array, columns: Array, *, own: bool = False) -> Array:
    """Returns exp(score - BOUND), and zero for a point with itself."""
    scores = jnp.einsum("id,jd->ij", rows, columns, preferred_element_type=jnp.float32)
    found = jnp.exp(scores - BOUND)
    return jnp.where(jnp.eye(len(rows), dtype=bool), 0, found) if own else found


def product(weights: Array, vectors: Array) -> Array:
    """Returns weighted sums of vectors, float32."""
    weights = weights.astype(vectors.dtype)
    return jnp.einsum("ij,jd->id", weights, vectors, preferred_element_type=jnp.float32)


def send(x: PyTree, size: int, hops: int = 1) -> PyTree:
    """Hands arrays to the device so many hops further."""
    route = [(device, (device + hops) % size) for device in range(size)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, "data", route), x)


def ring(v: Array, size: int) -> tuple[Array, Array]:
    """Returns the log-sum-exp of each point, and the gradient of their sum."""

    def visit(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        keys, sums = carry
        return (send(keys, size), sums + exponentials(v, keys).sum(1)), None

    start = send(v, size), exponentials(v, v, own=True).sum(1)
    (keys, sums), _ = lax.scan(visit, start, length=size - 2)
    sums += exponentials(v, keys).sum(1)
    parts = 1 / sums

    def gradient(keys: Array, theirs: Array, *, own: bool = False) -> Array:
        weights = exponentials(v, keys, own=own) * (parts[:, None] + theirs[None])
        return product(weights, keys)

    def visit_again(carry: PyTree, _: None) -> tuple[PyTree, None]:
        others, total = carry
        return (send(others, size), total + gradient(*others)), None

    again = send((v, parts), size), gradient(v, parts, own=True)
    (others, total), _ = lax.scan(visit_again, again, length=size - 2)
    return jnp.log(sums) + BOUND, total + gradient(*others)


def half_ring(v: Array, size: int) -> tuple[Array, Array]:
    """Returns what `ring` does."""
    visits = (size - 1) // 2
    is_even = size % 2 == 0

    def visit(carry: PyTree, _: None) -> tuple[PyTree, None]:
        keys, sums, following, new = carry
        keys_next, following = send((keys, following + new), size)
        found = exponentials(v, keys)
        return (keys_next, sums + found.sum(1), following, found.sum(0)), None

    sums = exponentials(v, v, own=True).sum(1)
    none = jnp.zeros_like(sums)
    start = send(v, size), sums, none, none
    (keys, sums, following, new), _ = lax.scan(visit, start, length=visits)
    if is_even:
        sums += exponentials(v, keys).sum(1)
    sums += send(following + new, size, -visits)
    parts = 1 / sums

    def weights(keys: Array, theirs: Array, *, own: bool = False) -> Array:
        return exponentials(v, keys, own=own) * (parts[:, None] + theirs[None])

    def visit_again(carry: PyTree, _: None) -> tuple[PyTree, None]:
        others, total, following, new = carry
        others_next, following = send((others, following + new), size)
        found = weights(*others)
        return (
            others_next,
            total + product(found, others[0]),
            following,
            product(found.T, v),
        ), None

    total = product(weights(v, parts, own=True), v)
    none = jnp.zeros_like(total)
    again = send((v, parts), size), total, none, none
    (others, total, following, new), _ = lax.scan(visit_again, again, length=visits)
    if is_even:
        total += product(weights(*others), others[0])
    return jnp.log(sums) + BOUND, total + send(following + new, size, -visits)


def tile_products(function: Callable[..., object], size: int) -> int:
    """Returns how many products of one tile a device makes, for value and gradient."""
    if function is ring:
        return 3 * size
    # Its own tile, visits that count for both sides, and the one opposite.
    return 3 + 4 * ((size - 1) // 2) + 3 * (size % 2 == 0)


def over_mesh(function: Callable[..., tuple[Array, Array]], mesh: Mesh) -> Callable:
    """Returns the function for points that are spread over a mesh."""
    on_one = functools.partial(function, size=mesh.size)
    return jax.jit(jax.shard_map(on_one, mesh=mesh, in_specs=P("data"), out_specs=P("data")))


def estimated_cycles(text: str) -> int:
    """Returns the sum of the compiler's estimates, loops as often as they run."""
    computations, entry = hlo._parse(text)
    return sum(
        times * int(cycles)
        for name, times, _ in hlo._runs(computations, entry)
        for one in computations[name].values()
        for cycles in re.findall(r'"estimated_cycles":"?(\d+)', one.rest)
    )


def check() -> None:
    """Prints how far both are from float64."""
    for size in (3, 5, 8):
        mesh = Mesh(np.array(jax.devices()[:size]), ("data",), axis_types=(AxisType.Auto,))
        v = np.random.default_rng(0).normal(size=(16 * size, 6))
        v *= np.sqrt(BOUND) / np.linalg.norm(v, axis=1, keepdims=True)
        weights = np.exp(v @ v.T) * (1 - np.eye(len(v)))
        sums = weights.sum(1)
        weights /= sums[:, None]
        exact = np.log(sums), (weights + weights.T) @ v
        for function in (ring, half_ring):
            found = over_mesh(function, mesh)(v.astype(np.float32))
            errors = [
                np.abs(ours - theirs).max() / np.abs(theirs).max()
                for ours, theirs in zip(found, exact, strict=True)
            ]
            print(f"{size} devices, {function.__name__:9}: value off by {errors[0]:.1e}, "
                  f"gradient by {errors[1]:.1e}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:16x16")
    parser.add_argument("--batch", type=int, default=1048576)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    mesh = Placement.of_topology(arguments.topology).mesh
    points = jax.ShapeDtypeStruct(
        (arguments.batch, arguments.dim), jnp.bfloat16, sharding=NamedSharding(mesh, P("data"))
    )
    for function in (ring, half_ring):
        compiled = over_mesh(function, mesh).lower(points).compile()
        text, peak = compiled.as_text(), compiled.memory_analysis().peak_memory_in_bytes
        print(
            f"{function.__name__:9} {tile_products(function, mesh.size)} tile products, "
            f"{estimated_cycles(text) / 1e6:.1f} M cycles, peak {peak / 2**20:.1f} MiB"
        )
        for one in hlo.read_traffic(text, mesh.shape).collectives:
            print(
                f"          {one.count} {one.kind}, {one.bytes / 2**20:.1f} MiB, "
                f"{'asynchronous' if one.is_async else 'blocking'}"
            )


if __name__ == "__main__":
    main()
