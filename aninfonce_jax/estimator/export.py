"""Trained models for others: as the Hugging Face Hub has them, as StableHLO, or as ONNX."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.export  # older versions do not import it themselves

from aninfonce_jax.estimator.card import CARD_FILE, write_card
from aninfonce_jax.estimator.saved import (
    HUB,
    HUB_WEIGHTS_FILE,
    ModelError,
    require,
    write_form,
    written_whole,
)
from aninfonce_jax.files import write_bytes
from aninfonce_jax.models.convolution import portable
from aninfonce_jax.types import Array

if TYPE_CHECKING:
    from aninfonce_jax.estimator.model import TrainedModel

Format = Literal["safetensors", "stablehlo", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)
STABLEHLO_FILE = "model.stablehlo"
ONNX_FILE = "model.onnx"
_MARKS = (HUB_WEIGHTS_FILE, STABLEHLO_FILE, ONNX_FILE)
_PLATFORMS = ("cpu", "tpu", "cuda")
# The size of a batch, which is chosen when the program is called.
_BATCH = "n"
_INPUT = "x"

_USAGE = {
    "safetensors": """\
import aninfonce_jax as an

model = an.load("FOLDER")  # where this card lies
embeddings = model.transform(x)
""",
    "stablehlo": f"""\
from jax import export

with open("{STABLEHLO_FILE}", "rb") as file:
    model = export.deserialize(file.read())  # for {", ".join(_PLATFORMS)}
embeddings = model.call(x)
""",
    "onnx": f"""\
import onnxruntime

model = onnxruntime.InferenceSession("{ONNX_FILE}")
(embeddings,) = model.run(None, {{"{_INPUT}": x}})
""",
}


def export_model(
    model: "TrainedModel",
    path: str | os.PathLike[str],
    format: Format,
    *,
    content: Mapping[str, Any],
    overwrite: bool = False,
) -> None:
    """Writes a model and its card into a folder, whole or not at all.

    Args:
      model: what is written.
      path: of the folder.
      format: see `FORMATS`.
      content: what is written of the model besides the weights.
      overwrite: whether what was exported there before is replaced.

    Raises:
      ValueError: there is no such format.
      ModelError: a package is missing, or the encoder can't be written so.
      FileExistsError: something is there and not to be replaced.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    with written_whole(path, _MARKS, "exported model", overwrite=overwrite) as folder:
        match format:
            case "safetensors":
                write_form(folder, HUB, content, model.weights)
            case "stablehlo":
                write_bytes(folder / STABLEHLO_FILE, as_stablehlo(model))
            case "onnx":
                write_bytes(folder / ONNX_FILE, as_onnx(model))
        card = write_card(model, content, _USAGE[format])
        write_bytes(folder / CARD_FILE, card.encode())


def _program(model: "TrainedModel") -> tuple[Callable[[Array], Array], jax.ShapeDtypeStruct]:
    """Returns the function from rows to embeddings, with the weights in it, and what it takes."""
    weights = model.typed_weights
    (batch,) = jax.export.symbolic_shape(_BATCH)
    rows = jax.ShapeDtypeStruct((batch, *model.rows.shape), model.rows.fed_dtype)
    return lambda x: model.embeddings(weights, x), rows


def as_stablehlo(model: "TrainedModel") -> bytes:
    """Returns a program of any number of rows, as `jax.export.deserialize` reads it.

    Raises:
      ModelError: flatbuffers is missing, or the encoder asks for the number of rows.
    """
    require("flatbuffers", "format='stablehlo'", "export")
    function, rows = _program(model)
    with _converting("stablehlo"):
        exported = jax.export.export(jax.jit(function), platforms=_PLATFORMS)(rows)
    return bytes(exported.serialize())


def as_onnx(model: "TrainedModel") -> bytes:
    """Returns a model of ONNX of any number of rows.

    Raises:
      ModelError: jax2onnx is missing, or does not know what the encoder does.
    """
    require("jax2onnx", "format='onnx'", "onnx")
    import jax2onnx

    function, rows = _program(model)
    with (
        _converting("onnx"),
        portable(),
        jax.numpy_rank_promotion("allow"),  # its own code needs that
        contextlib.redirect_stdout(io.StringIO()),  # it prints what it finds of some modules
    ):
        made = jax2onnx.to_onnx(
            function, [rows], model_name="aninfonce", input_names=[_INPUT], output_names=["z"]
        )
    # What it says of shapes inside is wrong for some convolutions; a runtime finds them itself.
    del made.graph.value_info[:]
    return bytes(made.SerializeToString())


@contextlib.contextmanager
def _converting(format: Format) -> Iterator[None]:
    """Says in one line that an encoder can't be converted."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"the encoder can't be written as {format}: {type(error).__name__}: {reason}; an "
            "encoder of one's own must take any number of rows, x.shape[0] and not len(x), or "
            "export it as safetensors"
        ) from error
