"""The training step on images on a TPU slice, as its compiler sees it, without a TPU.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu python benchmarks/tpu_images.py [--config=configs/imagenet.py:aninfonce] \
        [--topology=v5e:4x4] [--views] [train.batch_size=4096] [objective.strategy=pallas] ...

Shows what `--mode=compile --compiles=0` does, and beside it the two measures of moved bytes that
it is made of: the compiler's own estimate, in which a loop counts once, and what can be read off
its program. Takes minutes, and no images. `--views` compiles only how views are made: augmented,
joined and normalised, as the network takes them; that takes half a minute.
"""

import argparse

import jax

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
from aninfonce_jax.forecast.hlo import Traffic, read_traffic
from aninfonce_jax.forecast.lines import lines
from aninfonce_jax.models.resnet import standardise
from aninfonce_jax.objectives.objective import join_views
from aninfonce_jax.placement import Placement, on
from aninfonce_jax.report.quantities import duration, size
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, PyTree


def measure_views(
    experiment: Experiment, placement: Placement, dtype: str
) -> tuple[float, Traffic]:
    """Returns the compiler's estimate of bytes, and what can be read off the program."""
    batch = experiment.batch_size

    def views(key: Array, fed: PyTree) -> Array:
        pairs = placement.constrain(experiment.source.pairs(key, fed, batch))
        return standardise(join_views(pairs), dtype)

    key = on(placement.whole, jax.eval_shape(jax.random.key, 0))
    fed = on(placement.split, experiment.source.fed(batch))
    compiled = jax.jit(views, out_shardings=placement.split).lower(key, fed).compile()
    traffic = read_traffic(compiled.as_text(), placement.mesh.shape)
    return compiled.cost_analysis()["bytes accessed"], traffic


def show(moved: float, traffic: Traffic, bandwidth: float) -> None:
    """Prints both measures of moved bytes."""
    for what, amount in {
        "by the compiler's estimate": moved,
        "to and from HBM, as read off the program": traffic.memory,
        "to and from HBM, loops counted once": traffic.memory_once,
    }.items():
        print(f"  moved {what}: {size(amount)}; {duration(amount / bandwidth)} at peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/imagenet.py:aninfonce")
    parser.add_argument("--topology", default="v5e:4x4")
    parser.add_argument("--views", action="store_true")
    parser.add_argument("changes", nargs="*", help="values of the config, such as train.steps=10")
    arguments = parser.parse_args()
    changes = dict(change.split("=", 1) for change in arguments.changes)
    changes = {name: config_lib.read_override(name, text) for name, text in changes.items()}
    runs = config_lib.resolve(load_config(arguments.config), {"source.folder": "none", **changes})
    (config,) = runs.runs.values()
    (topology,) = parse_topologies(arguments.topology)
    check_compilers([topology])
    experiment, placement = build_shapes(config), placement_of(topology, config.train.slices)
    if arguments.views:
        show(*measure_views(experiment, placement, config.encoder.dtype), topology.chip.bandwidth)
        return
    step = compile_step(experiment, topology, placement)
    loss = compile_loss(experiment, topology, placement)
    found = forecast(config.name, config, topology, lambda *_: step, lambda *_: loss, compiles=0)
    for line in lines(found):
        print(line)
    if step.traffic is not None:  # it fits
        show(step.compiler_bytes, step.traffic, topology.chip.bandwidth)


if __name__ == "__main__":
    main()
