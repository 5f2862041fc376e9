"""The training step on images on a TPU slice, as its compiler sees it, without a TPU.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu python benchmarks/tpu_images.py [--config=configs/imagenet.py:aninfonce] \
        [--topology=v5e:4x4] [--batch-size=4096] [--objective=infonce] [--strategy=pallas] \
        [--microbatches=4] [--no-remat]

Compiles what a run of the config would: augmentation, encoder, loss, gradient and optimiser, for
a batch split over the topology's chips. v5e:4x4 is a v5e-16; v5p:2x2x4 is a v5p-32, named after
its 32 cores: 16 chips, and one device each. No images are needed. Takes minutes.

Memory, FLOPs and traffic are the compiler's and per chip. Its FLOPs include the kernels' own
estimate, and count a loop once; with micro-batches the encoder is such a loop, so that they are
left out. Milliseconds are what the work, and the bytes that enter and leave the operations, would
take at the published peak of the chip: bounds, not measurements.
"""

import argparse
import collections
import math
import re
import time

import jax
from jax.stages import Compiled
from tpu import CHIPS, COLLECTIVES

from aninfonce_jax.build import build_shapes
from aninfonce_jax.config import resolve
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import Config
from aninfonce_jax.forecast.hlo import read_traffic
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.step import lower_train_step

# GB/s of a chip's memory, as published.
MEMORY_BANDWIDTH = {"v5e": 819, "v5p": 2765, "v6e": 1638}
KERNEL = 'custom_call_target="tpu_custom_call"'


def read_config(name: str, **changes: object) -> Config:
    """Returns a config of images with dotted keys changed, "__" for the dot; None: as it is."""
    given = {key.replace("__", "."): value for key, value in changes.items() if value is not None}
    (config,) = resolve(load_config(name), given | {"source.folder": "none"}).runs.values()
    return config


def traffic(text: str) -> str:
    """Lists the collectives of a program: how often each is written, and what they put out."""
    counts, sizes = collections.Counter(), collections.Counter()
    kinds = "|".join(COLLECTIVES)
    for shapes, kind, start in re.findall(rf" = (\S.*?) ({kinds})(-start)?\(", text):
        # What is started shows its operands along with its results.
        arrays = [
            math.prod(map(int, filter(None, dims.split(",")))) * int(bits or 8) / 8
            for bits, dims in re.findall(r"[a-z]+(\d*)\[([\d,]*)\]", shapes)
        ]
        counts[kind] += 1
        sizes[kind] += max(arrays) if start and kind != "all-reduce" else sum(arrays)
    return "; ".join(f"{n} {kind}, {sizes[kind] / 2**20:.1f} MiB" for kind, n in counts.items())


def report(compiled: Compiled, config: Config, devices: int, chip: str) -> None:
    """Prints what the compiler says of a step."""
    tflops, capacity, _ = CHIPS[chip]
    memory, cost, text = compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
    gib = 2**30
    arguments, temporaries = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    total = arguments + temporaries + results + memory.generated_code_size_in_bytes
    print(f"arguments    {arguments / gib:8.2f} GiB")
    print(
        f"results      {results / gib:8.2f} GiB beside {memory.alias_size_in_bytes / gib:.2f} "
        "that take the arguments' place"
    )
    print(f"temporaries  {temporaries / gib:8.2f} GiB")
    print(f"program      {memory.generated_code_size_in_bytes / gib:8.2f} GiB")
    print(
        f"total        {total / gib:8.2f} of {capacity} GiB; "
        f"peak by the schedule {memory.peak_memory_in_bytes / gib:.2f}"
    )
    if config.train.microbatches == 1:
        flops, moved = cost["flops"], cost["bytes accessed"]
        each = flops * devices / config.train.batch_size
        print(
            f"FLOPs        {flops / 1e12:8.2f} T, {each / 1e9:.1f} G per image (both views); "
            f"{1e3 * flops / tflops / 1e12:.0f} ms at peak"
        )
        print(
            f"moved        {moved / gib:8.2f} GiB; "
            f"{1e3 * moved / MEMORY_BANDWIDTH[chip] / 1e9:.0f} ms at peak"
        )
    in_memory = read_traffic(text, devices)
    print(
        f"moved in HBM {in_memory.memory / gib:8.2f} GiB, as read off the program, "
        f"{in_memory.memory_once / gib:.2f} with loops counted once; "
        f"{1e3 * in_memory.memory / MEMORY_BANDWIDTH[chip] / 1e9:.0f} ms at peak"
    )
    print(f"kernels      {text.count(KERNEL):8d} Pallas calls")
    print(f"collectives  {traffic(text)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/imagenet.py:aninfonce")
    parser.add_argument("--topology", default="v5e:4x4")
    parser.add_argument("--batch-size", type=int, help="default: the config's")
    parser.add_argument("--objective", choices=("infonce", "aninfonce"))
    parser.add_argument("--strategy", help="of the loss; default: the config's")
    parser.add_argument("--microbatches", type=int)
    parser.add_argument("--remat", action=argparse.BooleanOptionalAction)
    parser.add_argument("--text", help="a file to write the compiled program to")
    arguments = parser.parse_args()
    config = read_config(
        arguments.config,
        train__batch_size=arguments.batch_size,
        train__microbatches=arguments.microbatches,
        encoder__remat=arguments.remat,
        objective__kind=arguments.objective,
        objective__strategy=arguments.strategy,
    )
    placement = Placement.of_topology(arguments.topology)
    print(
        f"{config.name}: {config.encoder.kind}, {config.objective.kind}, batch "
        f"{config.train.batch_size} on {arguments.topology}, {placement.size} devices",
        flush=True,
    )
    start = time.perf_counter()
    try:
        compiled = lower_train_step(build_shapes(config), placement).compile()
    except jax.errors.JaxRuntimeError as error:
        wanted = re.search(r"\(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)", str(error))
        if wanted is None:
            raise
        print(f"does not fit: it would take {wanted[1]}iB of {wanted[2]}iB")
        return
    print(f"compiled in  {time.perf_counter() - start:8.0f} s")
    report(compiled, config, placement.size, arguments.topology.split(":")[0])
    if arguments.text:
        with open(arguments.text, "w") as file:
            file.write(compiled.as_text())


if __name__ == "__main__":
    main()
