"""A training run that takes a minute or two in processes of two CPU devices each."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_CONFIG = {
    "compare": "()",
    "objective.kind": "aninfonce",
    "source.dim": "4",
    "source.space": "real",
    "source.marginal": "normal",
    "source.conditional": "normal",
    "source.mixing.candidates": "50",
    "encoder.widths": "16,16",
    "optimizer.kind": "adam",
    "train.batch_size": "16",
    "train.steps_per_dispatch": "1",
    "eval.samples": "64",
    "eval.held_out_batches": "2",
    "log.tensorboard": "false",
}


def flags(workdir: Path, steps: int, every: int) -> list[str]:
    """Returns the arguments of the program for so many steps, saved every so many."""
    config = _CONFIG | {
        "train.steps": str(steps),
        "checkpoint.every": str(every),
        "eval.every": str(steps // 2),
        "log.every": str(every),
    }
    return [f"--workdir={workdir}", *(f"--config.{key}={value}" for key, value in config.items())]


def environment() -> dict[str, str]:
    """Returns variables with which launchers use the package and the Python of these tests."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ANINFONCE_AS_IS": "1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
