"""The loss on GPUs, as their compiler sees it: kernels launched and memory, without a GPU.

    pip install -e '.[gpu-compile]'
    JAX_PLATFORMS=cpu python benchmarks/gpu.py [--topology=h100:1] [--batch=32768] [--dim=128] \
        [--strategy=auto] [--chunk=default,1024,4096] [--dtype=bfloat16] [--precision=HIGHEST]

Compiles value and gradient of AnInfoNCE (`negatives="anchors"`) and prints, per GPU: the peak of
device memory, inputs and gradients included; and how many kernels are launched, which is what the
compiled program lists, with a loop's body as often as it runs.
What a kernel takes is not known without a GPU, and a real one tries several variants of each
product before it chooses.
"""

import argparse
import collections
import functools
import re

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import aninfonce_jax as an
from aninfonce_jax.forecast.gpu_targets import target_text

# What the GPU is handed as work of its own.
LAUNCHED = re.compile(
    r" (fusion|custom-call|copy|dot|reduce|sort|scatter|gather|transpose|concatenate|pad|"
    r"dynamic-update-slice|dynamic-slice|broadcast|convert|select|add|multiply|"
    r"(?:all-gather|all-reduce|reduce-scatter|collective-permute)(?:-start)?)\("
)
CALLED = re.compile(
    r"(?:to_apply|calls|branch_computations|true_computation|false_computation)="
    r"(\{[^}]*\}|%[\w.-]+)"
)
TRIPS = re.compile(r'known_trip_count"?:\{"?n"?:"?(\d+)')


def placement_of(topology):
    """Returns the abstract placement of a topology such as h100:8, or h100:2x8 of two nodes."""
    chip, _, counts = topology.partition(":")
    nodes, _, each = counts.rpartition("x")
    return an.Placement.of_topology(
        topology, "cuda", target_config=target_text(chip), topology=f"1x{nodes or 1}x{each}"
    )


def compile_loss(placement, batch, dim, strategy, chunk_size, dtype, precision):
    """Compiles value and gradient for abstract inputs that are spread over the GPUs."""
    mesh = placement.mesh
    loss = functools.partial(
        an.aninfonce_loss,
        negatives="anchors",
        strategy=strategy,
        chunk_size=chunk_size,
        precision=jax.lax.Precision[precision],
    )
    spread = an.over_mesh(loss, mesh, "data")
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    view = jax.ShapeDtypeStruct((batch, dim), dtype, sharding=rows)
    concentration = jax.ShapeDtypeStruct((dim,), jnp.float32, sharding=whole)
    step = jax.jit(jax.value_and_grad(lambda *a: spread(*a).loss, argnums=(0, 1, 2)))
    return step.lower(view, view, concentration).compile()


def launches(text):
    """Returns how many kernels a compiled program launches."""
    computations, entry, current = collections.defaultdict(list), "", ""
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.-]+) .*\{$", line)
        if head and not line.startswith(" "):
            current = head[2]
            entry = current if head[1] else entry
        elif line.startswith(" "):
            computations[current].append(line)

    @functools.cache
    def count(name):
        total = 0
        for line in computations[name]:
            if " while(" in line:
                body = re.search(r"body=%([\w.-]+)", line)[1]
                trips = TRIPS.search(line)
                total += (int(trips[1]) if trips else 1) * count(body)
            elif " conditional(" in line or " call(" in line or "async-start(" in line:
                names = re.findall(r"%([\w.-]+)", " ".join(CALLED.findall(line)))
                total += max(map(count, names), default=0)
            elif LAUNCHED.search(line):
                total += 1
        return total

    return count(entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="h100:1")
    parser.add_argument("--batch", default="32768")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--chunk", default="default,1024,4096", help="sides of a tile of scores")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--precision", default="HIGHEST", choices=("DEFAULT", "HIGH", "HIGHEST"))
    arguments = parser.parse_args()
    placement = placement_of(arguments.topology)
    for batch in map(int, arguments.batch.split(",")):
        for strategy in arguments.strategy.split(","):
            for chunk in arguments.chunk.split(","):
                compiled = compile_loss(
                    placement,
                    batch,
                    arguments.dim,
                    strategy,
                    None if chunk == "default" else int(chunk),
                    jnp.dtype(arguments.dtype),
                    arguments.precision,
                )
                peak = compiled.memory_analysis().peak_memory_in_bytes / 2**20
                print(
                    f"{arguments.topology}, {batch} x {arguments.dim}, {strategy}, tiles {chunk}, "
                    f"{arguments.dtype}, {arguments.precision}: {launches(compiled.as_text())} "
                    f"launches, peak {peak:.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
