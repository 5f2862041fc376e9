"""Saved models: a folder with `model.json` and `weights.npz`; nothing that runs code when read."""

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aninfonce_jax.distributed.equal import versions
from aninfonce_jax.files import FileError, read_bytes, read_json, write_bytes, write_json
from aninfonce_jax.training.saved_trees import layout_of, named_leaves
from aninfonce_jax.types import Weights

MODEL_FILE = "model.json"
WEIGHTS_FILE = "weights.npz"
# Of what is written here. One that adds to it what an older version would not miss keeps it.
FORMAT = 1
# Far above what a model has of either.
_JSON_BYTES = 2**28
_WEIGHTS_BYTES = 2**37


class ModelError(ValueError):
    """A saved model that can't be used; its message is one line for the user."""


def write_model(path: str | os.PathLike[str], content: Mapping[str, Any], weights: Weights) -> None:
    """Writes a model into a folder, whole or not at all; an earlier model there is replaced.

    Args:
      path: of the folder.
      content: JSON, all but the weights.
      weights: arrays of NumPy.

    Raises:
      FileExistsError: something else is there.
    """
    folder = Path(path)
    if folder.exists() and not (folder / MODEL_FILE).is_file():
        raise FileExistsError(f"{folder} exists and is no saved model; choose another name")
    leaves = [np.asarray(leaf) for _, leaf in named_leaves(weights)]
    packed = io.BytesIO()
    # Not pickled, and not compressed: weights hardly get smaller.
    np.savez(packed, allow_pickle=False, **{str(i): leaf for i, leaf in enumerate(leaves)})
    entries = {
        "format": FORMAT,
        "saved_by": versions()["aninfonce_jax"],
        "layout": layout_of(weights),
        "sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
        **content,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as name:
        partial = Path(name) / "model"
        partial.mkdir()
        write_bytes(partial / WEIGHTS_FILE, packed.getvalue())
        write_json(partial / MODEL_FILE, entries)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(partial, folder)


def read_model(folder: Path) -> dict[str, Any]:
    """Returns what `model.json` holds.

    Raises:
      ModelError: it can't be read, or a newer version wrote it.
    """
    try:
        content = read_json(folder / MODEL_FILE, _JSON_BYTES)
    except (FileError, OSError) as error:
        raise ModelError(f"{folder} can't be loaded: {error}; save the model again") from error
    found = content.get("format")
    if not isinstance(found, int) or found > FORMAT:
        raise ModelError(
            f"{folder / MODEL_FILE} has format {found}, of aninfonce_jax "
            f"{content.get('saved_by')}, and this version knows {FORMAT}; update the package"
        )
    return content


def read_weights(folder: Path, content: Mapping[str, Any], target: Weights) -> Weights:
    """Returns the weights of a saved model, in the structure of `target`.

    Args:
      folder: of the model.
      content: of its `model.json`.
      target: shapes of the weights that the model's code has now.

    Raises:
      ModelError: they are damaged, or those of another network.
    """
    try:
        packed = read_bytes(folder / WEIGHTS_FILE, _WEIGHTS_BYTES)
    except (FileError, OSError) as error:
        raise ModelError(f"{folder} can't be loaded: {error}; save the model again") from error
    if hashlib.sha256(packed).hexdigest() != content.get("sha256"):
        raise ModelError(
            f"{folder / WEIGHTS_FILE} is damaged: its digest is not that of {MODEL_FILE}; copy or "
            "save the model again"
        )
    stored = jax.eval_shape(lambda tree: jax.tree.map(_numbers, tree), target)
    saved, wanted = content["layout"], layout_of(stored)
    for name in [*wanted, *saved]:
        has, wants = saved.get(name, "nothing"), wanted.get(name, "nothing")
        if has != wants:
            raise ModelError(
                f"{folder} holds {has} at {name}, but the encoder has {wants}; pass the encoder "
                "that it was trained with"
            )
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        leaves = [arrays[str(i)] for i in range(len(wanted))]
    weights: Weights = jax.tree.unflatten(jax.tree.structure(stored), leaves)
    return weights


def _numbers(leaf: Any) -> Any:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
