"""Every name of the API reference has an example in its docstring, and all examples are right."""

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
DIRECTIVE = re.compile(r"\.\. auto(class|function|module):: ([\w.]+)")
# What is returned or inherited from, and what needs a run or images: the docs show these at work.
WITHOUT = {
    "aninfonce_jax.LossOutput",
    "aninfonce_jax.Estimate",
    "aninfonce_jax.TrainedModel",
    "aninfonce_jax.diagnose_run",
    "aninfonce_jax.evaluate",
    "aninfonce_jax.objectives.Elbo",
    "aninfonce_jax.EnsembleSource",
    "aninfonce_jax.Examples",
    "aninfonce_jax.Objective",
    "aninfonce_jax.diagnosis.findings",
}
NAMES = [name for _, name in DIRECTIVE.findall(PAGE.read_text())]


def find(name: str) -> Any:
    """Returns what a dotted name of the page stands for."""
    parent, _, last = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(parent), last)


def examples_of(name: str) -> list[doctest.DocTest]:
    """Returns the examples in a name's docstring, and in those of its members."""
    found = find(name)
    module = found if inspect.ismodule(found) else inspect.getmodule(found)
    known = {"an": an, "jax": jax, "jnp": jnp, "np": np}
    tests = doctest.DocTestFinder().find(found, name, module=module, globs=known)
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT])
def test_examples_in_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tests = examples_of(name)
    assert tests, f"{name} has no example in its docstring"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def test_exceptions_are_names_of_the_page() -> None:
    assert set(NAMES) >= WITHOUT
