"""From a config and topologies to numbers: what a run would take there, as plain values."""

import dataclasses
import importlib.metadata
import math
from collections.abc import Callable, Mapping
from typing import Any

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.forecast.chips import Topology
from aninfonce_jax.forecast.compiler import CompiledStep, Memory
from aninfonce_jax.forecast.roofline import EFFICIENCY, Bounds, find_bounds, sent
from aninfonce_jax.forecast.search import (
    MOST_TIMES,
    BatchSearch,
    Remedy,
    Trial,
    remedies,
    search_batch,
)

# A step shorter than this, in seconds, is bound by latency, of which no published peak tells.
_SHORT = 1e-3
# Compiles beyond the first take no longer than this, unless a number is asked for.
PATIENCE = 300.0
MOST_COMPILES = 12
# Ways to make a run fit are worth some waiting: without them there is no run.
_LEAST_REMEDIES = 3
# A change after which a step takes more than this share of the memory before does not help.
_HELPS = 0.98
# Examples of the training split, for those data sets whose size everybody knows.
EXAMPLES = {"mnist": 60_000, "cifar10": 50_000, "imagenet": 1_281_167, "imagenet2012": 1_281_167}

# Compiles a config's step for a topology.
Compile = Callable[[Config, Topology], CompiledStep]
# Compiles its loss alone, and returns the bytes that it takes on a device.
CompileLoss = Callable[[Config, Topology], int]
Say = Callable[[str], None]


def forecast(
    name: str,
    config: Config,
    topology: Topology,
    compile_for: Compile,
    compile_loss_for: CompileLoss,
    *,
    compiles: int | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Returns what a run would take on a topology.

    Args:
      name: of the run.
      config: of the run.
      topology: where it would run.
      compile_for: compiles a step.
      compile_loss_for: compiles a loss.
      compiles: how many more to compile, to search the largest batch or what makes it fit;
        None: as many as `PATIENCE` allows.
      say: shows a line of progress.
    """
    check_divides(config, topology)
    say(f"{topology.name}: compiling the step of {name}")
    step = compile_for(config, topology)
    loss = compile_loss_for(config, topology)
    bounds = bounds_of(step, topology)
    found: dict[str, Any] = {
        "run": name,
        "topology": describe(topology),
        "batch_size": config.train.batch_size,
        "steps": config.train.steps,
        "fits": step.memory.fits,
        "memory": _split(step.memory, loss),
        "compile_seconds": step.seconds,
        "dispatch_steps": step.dispatch_steps,
        **_work(step, topology, bounds),
        **_times(config, topology, bounds),
        "remedies": [],
        "notes": [*notes(step, topology), *_ignored(config, topology)],
    }
    more, why = _allowance(step.seconds, compiles, is_needed=not step.memory.fits)
    if step.memory.fits:
        search = _search(config, topology, step, compile_for, more, why, say)
        found["largest_batch"] = _batches(search, config.train.batch_size)
    else:
        found["largest_batch"] = None
        found["remedies"] = _try_remedies(
            config, topology, step.memory.total, compile_for, more, why, say
        )
    return found


def check_divides(config: Config, topology: Topology) -> None:
    """Raises ConfigError unless the batch can be split over the topology's devices."""
    batch, parts = config.train.batch_size, config.train.microbatches
    if batch % topology.size:
        raise ConfigError(
            f"train.batch_size={batch} can't be divided over the {topology.size} devices of "
            f"--topology={topology.name}; choose a multiple of {topology.size}, or another topology"
        )
    if batch // topology.size % parts:
        raise ConfigError(
            f"train.microbatches={parts} can't divide the {batch // topology.size} pairs of each "
            f"device of --topology={topology.name}; choose a divisor, or another train.batch_size"
        )


def _ignored(config: Config, topology: Topology) -> list[str]:
    """Returns what a config asks for that a topology overrules."""
    devices = config.train.devices
    if devices in (0, topology.size):
        return []
    return [
        f"train.devices={devices} is for the machine at hand and counts for nothing here: these "
        f"are all {topology.size} devices of {topology.name}"
    ]


def _split(memory: Memory, loss: int) -> dict[str, Any]:
    """Returns the parts of a chip's memory; those that the compiler did not come to are None.

    Args:
      memory: of the step.
      loss: what the loss takes when it is compiled by itself.
    """
    if memory.rest is not None:
        # By itself it may be laid out in another way; the parts are to add up.
        loss = min(loss, memory.rest)
    return {
        "parameters": memory.parameters,
        "optimizer": memory.optimizer,
        "batch": memory.batch,
        "loss": loss,
        "activations": None if memory.rest is None else memory.rest - loss,
        "total": memory.total,
        "usable": memory.usable,
    }


def bounds_of(step: CompiledStep, topology: Topology) -> Bounds | None:
    """Returns what bounds a step; None where the compiler gave up."""
    if step.traffic is None or step.moved is None:
        return None
    return find_bounds(topology, step.flops, step.moved, step.traffic.collectives)


def describe(topology: Topology) -> dict[str, Any]:
    """Returns what the numbers are relative to: the machine and its published peaks."""
    chip = topology.chip
    return {
        "name": topology.name,
        "title": chip.title,
        "platform": chip.platform,
        "chips": topology.chips,
        "devices": topology.size,
        "hosts": topology.hosts,
        "host_cores": topology.host_cores,
        "source": chip.source,
        "flops_per_second": dict(chip.flops),
        "memory": chip.memory,
        "bandwidth": chip.bandwidth,
        "links": chip.links,
        "network": chip.network,
    }


def _work(step: CompiledStep, topology: Topology, bounds: Bounds | None) -> dict[str, Any]:
    traffic = step.traffic
    return {
        "flops": {kind: count / topology.size for kind, count in step.flops.items() if count},
        "compiler_flops": step.compiler_flops,
        "moved": step.moved,
        "moved_in_hbm": None if traffic is None else traffic.memory,
        "kernels": None if traffic is None else traffic.kernels,
        "collectives": [
            {**dataclasses.asdict(one), "sent": sum(sent(one))}
            for one in (() if traffic is None else traffic.collectives)
        ],
        "bounds": None if bounds is None else {**bounds.parts, "by": bounds.by},
    }


def _times(config: Config, topology: Topology, bounds: Bounds | None) -> dict[str, Any]:
    names = ("step_seconds", "epoch_seconds", "run_hours", "chip_hours", "examples_per_second")
    if bounds is None:
        return dict.fromkeys((*names, "examples", "examples_per_second_of_host"))
    steps, batch = config.train.steps, config.train.batch_size
    count = examples_of(config_lib.flatten(config))
    step = bounds.range
    hours = [seconds * steps / 3600 for seconds in step]
    rate = [batch / seconds for seconds in reversed(step)]
    is_fed = "source.folder" in config_lib.flatten(config)
    return {
        "examples": count,
        "step_seconds": list(step),
        "epoch_seconds": None if count is None else [s * (count // batch) for s in step],
        "run_hours": hours,
        "chip_hours": [value * topology.chips for value in hours],
        "examples_per_second": rate,
        "examples_per_second_of_host": [x / topology.hosts for x in rate] if is_fed else None,
    }


def examples_of(values: Mapping[str, Any]) -> int | None:
    """Returns how many examples a config's data set has, where that is known without it."""
    names = [str(values.get(f"source.{key}", "")) for key in ("dataset", "title")]
    known = [EXAMPLES.get(name.removeprefix("tfds:").split("/")[0].split(":")[0]) for name in names]
    return next((count for count in known if count), None)


def notes(step: CompiledStep, topology: Topology) -> list[str]:
    """Returns what a reader has to know about these numbers."""
    said = [
        f"times are the bound by published peaks, and the same at {EFFICIENCY:.0%} of them; "
        "nothing was timed",
        "FLOPs are those of products and convolutions, counted in the program before it is "
        "compiled: loops as often as they run, kernels by their grid",
    ]
    if topology.chip.platform == "gpu":
        said.append(
            "without a GPU these are not known: what autotuning chooses, workspaces of cuDNN and "
            "cuBLAS, and the compiler's own count of bytes (they are read off its program); a "
            "program may have three quarters of the memory unless XLA_PYTHON_CLIENT_MEM_FRACTION "
            "says more"
        )
    bounds = bounds_of(step, topology)
    if bounds is not None and bounds.seconds < _SHORT:
        said.append(
            "a step this short is bound by latency and by launching its operations, which no peak "
            "tells: it will take longer"
        )
    steps = step.dispatch_steps
    if steps > 1:
        said.append(f"a call to the devices takes {steps} steps; numbers are those of one")
    loops = 0 if step.traffic is None else step.traffic.open_loops - (steps > 1)
    if loops > 0:
        said.append(f"{loops} more of its loops, whose length only the data tell, count once")
    if topology.chip.per_chip > 1:
        said.append(f"numbers are those of a device, {topology.chip.per_chip} of which are a chip")
    return said


def _allowance(seconds: float, asked: int | None, *, is_needed: bool) -> tuple[int, str]:
    """Returns how many more compiles there may be, and why no more."""
    if asked is not None:
        return asked, f"--compiles={asked}"
    count = min(MOST_COMPILES, int(PATIENCE / max(seconds, 0.1)))
    if is_needed and count < _LEAST_REMEDIES:
        return _LEAST_REMEDIES, f"each takes about {seconds:.0f} s; --compiles=N for more"
    return count, f"as many as {PATIENCE / 60:.0f} minutes hold; --compiles=N for another number"


def _search(
    config: Config,
    topology: Topology,
    step: CompiledStep,
    compile_for: Compile,
    compiles: int,
    why: str,
    say: Say,
) -> BatchSearch:
    first = Trial(config.train.batch_size, True, step.memory.total)
    if not compiles:
        say(f"{topology.name}: the largest batch is not searched ({why})")
        return BatchSearch((first,), False)
    say(
        f"{topology.name}: searching the largest batch, at most {compiles} more compiles of about "
        f"{step.seconds:.0f} s ({why})"
    )

    def measure(batch: int) -> Trial:
        changed = _changed(config, {"train.batch_size": batch})
        memory = compile_for(changed, topology).memory
        verdict = "fits" if memory.fits else "does not fit"
        say(f"{topology.name}: a batch of {batch:,} {verdict}")
        return Trial(batch, memory.fits, memory.total)

    memory = step.memory
    return search_batch(
        first,
        measure,
        multiple=topology.size * config.train.microbatches,
        fixed=memory.parameters + memory.optimizer,
        usable=memory.usable,
        compiles=compiles,
    )


def _batches(search: BatchSearch, batch: int) -> dict[str, Any]:
    return {
        "fits": search.largest,
        "does_not_fit": search.too_large,
        "is_searched": len(search.trials) > 1,
        "is_done": search.is_done,
        "is_limit": search.largest == MOST_TIMES * batch,
        "trials": [dataclasses.asdict(one) for one in search.trials],
    }


def _try_remedies(
    config: Config,
    topology: Topology,
    total: int,
    compile_for: Compile,
    compiles: int,
    why: str,
    say: Say,
) -> list[dict[str, Any]]:
    """Returns what was tried to make a run fit: first what does, by what it costs."""
    say(f"{topology.name}: it does not fit; trying at most {compiles} changes ({why})")
    tried: list[dict[str, Any]] = []
    for ways in remedies(config, topology):
        before = total
        for way in ways:
            if len(tried) == compiles:
                break
            step = compile_for(_changed(config, way.changes), way.topology)
            tried.append(_describe_remedy(way, step))
            say(f"{topology.name}: {way.what} {'fits' if step.memory.fits else 'does not fit'}")
            # If a change does not help, more of the same will not.
            if step.memory.fits or step.memory.total > _HELPS * before:
                break
            before = step.memory.total
    # A change after which the step still does not fit goes to the end.
    return sorted(tried, key=lambda one: (not one["fits"], one["chip_seconds"] or math.inf))


def _describe_remedy(way: Remedy, step: CompiledStep) -> dict[str, Any]:
    bounds = bounds_of(step, way.topology)
    collectives = None if step.traffic is None else step.traffic.collectives
    return {
        "what": way.what,
        "price": way.price,
        "fits": step.memory.fits,
        "memory": {"total": step.memory.total, "usable": step.memory.usable},
        "flops": sum(step.flops.values()),
        "step_seconds": None if bounds is None else bounds.seconds,
        "chips": way.topology.chips,
        "chip_seconds": None if bounds is None else bounds.seconds * way.topology.chips,
        "sent": None if collectives is None else sum(sum(sent(one)) for one in collectives),
    }


def _changed(config: Config, changes: Mapping[str, Any]) -> Config:
    runs = config_lib.resolve(config_lib.to_dict(config), changes, is_run=True).runs
    return next(iter(runs.values()))


def versions() -> dict[str, str]:
    """Returns the packages that the numbers depend on."""
    names = ("aninfonce-jax", "jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
