"""Imports inside the package point one way: each module may import only from below."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "aninfonce_jax"

# Lowest first. A module may import from its own layer's folder or any layer before it.
LAYERS = [
    ["types", "cli", "files", "lock"],
    ["compat", "config_schema", "stop"],
    ["config_values"],
    ["config", "config_file", "memory", "rng", "mesh"],
    ["workdir"],
    ["data", "dgp", "losses", "models"],
    ["training"],
    ["evaluation"],
    ["console"],
    ["__init__"],
    ["command_line"],
    ["main", "prepare"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))
# The losses are for other people's code: they know nothing of this project's runs.
FORBIDDEN = {"losses": {"config", "config_schema", "data", "models", "dgp", "rng", "mesh"}}
# What may be imported as a name of the package itself, and what it stands for.
FACADE = "__init__"


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(source: str) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            steps = name.split(".")
            if steps[0] == "aninfonce_jax":
                parts.add(steps[1] if len(steps) > 1 and steps[1] in RANK else FACADE)
    return parts


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    own = part_of(path)
    for other in imported_parts(path.read_text()) - {own}:
        assert RANK[other] < RANK[own], f"{own} must not import {other}"
        assert other not in FORBIDDEN.get(own, set()), f"{own} must not import {other}"


def test_every_part_has_a_layer():
    assert {part_of(path) for path in MODULES} <= set(RANK)


def test_an_upward_import_is_seen():
    source = "from aninfonce_jax.training.loop import train\nimport aninfonce_jax.main"
    assert imported_parts(source) == {"training", "main"}


def test_tensorflow_is_nowhere_imported():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "tensorflow" for name in names), path
