"""Command line: aninfonce export --workdir=DIR --output=FOLDER --format=safetensors."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aninfonce_jax.cli import UsageError, parse_flags
from aninfonce_jax.estimator import command

COMMAND = "export"
USAGE = """\
Write a trained run for others, with a model card that shows its scores.

usage: aninfonce export --workdir=DIR --output=FOLDER
           --format=safetensors|stablehlo|onnx

examples:
  aninfonce export --workdir=runs/cifar10 --output=models/cifar10 --format=safetensors
      weights and settings, as the Hugging Face Hub has them; an.load opens it
  aninfonce export --workdir=runs/cifar10 --output=models/program --format=stablehlo
      one program for CPU, TPU and CUDA, which needs jax and nothing of this package

flags:
  --workdir  of a run, or a model that was saved
  --output   a folder that is not there yet
  --format   safetensors: README.md, config.json and model.safetensors;
             stablehlo: README.md and model.stablehlo, for jax.export.deserialize;
             onnx: README.md and model.onnx
             The first two need the extra `export`, the last the extra `onnx`.
  --help     this page
"""
_FLAGS = ("workdir", "output", "format")


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
      arguments: those behind `export`.
    """
    return command.run(USAGE, arguments, _parse, _export)


def _export(model: Any, flags: argparse.Namespace) -> str:
    """Writes the output; returns what was done."""
    model.export(flags.output, flags.format)
    return f"exported as {flags.format}: {flags.output}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parse_flags(COMMAND, _FLAGS, arguments)
    from aninfonce_jax.estimator.export import FORMATS

    if flags.format not in FORMATS:
        raise UsageError(f"--format must be one of {', '.join(FORMATS)}, got {flags.format!r}")
    if Path(flags.output).exists():
        raise UsageError(f"--output={flags.output} exists; choose another name, or remove it")
    return flags
