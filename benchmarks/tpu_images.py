"""The training step on images on a TPU slice, as its compiler sees it, without a TPU.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu python benchmarks/tpu_images.py [--config=configs/imagenet.py:aninfonce] \
        [--topology=v5e:4x4] [train.batch_size=4096] [objective.strategy=pallas] ...

Shows what `--mode=compile --compiles=0` does, and beside it the two measures of moved bytes that
it is made of: the compiler's own estimate, in which a loop counts once, and what can be read off
its program. Takes minutes, and no images.
"""

import argparse

from aninfonce_jax import config as config_lib
from aninfonce_jax.build import build_shapes
from aninfonce_jax.config.file import load_config
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.compiler import (
    check_compilers,
    compile_loss,
    compile_step,
    placement_of,
)
from aninfonce_jax.forecast.forecast import forecast
from aninfonce_jax.forecast.lines import lines
from aninfonce_jax.report.quantities import duration, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/imagenet.py:aninfonce")
    parser.add_argument("--topology", default="v5e:4x4")
    parser.add_argument("changes", nargs="*", help="values of the config, such as train.steps=10")
    arguments = parser.parse_args()
    changes = dict(change.split("=", 1) for change in arguments.changes)
    changes = {name: config_lib.read_override(name, text) for name, text in changes.items()}
    runs = config_lib.resolve(load_config(arguments.config), {"source.folder": "none", **changes})
    (config,) = runs.runs.values()
    (topology,) = parse_topologies(arguments.topology)
    check_compilers([topology])
    experiment, placement = build_shapes(config), placement_of(topology, config.train.slices)
    step = compile_step(experiment, topology, placement)
    loss = compile_loss(experiment, topology, placement)
    found = forecast(config.name, config, topology, lambda *_: step, lambda *_: loss, compiles=0)
    for line in lines(found):
        print(line)
    if step.traffic is None:  # it does not fit
        return
    moved = {
        "by the compiler's estimate": step.compiler_bytes,
        "to and from HBM, as read off the program": step.traffic.memory,
        "to and from HBM, loops counted once": step.traffic.memory_once,
    }
    for what, amount in moved.items():
        seconds = amount / topology.chip.bandwidth
        print(f"  moved {what}: {size(amount)}; {duration(seconds)} at peak")


if __name__ == "__main__":
    main()
