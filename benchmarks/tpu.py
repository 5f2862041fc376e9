"""The loss on a TPU pod, as its compiler sees it: memory, work and traffic, without a TPU.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu python benchmarks/tpu.py [--topology=v5e:16x16] [--batch=32768,262144] \
        [--dim=128] [--strategy=gather,ring] [--dtype=bfloat16]

Compiles value and gradient of AnInfoNCE (`negatives="anchors"`, so that anchors and keys are
`batch` each) for the topology and prints, per chip: the peak of device memory beyond the
inputs, the matrix products' FLOPs, the bytes that cross the interconnect, and the seconds that
each would take at the chip's published peak. The larger of the two is what bounds the loss.

FLOPs and traffic are counted by formula, for the compiler counts a loop's body once. A product is
one of [batch / chips, dim, batch]. Where scores are kept there are two of them, and three where
they are computed again for the gradient. Sent are keys with their biases and numbers, once to be
gathered, unless the compiler makes that an all-reduce of mostly zeros, which sends twice, and twice
around the ring; and for the gradient two more numbers of each. Where products round their operands
to bfloat16, keys travel so. "Moved" is the compiler's own count of the bytes that enter and leave
its operations, with a loop's body counted once: no bound where a strategy loops, as ring does over
its hops.
Peaks are those that Google publishes: v5e 197 TFLOP/s in bfloat16, 16 GiB, 200 GB/s of interconnect
(1,600 Gbit/s); v5p 459, 95 GiB, 600 GB/s; v6e 918, 32 GiB, 400 GB/s. Float32 products take six
bfloat16 passes.
"""

import argparse
import functools
import re
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import aninfonce_jax as an

# TFLOP/s in bfloat16, GiB of memory, GB/s of interconnect, per chip.
CHIPS = {"v5e": (197, 16, 200), "v5p": (459, 95, 600), "v6e": (918, 32, 400)}
COLLECTIVES = ("all-gather", "reduce-scatter", "collective-permute", "all-reduce", "all-to-all")


def compile_loss(mesh, batch, dim, strategy, dtype, precision):
    """Compiles value and gradient for abstract inputs that are spread over the mesh."""
    loss = functools.partial(
        an.aninfonce_loss, negatives="anchors", strategy=strategy, precision=precision
    )
    spread = an.over_mesh(loss, mesh, "data")
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    view = jax.ShapeDtypeStruct((batch, dim), dtype, sharding=rows)
    concentration = jax.ShapeDtypeStruct((dim,), jnp.float32, sharding=whole)
    step = jax.jit(
        jax.value_and_grad(lambda *a: spread(*a).loss, argnums=(0, 1, 2)),
        out_shardings=(whole, (rows, rows, whole)),
    )
    return step.lower(view, view, concentration).compile()


def collectives(compiled):
    """Names the collectives of a program, as often as they occur in its text."""
    text = compiled.as_text()
    counts = {name: len(re.findall(rf" {name}(?:-start)?\(", text)) for name in COLLECTIVES}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def products(compiled, strategy):
    """Returns how many matrix products of all of a chip's scores a program makes."""
    kept = strategy in ("dense", "gather") and "tpu_custom_call" not in compiled.as_text()
    return 2 if kept else 3


def bytes_sent(compiled, batch, dim, strategy, precision, chips):
    """Returns what a chip sends over the interconnect."""
    keys = dim * (2 if precision == "DEFAULT" else 4) + 4 + 4
    times = 1
    if strategy == "ring" or " all-gather(" not in compiled.as_text():
        times = 2
    return batch * (times * keys + 4 + 4) * (chips - 1) / chips


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:16x16")
    parser.add_argument("--batch", default="32768,262144,1048576")
    parser.add_argument("--dim", default="128")
    parser.add_argument("--strategy", default="gather,ring")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--precision", default="DEFAULT", choices=("DEFAULT", "HIGHEST"))
    arguments = parser.parse_args()
    mesh = an.Placement.of_topology(arguments.topology).mesh
    tflops, memory, bandwidth = CHIPS[arguments.topology.split(":")[0]]
    passes = 1 if arguments.precision == "DEFAULT" else 6
    print(f"{arguments.topology}, {mesh.size} devices, {memory} GiB each, {arguments.dtype}")
    for batch in map(int, arguments.batch.split(",")):
        for dim in map(int, arguments.dim.split(",")):
            for strategy in arguments.strategy.split(","):
                start = time.perf_counter()
                label = f"{batch:>8} x {dim:<4} {strategy:8}"
                try:
                    compiled = compile_loss(
                        mesh,
                        batch,
                        dim,
                        strategy,
                        jnp.dtype(arguments.dtype),
                        jax.lax.Precision[arguments.precision],
                    )
                except jax.errors.JaxRuntimeError as error:
                    wanted = re.search(r"\(([\d.]+\w)\) exceeds available HBM", str(error))
                    if wanted is None:
                        raise
                    print(f"{label} does not fit: it would take {wanted[1]}iB", flush=True)
                    continue
                analysis = compiled.memory_analysis()
                held = max(analysis.temp_size_in_bytes, analysis.peak_memory_in_bytes)
                count = products(compiled, strategy)
                flops = count * 2 * batch**2 * dim / mesh.size
                traffic = bytes_sent(compiled, batch, dim, strategy, arguments.precision, mesh.size)
                seconds = passes * flops / tflops / 1e12, traffic / bandwidth / 1e9
                print(
                    f"{label} {held / 2**20:>9.1f} MiB"
                    f"  {count} products {flops / 1e12:>8.3f} TFLOP {1e3 * seconds[0]:>8.2f} ms"
                    f"  {traffic / 2**30:>6.2f} GiB sent {1e3 * seconds[1]:>7.2f} ms"
                    f"  {compiled.cost_analysis()['bytes accessed'] / 2**30:>6.2f} GiB moved"
                    f"  {'compute' if seconds[0] > seconds[1] else 'interconnect'}"
                    f"  [{collectives(compiled)}; compiled in {time.perf_counter() - start:.0f} s]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
