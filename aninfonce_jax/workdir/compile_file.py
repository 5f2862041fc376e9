"""`compile.json`: what the step of a run takes on machines that are not at hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax.files import write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.names import COMPILE_FILE
from aninfonce_jax.workdir.seals import read_sealed, seal

# Far above what forecasts for every topology take.
_COMPILE_BYTES = 2**26
_ENTRIES = {"versions": dict, "forecasts": list}


def write_forecasts(
    folder: AnyPath, forecasts: Sequence[Mapping[str, Any]], versions: Mapping[str, str]
) -> None:
    """Writes `compile.json`.

    Args:
      folder: where.
      forecasts: as JSON holds them.
      versions: of the packages by which they were made.

    Raises:
      OSError: if it can't be written.
    """
    content = {"versions": dict(versions), "forecasts": list(forecasts)}
    write_json(folder / COMPILE_FILE, seal(content))


def read_forecasts(folder: AnyPath) -> Mapping[str, Any]:
    """Returns what `compile.json` holds: `versions` and `forecasts`.

    Raises:
      WorkdirError: it is missing, damaged or was edited.
    """
    advice = "; make it again with --mode=compile"
    return read_sealed(folder / COMPILE_FILE, _COMPILE_BYTES, _ENTRIES, advice)
