"""Command line: aninfonce embed --workdir=DIR --input=FOLDER --output=z.npy.

Embeds observations with a run that is trained, or a model that was saved. The data that it was
trained on need not be there.
"""

import argparse
import csv
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aninfonce_jax.cli import UsageError, parse_flags
from aninfonce_jax.estimator import command

if TYPE_CHECKING:
    import numpy as np

    from aninfonce_jax.estimator.model import TrainedModel

COMMAND = "embed"
USAGE = """\
Embed observations with a trained run; the data it was trained on need not be there.

usage: aninfonce embed --workdir=DIR --input=FOLDER|FILE.npy
           --output=FILE.npy|FILE.csv|FILE.parquet

examples:
  aninfonce embed --workdir=runs/cifar10 --input=images --output=z.csv
      every image in the folder and below it, in the order of their names
  aninfonce embed --workdir=runs/linear --input=observations.npy --output=z.npy
      the rows of an array, which may be larger than memory

flags:
  --workdir  of a run, or a model that was saved
  --input    a folder of images (JPEG, PNG, WebP or BMP), or an array [n, ...]
  --output   .npy: float32 [n, dim]; .csv and .parquet: a column for each dimension and,
             of images, one with their names; .parquet needs pyarrow
  --help     this page
"""
_FLAGS = ("workdir", "input", "output")
_ENDINGS = (".npy", ".csv", ".parquet")


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
      arguments: those behind `embed`.
    """
    return command.run(USAGE, arguments, _parse, _embed)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parse_flags(COMMAND, _FLAGS, arguments)
    if Path(flags.output).suffix not in _ENDINGS:
        raise UsageError(f"--output must end in {', '.join(_ENDINGS)}, got {flags.output!r}")
    if flags.output.endswith(".parquet") and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"--output={flags.output} needs pyarrow, which is not installed; install it, or "
            "write .npy or .csv"
        )
    if not Path(flags.output).absolute().parent.is_dir():
        raise UsageError(f"--output={flags.output}: there is no such folder; make it first")
    return flags


def _embed(found: Any, flags: argparse.Namespace) -> str:
    """Embeds the input and writes the output; returns what was done."""
    from aninfonce_jax.estimator.model import TrainedModel

    model = found if isinstance(found, TrainedModel) else found.model_
    rows, names = _open_input(Path(flags.input).expanduser(), model)
    output = Path(flags.output)
    partial = output.with_name(f"{output.name}.partial")
    try:
        _WRITERS[output.suffix](partial, model, rows, names)
        os.replace(partial, output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return f"embeddings of {len(rows):,} rows: {flags.output}"


def _open_input(path: Path, model: "TrainedModel") -> tuple[Any, list[str] | None]:
    """Returns rows that can be cut out, and the names of those that have any."""
    import numpy as np

    if path.is_dir():
        if not model.rows.resize:
            raise UsageError(
                f"--input={path} is a folder, and the model takes rows of shape "
                f"{model.rows.shape}, not images; pass an array, FILE.npy"
            )
        images = ImageFiles(path, model.rows.shape[0], model.rows.shape[-1])
        return images, images.names
    if path.suffix != ".npy" or not path.is_file():
        raise UsageError(f"--input={path} is neither a folder nor an array, FILE.npy")
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise UsageError(f"--input={path} can't be read as an array: {error}") from error
    if rows.ndim < 2:
        raise UsageError(f"--input={path} must hold rows [n, ...], got shape {rows.shape}")
    return rows, None


class ImageFiles:
    """The images of a folder and all below it, decoded as they are asked for.

    Args:
      folder: where they are.
      size: to which they are brought, height and width.
      channels: 3 for RGB, 1 for greyscale.
    """

    def __init__(self, folder: Path, size: int, channels: int) -> None:
        from aninfonce_jax.data.datasets import IMAGE_SUFFIXES
        from aninfonce_jax.data.decode import Decoder

        found = (
            Path(parent, name)
            for parent, folders, names in os.walk(folder)
            for name in names
            if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")
        )
        self.paths = sorted(found)
        if not self.paths:
            raise UsageError(f"--input={folder} holds no image: .jpeg, .png, .webp or .bmp")
        self.names = [str(path.relative_to(folder)) for path in self.paths]
        self._decoder = Decoder(size, channels=channels)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: slice) -> "np.ndarray":
        """Returns the pixels of some images, uint8 [n, size, size, channels]."""
        import numpy as np

        return np.stack([self._decode(path) for path in self.paths[rows]])

    def _decode(self, path: Path) -> "np.ndarray":
        from aninfonce_jax.data.headers import CorruptImageError
        from aninfonce_jax.data.source import DataError, read_file

        try:
            return self._decoder(read_file(path, _MOST_BYTES))
        except (CorruptImageError, DataError, OSError) as error:
            raise UsageError(f"{path} can't be read: {error}; repair or remove it") from error


# The largest image file that is read.
_MOST_BYTES = 2**30


def _write_npy(path: Path, model: "TrainedModel", rows: Any, names: list[str] | None) -> None:
    import numpy as np

    del names
    out = np.lib.format.open_memmap(path, "w+", np.float32, (len(rows), model.dim))
    start = 0
    for batch in model.transform_batches(rows):
        out[start : start + len(batch)] = batch
        start += len(batch)
    out.flush()


def _columns(model: "TrainedModel", names: list[str] | None) -> list[str]:
    return [*(["name"] if names is not None else []), *(f"z{i}" for i in range(model.dim))]


def _write_csv(path: Path, model: "TrainedModel", rows: Any, names: list[str] | None) -> None:
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(_columns(model, names))
        for own, batch in _batches(model, rows, names):
            # As many digits as make a float32 what it was.
            texts = [[f"{value:.9g}" for value in row] for row in batch]
            writer.writerows(
                texts if own is None else [[n, *t] for n, t in zip(own, texts, strict=True)]
            )


def _write_parquet(path: Path, model: "TrainedModel", rows: Any, names: list[str] | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [pa.field(name, pa.string() if name == "name" else pa.float32())
              for name in _columns(model, names)]  # fmt: skip
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        for own, batch in _batches(model, rows, names):
            columns = [*([own] if own is not None else []), *batch.T]
            writer.write_table(pa.table([pa.array(x) for x in columns], schema=schema))


def _batches(
    model: "TrainedModel", rows: Any, names: list[str] | None
) -> Iterator[tuple[list[str] | None, "np.ndarray"]]:
    """Yields the names and the embeddings of some rows at a time."""
    start = 0
    for batch in model.transform_batches(rows):
        yield None if names is None else names[start : start + len(batch)], batch
        start += len(batch)


_WRITERS: dict[str, Callable[[Path, "TrainedModel", Any, list[str] | None], None]] = {
    ".npy": _write_npy,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
