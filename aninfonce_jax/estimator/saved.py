"""Saved models: a folder with a JSON and a file of weights; nothing that runs code when read.

`save` writes `model.json` and `weights.npz`; `export` writes them as the Hugging Face Hub has them,
`config.json` and `model.safetensors`. Both can be loaded.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aninfonce_jax.distributed.equal import versions
from aninfonce_jax.files import FileError, read_bytes, read_json, write_bytes, write_json
from aninfonce_jax.training.saved_trees import layout_of
from aninfonce_jax.types import Weights

MODEL_FILE = "model.json"
WEIGHTS_FILE = "weights.npz"
HUB_MODEL_FILE = "config.json"
HUB_WEIGHTS_FILE = "model.safetensors"
# The version of what is written here. It stays when something is added that older versions of
# the package can do without.
FORMAT = 1
# Far above what a model has of either.
_JSON_BYTES = 2**28
_WEIGHTS_BYTES = 2**37


class ModelError(ValueError):
    """A saved model that can't be used; its message is one line for the user."""


Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Form:
    """How a model lies in its folder.

    Attributes:
      model_file: JSON, all but the weights.
      weights_file: the arrays.
      mark: of the two, the one that no other folder has.
      pack: from arrays by name to the content of the file.
      unpack: from that content and the names to the arrays, in their order.
    """

    model_file: str
    weights_file: str
    mark: str
    pack: Callable[[Arrays], bytes]
    unpack: Callable[[bytes, Sequence[str]], list[np.ndarray]]


def require(package: str, what: str, extra: str) -> None:
    """Raises ModelError if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise ModelError(
            f"{what} needs {package}, which is not installed; pip install aninfonce-jax[{extra}]"
        )


def _pack_npz(arrays: Arrays) -> bytes:
    packed = io.BytesIO()
    # Not pickled, and not compressed: weights hardly get smaller.
    np.savez(packed, allow_pickle=False, **{str(i): x for i, x in enumerate(arrays.values())})
    return packed.getvalue()


def _unpack_npz(packed: bytes, names: Sequence[str]) -> list[np.ndarray]:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return [arrays[str(i)] for i in range(len(names))]


def _pack_safetensors(arrays: Arrays) -> bytes:
    require("safetensors", HUB_WEIGHTS_FILE, "export")
    from safetensors.numpy import save

    return bytes(save(dict(arrays), metadata={"format": "np"}))


def _unpack_safetensors(packed: bytes, names: Sequence[str]) -> list[np.ndarray]:
    require("safetensors", HUB_WEIGHTS_FILE, "export")
    from safetensors.numpy import load

    arrays = load(packed)
    return [arrays[name] for name in names]


SAVED = Form(MODEL_FILE, WEIGHTS_FILE, MODEL_FILE, _pack_npz, _unpack_npz)
# A work directory has a config.json too.
HUB = Form(
    HUB_MODEL_FILE, HUB_WEIGHTS_FILE, HUB_WEIGHTS_FILE, _pack_safetensors, _unpack_safetensors
)


def find_form(folder: Path) -> Form | None:
    """Returns the form of the model that a folder holds; None: it holds none."""
    return next((form for form in (SAVED, HUB) if (folder / form.mark).is_file()), None)


@contextlib.contextmanager
def written_whole(
    path: str | os.PathLike[str], marks: tuple[str, ...], what: str, *, overwrite: bool
) -> Iterator[Path]:
    """Gives a folder to write into, which becomes that of the path once it is whole.

    Args:
      path: of the folder.
      marks: files of which an earlier one of the kind has at least one.
      what: the kind, for messages.
      overwrite: whether an earlier one is replaced.

    Raises:
      FileExistsError: an earlier one is there and not to be replaced, or something else is.
    """
    folder = Path(path)
    if folder.exists() and not any((folder / mark).is_file() for mark in marks):
        raise FileExistsError(f"{folder} exists and is no {what}; choose another name")
    if folder.exists() and not overwrite:
        raise FileExistsError(
            f"{folder} holds {'an' if what[0] in 'aeiou' else 'a'} {what} already; choose another "
            "name, or replace it with overwrite=True"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise FileExistsError(
            f"{folder.parent} is no folder, and {folder} can't be in it; choose another name"
        ) from error
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as name:
        partial = Path(name) / "model"
        partial.mkdir()
        yield partial
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(partial, folder)


def write_model(
    path: str | os.PathLike[str],
    content: Mapping[str, Any],
    weights: Weights,
    *,
    overwrite: bool = False,
) -> None:
    """Writes a model into a folder, whole or not at all.

    Args:
      path: of the folder.
      content: JSON, all but the weights.
      weights: arrays of NumPy.
      overwrite: whether an earlier model there is replaced.

    Raises:
      FileExistsError: an earlier model is there and not to be replaced, or something else is.
    """
    with written_whole(path, (MODEL_FILE,), "saved model", overwrite=overwrite) as folder:
        write_form(folder, SAVED, content, weights)


def write_form(folder: Path, form: Form, content: Mapping[str, Any], weights: Weights) -> None:
    """Writes the two files of a model; arguments as those of `write_model`."""
    leaves = map(np.asarray, jax.tree.leaves(weights))
    packed = form.pack(dict(zip(_names(weights), leaves, strict=True)))
    entries = {
        "format": FORMAT,
        "saved_by": versions()["aninfonce_jax"],
        "layout": layout_of(weights),
        "sha256": hashlib.sha256(packed).hexdigest(),
        **content,
    }
    write_bytes(folder / form.weights_file, packed)
    write_json(folder / form.model_file, entries)


def _names(weights: Weights) -> list[str]:
    """Returns the names of all arrays, such as `params.encoder.Dense_0.kernel`.

    Raises:
      ModelError: two have the same.
    """
    names = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree.leaves_with_path(weights)
    ]
    if len(set(names)) < len(names):
        raise ModelError("two of the encoder's parameters have the same name, but for dots in it")
    return names


def read_model(folder: Path, form: Form) -> dict[str, Any]:
    """Returns the JSON of a model.

    Raises:
      ModelError: it can't be read, or a newer version wrote it.
    """
    try:
        content = read_json(folder / form.model_file, _JSON_BYTES)
    except (FileError, OSError) as error:
        raise ModelError(f"{folder} can't be loaded: {error}; save the model again") from error
    found = content.get("format")
    if form is HUB and "format" not in content:
        raise ModelError(
            f"{folder / form.model_file} was not written by model.export(); only its models, and "
            "no others of the Hub, can be loaded"
        )
    if not isinstance(found, int) or found > FORMAT:
        raise ModelError(
            f"{folder / form.model_file} has format {found}, of aninfonce_jax "
            f"{content.get('saved_by')}, and this version knows {FORMAT}; update the package"
        )
    return content


def read_weights(folder: Path, form: Form, content: Mapping[str, Any], target: Weights) -> Weights:
    """Returns the weights of a saved model, in the structure of `target`.

    Args:
      folder: of the model.
      form: how it lies there.
      content: of its JSON.
      target: shapes of the weights that the model's code has now.

    Raises:
      ModelError: they are damaged, or those of another network.
    """
    file = folder / form.weights_file
    try:
        packed = read_bytes(file, _WEIGHTS_BYTES)
    except (FileError, OSError) as error:
        raise ModelError(f"{folder} can't be loaded: {error}; save the model again") from error
    if hashlib.sha256(packed).hexdigest() != content.get("sha256"):
        raise ModelError(
            f"{file} is damaged: its digest is not that of {form.model_file}; copy or save the "
            "model again"
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
    leaves = form.unpack(packed, _names(stored))
    weights: Weights = jax.tree.unflatten(jax.tree.structure(stored), leaves)
    return weights


def _numbers(leaf: Any) -> Any:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
