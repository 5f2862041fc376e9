"""`diagnosis.json`: which assumptions of the theorem the pairs of a run break."""

from collections.abc import Mapping
from typing import Any

from aninfonce_jax.files import write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.names import DIAGNOSIS_FILE
from aninfonce_jax.workdir.seals import read_sealed, seal

# Far above what a diagnosis takes, with a thousand dimensions too.
_DIAGNOSIS_BYTES = 2**28
_ENTRIES = {"title": str, "diagnosis": dict}


def write_diagnosis(folder: AnyPath, title: str, diagnosis: Mapping[str, Any]) -> None:
    """Writes `diagnosis.json`.

    Args:
      folder: of the run.
      title: what pages call the run.
      diagnosis: what was found, as JSON holds it.

    Raises:
      OSError: if it can't be written.
    """
    write_json(folder / DIAGNOSIS_FILE, seal({"title": title, "diagnosis": dict(diagnosis)}))


def read_diagnosis(folder: AnyPath) -> Mapping[str, Any]:
    """Returns what `diagnosis.json` holds: `title` and `diagnosis`.

    Raises:
      WorkdirError: it is missing, damaged or was edited.
    """
    advice = "; make it again with --mode=diagnose"
    return read_sealed(folder / DIAGNOSIS_FILE, _DIAGNOSIS_BYTES, _ENTRIES, advice)
