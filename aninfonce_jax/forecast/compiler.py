"""Asks the compiler of a machine that is not at hand about the step that the loop would run."""

import dataclasses
import importlib.util
import re
import time
from typing import Any

import jax

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.forecast.arithmetic import Flops, count_flops
from aninfonce_jax.forecast.chips import EXAMPLES, Topology
from aninfonce_jax.forecast.gpu_targets import target_text
from aninfonce_jax.forecast.hlo import Traffic, read_traffic
from aninfonce_jax.forecast.loss import lower_loss
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.step import trace_train_step
from aninfonce_jax.types import PyTree

# What the compilers' own messages call sizes.
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_SIZE = r"\(?([\d.]+)([KMGTP]?)(?:i?B)?\)?"
_TOO_LARGE = (
    re.compile(rf"{_SIZE} exceeds available HBM {_SIZE}"),
    re.compile(rf"[Uu]sed {_SIZE} of {_SIZE} hbm"),
    re.compile(rf"required: {_SIZE}.*?available: {_SIZE}", re.DOTALL),
)


class CompileError(RuntimeError):
    """The compiler failed, and not for want of memory; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one chip.

    Attributes:
      parameters: those that are trained, their average, and the state of norms.
      optimizer: what the optimiser keeps between steps.
      batch: what the host feeds for a step.
      rest: the loss, activations, gradients, and the program itself; None where the compiler
        gave up before it knew.
      total: all of it; where the compiler gave up, what it had come to.
      usable: what there is.
    """

    parameters: int
    optimizer: int
    batch: int
    rest: int | None
    total: int
    usable: int

    @property
    def fits(self) -> bool:
        """Whether there is room for the step."""
        return self.rest is not None and self.total <= self.usable


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """What is known of a step that was compiled, per step.

    Attributes:
      memory: of one chip.
      flops: of products and convolutions, over all chips, by how operands are multiplied.
      traffic: of one chip; None where it does not fit and the compiler gave up.
      compiler_flops: its own count for one chip, a loop's body once; None where it has none.
      compiler_bytes: the same of the bytes that enter and leave operations.
      seconds: that the compiler took.
      dispatch_steps: how many steps at most one call takes.
    """

    memory: Memory
    flops: Flops
    traffic: Traffic | None
    compiler_flops: float | None
    compiler_bytes: float | None
    seconds: float
    dispatch_steps: int = 1

    @property
    def moved(self) -> float | None:
        """Bytes of HBM that a chip moves in a step, loops as often as they run."""
        if self.traffic is None:
            return None
        if not self.compiler_bytes:
            return float(self.traffic.memory)
        return self.compiler_bytes * self.traffic.memory / max(1, self.traffic.memory_once)


def check_compilers(topologies: list[Topology]) -> None:
    """Raises ConfigError, with what to install, if a compiler is missing."""
    platforms = {topology.chip.platform: topology for topology in reversed(topologies)}
    if "tpu" in platforms and importlib.util.find_spec("libtpu") is None:
        raise ConfigError(
            f"{platforms['tpu'].name} needs Google's TPU compiler, which works without a TPU: "
            "pip install 'aninfonce-jax[tpu]'"
        )
    if "gpu" in platforms and not (_has("jax_plugins.xla_cuda") and _has_assembler()):
        raise ConfigError(
            f"{platforms['gpu'].name} needs jax's CUDA plugin and NVIDIA's assembler, which work "
            "without a GPU: pip install 'aninfonce-jax[gpu-compile]'"
        )


def _has(prefix: str) -> bool:
    return any(_found(f"{prefix}{version}") for version in (12, 13))


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _has_assembler() -> bool:
    return any(map(_found, ("nvidia.cuda_nvcc", "nvidia.cu13", "nvidia.cu12")))


def placement_of(topology: Topology, slices: int = 1) -> Placement:
    """Returns the abstract placement of a topology.

    Args:
      topology: the machine.
      slices: as `train.slices` of a config has them.

    Raises:
      ConfigError: the compiler does not know such a topology, or slices do not divide it.
    """
    chip = topology.chip
    try:
        if chip.platform == "tpu":
            # Else the compiler takes four chips for the least that a host has.
            alone: dict[str, Any] = {}
            if topology.chips == 1:
                alone = {"chips_per_host_bounds": (1, 1, 1)}
            return Placement.of_topology(topology.name, slices=slices, **alone)
        nodes = topology.size // topology.per_node
        return Placement.of_topology(
            topology.name,
            "cuda",
            slices=slices,
            target_config=target_text(chip.name),
            topology=f"1x{nodes}x{topology.per_node}",
        )
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(
            f"--topology={topology.name}: the compiler says {_first_line(error)}; "
            f"examples: {EXAMPLES}"
        ) from error


def compile_step(experiment: Experiment, topology: Topology, placement: Placement) -> CompiledStep:
    """Compiles the step that the loop would run, and reads off what it takes.

    Too little memory is an answer, not an error.

    Raises:
      CompileError: the compiler failed for another reason.
    """
    start = time.monotonic()
    traced = trace_train_step(experiment, placement)
    flops = count_flops(traced.jaxpr, topology.chip.platform)
    known = _known_memory(experiment, placement)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        memory = exhausted(str(error), known, topology.chip.usable)
        if memory is None:
            raise CompileError(
                f"{topology.name}: the compiler failed: {_first_line(error)}"
            ) from error
        seconds = time.monotonic() - start
        steps = experiment.dispatch_steps
        return CompiledStep(memory, flops, None, None, None, seconds, steps)
    seconds = time.monotonic() - start
    analysis = compiled.memory_analysis()
    total = _total(analysis)
    cost = compiled.cost_analysis() or {}
    return CompiledStep(
        memory=Memory(*known, rest=total - sum(known), total=total, usable=topology.chip.usable),
        flops=flops,
        traffic=read_traffic(compiled.as_text(), placement.mesh.shape, topology.per_node),
        compiler_flops=cost.get("flops"),
        compiler_bytes=cost.get("bytes accessed"),
        seconds=seconds,
        dispatch_steps=experiment.dispatch_steps,
    )


def compile_loss(experiment: Experiment, topology: Topology, placement: Placement) -> int:
    """Returns the bytes that the loss of a step takes on a chip beside embeddings and pairs.

    It is compiled by itself, with its gradient, for embeddings of the step's shapes that lie as
    the step's do: scores and their like, and the gradients that it hands back. Where it does not
    fit by itself, what the compiler had come to.

    Raises:
      CompileError: the compiler failed for another reason than memory.
    """
    try:
        analysis: Any = lower_loss(experiment, placement).compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        memory = exhausted(str(error), (0, 0, 0), topology.chip.usable)
        if memory is None:
            raise CompileError(
                f"{topology.name}: the compiler failed on the loss: {_first_line(error)}"
            ) from error
        return memory.total
    given = analysis.argument_size_in_bytes + analysis.generated_code_size_in_bytes
    return _total(analysis) - int(given)


def _total(analysis: Any) -> int:
    """The sum of what is held and the peak of the schedule disagree both ways: the larger."""
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    held = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes + results
    peak = getattr(analysis, "peak_memory_in_bytes", 0)
    return int(max(held, peak) + analysis.generated_code_size_in_bytes)


def _known_memory(experiment: Experiment, placement: Placement) -> tuple[int, int, int]:
    """Returns the bytes of parameters, optimiser and batch on each chip."""
    state = jax.eval_shape(experiment.init_state)
    fed = experiment.source.fed(experiment.batch_size)
    weights = (state.params, state.model_state, state.average)
    return _bytes(weights), _bytes(state.opt_state), _bytes(fed) // placement.size


def _bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def exhausted(message: str, known: tuple[int, int, int], usable: int) -> Memory | None:
    """Returns what a compiler that ran out of memory had come to; None: it did not."""
    for pattern in _TOO_LARGE:
        if found := pattern.search(message):
            needed, available = (int(float(found[at]) * _UNITS[found[at + 1]]) for at in (1, 3))
            return Memory(*known, rest=None, total=needed, usable=available)
    if "RESOURCE_EXHAUSTED" in message or "out of memory" in message.lower():
        return Memory(*known, rest=None, total=sum(known), usable=usable)
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
