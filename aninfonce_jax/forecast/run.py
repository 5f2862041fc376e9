"""The forecasts of a command: made one after the other, shown and written as they come."""

from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_shapes
from aninfonce_jax.cli import printable
from aninfonce_jax.config.schema import Config
from aninfonce_jax.forecast.chips import Topology
from aninfonce_jax.forecast.compiler import (
    CompiledStep,
    check_compilers,
    compile_loss,
    compile_step,
    placement_of,
)
from aninfonce_jax.forecast.forecast import check_divides, forecast, versions
from aninfonce_jax.forecast.lines import lines
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath


def forecast_runs(
    runs: Mapping[str, Config],
    topologies: Sequence[Topology],
    folder: AnyPath,
    compiles: int | None,
) -> list[dict[str, Any]]:
    """Compiles each run's step for each topology, prints what it takes and writes it down.

    The file is written after each of them, so that what is known is kept if a later one fails.

    Args:
      runs: by name.
      topologies: what to compile for.
      folder: where `compile.json` goes; made if need be.
      compiles: how often to compile beyond the first time; None: as time allows.

    Raises:
      ConfigError: a compiler is missing, or a topology or a batch can't be.
      CompileError: a compiler failed, and not for want of memory.
    """
    check_compilers(list(topologies))
    for config in runs.values():
        for topology in topologies:
            check_divides(config, topology)
    folder.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for topology in topologies:
        for name, config in runs.items():
            one = forecast(
                name, config, topology, _compile, _compile_loss, compiles=compiles, say=_say
            )
            for line in lines(one):
                _say(line)
            found.append(one)
            workdir_lib.write_forecasts(folder, found, versions())
    return found


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _compile(config: Config, topology: Topology) -> CompiledStep:
    return compile_step(build_shapes(config), topology, _place(config, topology))


def _compile_loss(config: Config, topology: Topology) -> int:
    return compile_loss(build_shapes(config), topology, _place(config, topology))


def _place(config: Config, topology: Topology) -> Placement:
    return placement_of(topology, config.train.slices)
