"""Every block of Python in the README and the docs runs, in the order of its page.

Cells of the notebooks are not among them: the build of the docs executes those.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.data import datasets
from aninfonce_jax.data.source import Subset

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROWS, FEATURES, DIM = 16, 6, 4


def blocks() -> Iterator[Any]:
    """Lists the pages that hold Python, each with all its blocks."""
    for page in PAGES:
        found = BLOCK.findall(page.read_text())
        if found:
            yield pytest.param(page, found, id=str(page.relative_to(ROOT)))


def reader_names() -> dict[str, Any]:
    """Returns what a reader of the pages has: an encoder of his own, and data."""
    model = nn.Dense(DIM)
    x1, x2 = (jax.random.normal(jax.random.key(seed), (ROWS, FEATURES)) for seed in (0, 1))
    encoder = model.init(jax.random.key(2), x1)
    params = {"encoder": encoder, "log_concentration": jnp.zeros(DIM)}
    return {
        "my_encoder_params": encoder,
        "dim": DIM,
        "encode": model.apply,
        "model": model,
        "params": params,
        "x1": x1,
        "x2": x2,
        "view1": model.apply(encoder, x1),
        "view2": model.apply(encoder, x2),
        "concentration": jnp.ones(DIM),
        "key": jax.random.key(3),
        "images": jnp.zeros((2, 32, 32, 3), jnp.uint8),
        "my_network": model,
    }


@pytest.fixture
def any_data_set(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens a small folder of images, over and over, whatever data set a page names."""
    opened = datasets.open_dataset

    def open_folder(name: str, folder: str, split: str) -> Any:
        images = opened("folder", str(image_folder), split)
        return Subset(images, np.arange(512) % len(images))

    monkeypatch.setattr(datasets, "open_dataset", open_folder)


@pytest.mark.usefixtures("any_data_set")
@pytest.mark.parametrize(("page", "found"), list(blocks()))
def test_blocks_run(
    page: Path, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = reader_names()
    for number, block in enumerate(found):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    # What a page defines for the reader to call is called.
    if "loss_fn" in names and page.name == "losses.md":
        assert np.isfinite(names["loss_fn"](names["params"], names["x1"], names["x2"])[0])
    if "step" in names:
        arguments = names["params"], names["opt_state"], names["x1"], names["x2"]
        _, _, metrics = names["step"](*arguments)
        assert metrics["nonfinite"] == 0
