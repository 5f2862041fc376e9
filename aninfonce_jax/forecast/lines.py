"""A forecast as lines for the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from aninfonce_jax.report.quantities import count, duration, group, number, size

_GIB = 2**30
_BOUND_BY = {
    "compute": "arithmetic",
    "memory": "HBM",
    "links": "the links between chips",
    "network": "the network between nodes",
}
# How many images of ImageNet's sizes one core decodes in a second, by benchmarks/input.py.
IMAGES_PER_CORE = 815


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is to be said of one run on one topology."""
    machine = found["topology"]
    batch = f"batch {found['batch_size']:,}"
    yield f"{found['run']} on {machine['name']} ({_machine(machine)}), {batch}"
    yield from _memory(found)
    if found["bounds"] is not None:
        yield from _work(found)
        yield from _times(found)
    yield from _largest(found)
    yield from _remedies(found)
    for note in found["notes"]:
        yield f"  note: {note}"


def _machine(machine: Mapping[str, Any]) -> str:
    hosts = f", {machine['hosts']} hosts" if machine["hosts"] > 1 else ""
    return f"{machine['chips']} × {machine['title']}{hosts}"


def _memory(found: Mapping[str, Any]) -> Iterator[str]:
    memory = found["memory"]
    room = f"of {size(memory['usable'])} that a program can have"
    if memory["activations"] is None:
        yield f"  does not fit: it takes at least {size(memory['total'])} {room}, per device"
        yield f"    the loss by itself {size(memory['loss'])}"
        return
    verdict = "fits" if found["fits"] else "does not fit"
    yield f"  {verdict}: {size(memory['total'])} {room}, per device"
    parts = {
        "parameters": memory["parameters"],
        "optimiser": memory["optimizer"],
        "batch": memory["batch"],
        "loss": memory["loss"],
        "activations and the rest": memory["activations"],
    }
    yield "    " + "; ".join(f"{name} {size(value)}" for name, value in parts.items())


def _work(found: Mapping[str, Any]) -> Iterator[str]:
    bounds = found["bounds"]
    flops = sum(found["flops"].values())
    kinds = ", ".join(
        f"{count(value)} {kind}" for kind, value in sorted(found["flops"].items()) if value
    )
    yield f"  arithmetic: {count(flops)}FLOP ({kinds}); {duration(bounds['compute'])} at peak"
    yield f"  HBM: {size(found['moved'])} moved; {duration(bounds['memory'])} at peak"
    total = sum(one["sent"] for one in found["collectives"])
    way = duration(bounds["links"])
    if bounds["network"]:
        way += f" over links, {duration(bounds['network'])} over the network"
    yield f"  sent: {size(total)}; {way} at peak"
    for one in found["collectives"][:6]:
        how = "asynchronous" if one["is_async"] else "blocking"
        among = group(one["axes"], one["group"])
        yield (f"    {one['count']} {one['kind']} over {among}, {size(one['bytes'])}, {how}")
    if len(found["collectives"]) > 6:
        yield f"    and {len(found['collectives']) - 6} smaller kinds"
    yield f"  bound by {_BOUND_BY[bounds['by']]}"


def _times(found: Mapping[str, Any]) -> Iterator[str]:
    step = " to ".join(duration(value) for value in found["step_seconds"])
    yield f"  a step: {step}"
    if found["epoch_seconds"] is not None:
        epoch = " to ".join(duration(value) for value in found["epoch_seconds"])
        yield f"  an epoch of {found['examples']:,} examples: {epoch}"
    run = " to ".join(duration(3600 * value) for value in found["run_hours"])
    hours = " to ".join(number(value) for value in found["chip_hours"])
    yield f"  the whole run of {found['steps']:,} steps: {run}; {hours} chip-hours"
    rates = found["examples_per_second_of_host"]
    if rates is not None:
        cores = found["topology"]["host_cores"]
        yield (
            f"  each host has to load {number(rates[0])} to {number(rates[1])} examples/s; one "
            f"of its {cores} cores decodes about {IMAGES_PER_CORE} images/s of ImageNet's sizes"
        )


def _largest(found: Mapping[str, Any]) -> Iterator[str]:
    largest = found["largest_batch"]
    if largest is None:
        return
    if not largest["is_searched"]:
        yield "  largest batch that fits: not searched; --compiles=6 does"
        return
    known = f"  largest batch seen to fit: {largest['fits']:,}"
    if largest["does_not_fit"]:
        known += f"; {largest['does_not_fit']:,} does not"
    elif largest["is_limit"]:
        known += " (more was not tried)"
    yield known + ("" if largest["is_done"] or largest["is_limit"] else "; --compiles=N for more")


def _remedies(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["fits"] and not found["remedies"]:
        yield "  nothing was tried to make it fit; --compiles=6 does"
    for one in found["remedies"]:
        if not one["fits"]:
            yield f"  not enough: {one['what']}: {size(one['memory']['total'])}"
            continue
        yield (
            f"  fits with {one['what']}: {size(one['memory']['total'])}; at least "
            f"{duration(one['step_seconds'])} a step, {one['chip_seconds']:.3g} chip-seconds; "
            f"{count(one['flops'])}FLOP, {size(one['sent'])} sent; {one['price']}"
        )
