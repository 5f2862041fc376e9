"""The loss alone, value and gradient: time and memory of every strategy, and of PyTorch.

    pip install torch==2.13.0
    python benchmarks/loss.py time [--rows=1024,4096] [--devices=1] [--rounds=9] [--cpu-time]
    python benchmarks/loss.py memory [--rows=4096,65536] [--keys=0] [--devices=1]

Rows are anchors, each contrasted with all the others (`negatives="anchors"`), or with --keys
explicit negatives; d = 128, float32, Λ = --concentration for every dimension. More than one device
means so many fake devices on the same cores: that shows what distribution costs, not what it gains.

Time: contestants take turns, and only ratios are reported. With --cpu-time, work of others on the
same core does not count, which long rounds need where the machine is shared. "Bare" is the four
matrix products that a loss without a stored score matrix needs, tile by tile, and nothing else.

Memory: how far the peak of a fresh process, compiled and with its inputs in place, rises
during one evaluation, less the gradients that it returns. Linux only.
"""

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import time

DIM = 128
CONTESTANTS = {
    1: ("dense", "chunked", "torch", "bare"),
    8: ("dense", "chunked", "gather", "ring"),
}
# Where [rows, keys] float32 would take more than this, only what is frugal runs.
LARGEST_DENSE = 2 * 2**30
FRUGAL = ("chunked", "gather", "ring", "bare")
TILE = 1024


def our_loss(strategy, rows, keys, devices, concentration):
    """Returns a compiled value and gradient of ours."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    import aninfonce_jax as an
    from aninfonce_jax.placement import DATA_AXIS, Placement

    placement = Placement.local(devices)
    draw = jax.jit(
        lambda key, count: jax.random.normal(key, (count, DIM)),
        static_argnums=1,
        out_shardings=placement.split,
    )
    seeds = jax.random.split(jax.random.key(0), 3)
    views = [draw(seeds[0], rows), draw(seeds[1], rows)]
    bank = [draw(seeds[2], keys)] if keys else []
    axis = {"axis_name": DATA_AXIS} if devices > 1 else {}

    def loss(concentration, view1, view2, *bank):
        negatives = bank[0] if bank else "anchors"
        return an.aninfonce_loss(
            view1, view2, concentration, negatives=negatives, strategy=strategy, **axis
        ).loss

    if devices > 1:
        specs = (P(), *(P(DATA_AXIS) for _ in (*views, *bank)))
        loss = jax.shard_map(loss, mesh=placement.mesh, in_specs=specs, out_specs=P())
    arguments = (jnp.full(DIM, concentration), *views, *bank)
    grad = jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(arguments)))))
    compiled = grad.lower(*arguments).compile()
    return lambda: jax.block_until_ready(compiled(*arguments))


def torch_loss(rows, keys, concentration):
    """Returns the value and gradient of a plain PyTorch loss."""
    import torch

    generator = torch.Generator().manual_seed(0)
    draw = functools.partial(torch.randn, generator=generator)
    leaves = [draw(rows, DIM), draw(rows, DIM)]
    if keys:
        leaves.append(draw(keys, DIM))
    leaves.append(torch.full((DIM,), concentration))
    for leaf in leaves:
        leaf.requires_grad_()

    def run():
        *points, concentration = leaves
        points = [torch.nn.functional.normalize(x, dim=1) for x in points]
        scaled = points[0] * concentration
        others = points[-1] if keys else points[0]
        bias = -0.5 * (others * concentration * others).sum(1)
        logits = torch.addmm(bias[None, :], scaled, others.T)
        if not keys:
            logits = logits.fill_diagonal_(float("-inf"))
        own = -0.5 * (scaled * points[0]).sum(1)
        positive = -0.5 * ((points[0] - points[1]) ** 2 * concentration).sum(1)
        gap = torch.logsumexp(logits, 1) + own - positive
        loss = torch.nn.functional.softplus(gap).mean()
        return loss, torch.autograd.grad(loss, leaves)

    return run


def bare_products(rows, keys):
    """Returns the products of a loss that stores no scores: two for scores, two gradients."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def tiles(count):
        size = min(TILE, count)
        return jax.random.normal(jax.random.key(count), (count // size, size, DIM))

    @jax.jit
    def products(queries, keys):
        def row(d_keys, query):
            def column(d_query, tile):
                key, d_key = tile
                scores = query @ key.T
                again = (query + 1) @ key.T
                return d_query + again @ key, d_key + scores.T @ query

            d_query, d_keys = lax.scan(column, jnp.zeros_like(query), (keys, d_keys))
            return d_keys, d_query

        return lax.scan(row, jnp.zeros_like(keys), queries)

    arguments = tiles(rows), tiles(keys or rows)
    compiled = products.lower(*arguments).compile()
    return lambda: jax.block_until_ready(compiled(*arguments))


def build(name, rows, settings):
    if name == "torch":
        return torch_loss(rows, settings.keys, settings.concentration)
    if name == "bare":
        return bare_products(rows, settings.keys)
    return our_loss(name, rows, settings.keys, settings.devices, settings.concentration)


def chosen(rows, settings):
    """Returns the contestants whose scores fit."""
    fits = 4 * rows * (settings.keys or rows) <= LARGEST_DENSE
    return [name for name in CONTESTANTS[settings.devices] if fits or name in FRUGAL]


def describe(rows, settings):
    return f"{rows:>8} rows, {settings.keys or rows:>8} keys, {settings.devices} devices"


def peak_bytes(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def measure_memory(rows, settings):
    """Prints the rise of this process's peak during one evaluation, in bytes."""
    run = build(settings.only, rows, settings)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held
    before = peak_bytes("VmRSS")
    run()
    gradients = 4 * DIM * (2 * rows + settings.keys)
    print(peak_bytes("VmHWM") - before - gradients)


def report_memory(rows, settings):
    for name in chosen(rows, settings):
        if name == "bare":
            continue
        command = [sys.executable, __file__, "memory", f"--rows={rows}", f"--keys={settings.keys}"]
        command += [f"--devices={settings.devices}", f"--concentration={settings.concentration}"]
        command += [f"--only={name}"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peak = int(out.split()[-1]) / 2**20
        print(f"{describe(rows, settings)}, {name:8} {peak:>10.0f} MiB", flush=True)


def report_time(rows, settings):
    from timing import interleave, ratio

    contestants = {name: build(name, rows, settings) for name in chosen(rows, settings)}
    clock = time.process_time if settings.cpu_time else time.perf_counter
    seconds = interleave(contestants, settings.rounds, clock)
    for name in contestants:
        if name != "chunked":
            print(
                f"{describe(rows, settings)}: "
                f"chunked takes {ratio(seconds, 'chunked', name)} the time of {name}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("time", "memory"))
    parser.add_argument("--rows", default="1024,4096")
    parser.add_argument("--keys", type=int, default=0, help="explicit negatives; 0: the rows")
    parser.add_argument("--devices", type=int, default=1, choices=tuple(CONTESTANTS))
    parser.add_argument("--concentration", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the processor's seconds, not the clock's"
    )
    parser.add_argument("--only", help="memory of this contestant, in this process")
    settings = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={settings.devices}"
    for rows in map(int, settings.rows.split(",")):
        if settings.only:
            measure_memory(rows, settings)
        elif settings.what == "memory":
            report_memory(rows, settings)
        else:
            report_time(rows, settings)


if __name__ == "__main__":
    main()
