"""Imports inside the package point one way: each module may import only from below."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aninfonce_jax.scores import monitors, registry
from aninfonce_jax.workdir import names

PACKAGE = Path(__file__).resolve().parent.parent / "aninfonce_jax"

# Lowest first. A module may import from its own layer's folder or any layer before it.
LAYERS = [
    ["at_once"],
    ["types", "cli", "remote"],
    ["files"],
    ["compat", "compile_cache", "config", "lock", "rng", "stop"],
    ["distributed"],
    ["placement"],
    ["memory", "workdir"],
    ["data", "dgp", "losses", "models", "scores"],
    ["sources", "diagnosis"],
    ["objectives", "report"],
    ["training"],
    ["evaluation"],
    ["decoders", "warm_start"],
    ["builders"],
    ["build", "console"],
    ["forecast", "runs", "sweeps"],
    ["estimator"],
    ["__init__"],
    ["command_line", "embed", "export_command"],
    ["modes"],
    ["main", "prepare"],
    ["script"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))
# What may be imported as a name of the package itself, and what it stands for.
FACADE = "__init__"
# Parts that may import these and nothing else of the package, whatever is below them.
ONLY = {
    # For other people's code: they work with nothing but jax installed.
    "losses": {"types", "compat"},
    # No jax: a typo answers at once.
    "config": {"cli"},
    "workdir": {"cli", "config", "files", "lock", "remote"},
    "command_line": {"config", "distributed.cluster"},
    # A process or a network can be had without a run.
    "dgp": {"types"},
    "models": {"types"},
    # Functions of arrays: no runs.
    "scores": {"types"},
    "diagnosis": {"scores"},
    "sources": {"data", "dgp", "placement", "types"},
    "objectives": {"losses", "models", "placement", "scores.registry", "sources", "types"},
    # No jax: whatever trains is a process of its own.
    "sweeps": {
        *("cli", "config", "distributed.cpu_threads", "files", "memory", "scores.registry"),
        *("stop", "workdir"),
    },
    # From files alone: nothing that trains.
    "report": {
        *("cli", "files", "remote", "workdir"),
        *("scores.registry", "scores.objectives", "scores.intervals", "scores.concentration"),
    },
}
# What a kind of section has is for the config and for what builds or counts by it.
TAGGED = {"config", "build", "builders", "decoders", "memory", "warm_start"}
PLAIN_SECTIONS = {"EvalConfig", "CheckpointConfig", "LogConfig"}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(source: str) -> set[tuple[str, str]]:
    """Returns (module below the package, name) of every import; the facade is ''."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names = [(node.module or "", alias.name) for alias in node.names]
        for module, name in names:
            steps = module.split(".")
            if steps[0] != "aninfonce_jax":
                continue
            inside = ".".join(steps[1:])
            # `from aninfonce_jax.scores import registry` names a module, too.
            if (PACKAGE / inside.replace(".", "/") / f"{name}.py").exists() or (
                not inside and name in RANK
            ):
                inside, name = f"{inside}.{name}".strip("."), ""
            found.add((inside, name))
    return found


def imported_modules(source: str) -> set[str]:
    return {module or FACADE for module, _ in imported_names(source)}


def part(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    own = part_of(path)
    for module in imported_modules(path.read_text()):
        other = part(module)
        if other == own:
            continue
        assert RANK[other] < RANK[own], f"{own} must not import {other}"
        allowed = ONLY.get(own)
        assert allowed is None or allowed & {other, module}, f"{own} must not import {module}"


def test_every_part_has_a_layer():
    assert {part_of(path) for path in MODULES} == set(RANK)


def test_the_documented_tree_is_the_real_one():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    tree = text[text.index("## The tree") : text.index("## The walk")]
    documented = re.findall(r"^\| `(\w+)` \|", tree, flags=re.MULTILINE)
    assert sorted(documented) == sorted(RANK)
    assert [RANK[name] for name in documented] == sorted(RANK.values())


def test_the_readme_names_every_folder_in_the_order_of_the_layers():
    text = (PACKAGE.parent / "README.md").read_text()
    table = text[text.index("## Architecture") : text.index("## Citing")]
    named = re.findall(r"^\| `(\w+)(?:/|\.py)`", table, flags=re.MULTILINE)
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= set(named) <= set(RANK)
    assert len(set(named)) == len(named)
    assert [RANK[name] for name in named] == sorted(RANK[name] for name in named)


def test_an_upward_import_is_seen():
    source = "from aninfonce_jax.training.loop import train\nimport aninfonce_jax.main"
    assert imported_modules(source) == {"training.loop", "main"}
    source = (
        "from aninfonce_jax import workdir as w, Box\nfrom aninfonce_jax.scores import registry"
    )
    assert imported_modules(source) == {"workdir", FACADE, "scores.registry"}


def test_only_what_builds_knows_the_kinds_of_a_config():
    """Everything else takes objects, or the plain sections."""
    for path in MODULES:
        if part_of(path) in TAGGED:
            continue
        for module, name in imported_names(path.read_text()):
            is_section = part(module) == "config" and name.endswith("Config") and name != "Config"
            assert not is_section or name in PLAIN_SECTIONS | {"Config"}, (path, name)
            assert not module.startswith("config.kinds"), f"{path} knows a kind: {name}"
            assert (module, name) != ("config.schema", ""), f"{path} takes all of the schema"


@pytest.mark.parametrize("own", ["training", "evaluation", "objectives", "scores", "report"])
def test_a_run_does_not_know_what_its_observations_are(own):
    """One loop for all: no modality, no class of a source or an encoder decides anything."""
    for path in sorted((PACKAGE / own).glob("*.py")):
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        strange = {"ImageBatch", "ImagePairs", "ProcessSource", "MLP", "ResNet", "has_images"}
        assert not names & strange, path
        modules = imported_modules(path.read_text())
        assert not modules & {"sources.images", "sources.process", "models.mlp", "models.resnet"}


def test_no_class_of_a_source_or_an_encoder_is_asked_for():
    """What differs between them is behind a method of theirs."""
    asked = re.compile(r"has_images|isinstance\(.*(Process|Pairs|MLP|Encoder)\)")
    found = [path for path in MODULES if asked.search(path.read_text())]
    assert not found
    assert asked.search("if isinstance(source, ArrayPairs):")


# Of what `eval.json` holds, names that other things have as well.
ALSO_OTHERS = {"objective", "features", "seconds", "untrained"}


def keys_named(tree: ast.AST) -> set[str]:
    """Returns the texts by which entries of mappings are written or looked up."""
    found: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            found += node.keys
        elif isinstance(node, ast.Subscript):
            found.append(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += node.args[:1] if node.func.attr in ("get", "pop", "has") else []
    return {x.value for x in found if isinstance(x, ast.Constant) and isinstance(x.value, str)}


@pytest.mark.parametrize(
    "own",
    [
        *("evaluation", "report", "sweeps", "estimator", "console", "main", "modes", "runs"),
        *("training/session", "training/metrics"),
    ],
)
def test_a_score_is_named_by_the_registry_alone(own):
    named = [value for name, value in vars(registry).items() if name.isupper() and name[0] != "_"]
    entries = {value for value in named if isinstance(value, str)} - ALSO_OTHERS
    scores = {score.key for score in registry.SCORES} | entries
    # What one function hands over is not yet an entry of a file.
    scores -= set(monitors.CollapseScores.__annotations__)
    paths = sorted((PACKAGE / own).glob("*.py")) or [PACKAGE / f"{own}.py"]
    for path in paths:
        if path.stem.startswith(
            ("forecast", "diagnosis")
        ):  # of another file, with entries of its own
            continue
        assert not keys_named(ast.parse(path.read_text())) & scores, path


def test_only_the_work_directory_knows_the_names_of_its_files():
    """Saved models have files of their own, one called as the Hub calls it, and one owner too."""
    named = {
        value
        for name, value in vars(names).items()
        if name.endswith(("_FILE", "_PAGE", "_LOG")) and isinstance(value, str)
    }
    named -= {names.LOCK_FILE, names.RECORD_FILE}  # words that mean other things, too
    for path in MODULES:
        if part_of(path) == "workdir" or path == PACKAGE / "estimator" / "saved.py":
            continue
        tree = ast.parse(path.read_text())
        # A template has the name of the page that is made of it.
        templates = {
            id(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get_template"
            for argument in node.args
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in templates:
                assert node.value not in named, (path, node.value)


def test_a_bare_name_is_seen():
    source = 'a = {"r2": 1}; b["map"] = 2; c.get("loss", 0); d.get(0); e[1]; f("step")'
    assert keys_named(ast.parse(source)) == {"r2", "map", "loss"}


@pytest.mark.parametrize(
    "module", ["config", "config.file", "workdir", "command_line", "cli", "scores.registry"]
)
def test_what_answers_at_once_imports_no_jax(module):
    code = f"import sys, aninfonce_jax.{module}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensorflow_is_nowhere_imported():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "tensorflow" for name in names), path
