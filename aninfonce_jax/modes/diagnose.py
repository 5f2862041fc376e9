"""What --mode=diagnose does: a page for every run, or for a saved model and pairs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, complain, printable
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.remote import AnyPath

if TYPE_CHECKING:
    import numpy as np

    from aninfonce_jax.diagnosis.findings import Diagnosis


def diagnose(workdir: str, pairs: tuple[str, str] | None, overrides: Mapping[str, Any]) -> int:
    """Diagnoses what the folders hold, prints it and writes a page into each.

    Args:
      workdir: folders of runs or, with pairs, of saved models; commas between them.
      pairs: files of the two views; None: the runs' own held-out pairs.
      overrides: what to change in the runs' configs.

    Returns:
      The exit code.

    Raises:
      ConfigError: a folder, a file or a change that can't be used.
    """
    if not workdir:
        raise ConfigError("--workdir is missing: name the folder of a run, or several with commas")
    named = [workdir_lib.locate(name) for name in workdir.split(",")]
    folders = named if pairs is not None else workdir_lib.find_runs(named)
    from aninfonce_jax import compile_cache
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.diagnosis.arrays import PairsError
    from aninfonce_jax.runs import diagnose_config
    from aninfonce_jax.training.checkpoint import CheckpointError

    compile_cache.use()
    try:
        for folder in folders:
            if pairs is None:
                found = diagnose_config(folder, overrides)
            else:
                found = _diagnose_pairs(folder, pairs, overrides)
            print(found)
            print(f"diagnosis: {printable(folder / workdir_lib.DIAGNOSIS_PAGE)}", flush=True)
    except PairsError as error:
        raise ConfigError(f"{folder} can't be diagnosed: {error}") from error
    except (CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:
        return complain(f"the diagnosis can't be written: {error}", EXIT_FAILED)
    return 0


def _diagnose_pairs(
    folder: AnyPath, pairs: tuple[str, str], overrides: Mapping[str, Any]
) -> "Diagnosis":
    """Diagnoses a model, saved or in a work directory, on pairs from files."""
    from aninfonce_jax.diagnosis.diagnose import DEFAULT_NEGATIVES, diagnose
    from aninfonce_jax.estimator.loading import USER_ERRORS, load
    from aninfonce_jax.estimator.model import TrainedModel
    from aninfonce_jax.report.diagnosis import write_diagnosis_page

    if overrides:
        raise ConfigError(f"{next(iter(overrides))} has no use beside --pairs: nothing is built")
    views = [_read_view(name) for name in pairs]
    if len(views[0]) != len(views[1]):
        raise ConfigError(
            f"--pairs must have as many rows each, got {len(views[0])} and {len(views[1])}"
        )
    try:
        loaded = load(str(folder))
        model = loaded if isinstance(loaded, TrainedModel) else loaded.model_
        embeddings = [model.transform(view) for view in views]
    except USER_ERRORS as error:
        raise ConfigError(str(error)) from error
    batch_size = getattr(loaded, "batch_size_", None)
    keys = None if batch_size is None else model.objective.keys(int(batch_size))
    found = diagnose(
        *embeddings,
        concentration=model.concentration_,
        batch_negatives=DEFAULT_NEGATIVES if keys is None else keys - 1,
    )
    workdir_lib.write_diagnosis(folder, folder.absolute().name, found.to_dict())
    write_diagnosis_page(folder)
    return found


def _read_view(name: str) -> "np.ndarray":
    import numpy as np

    try:
        rows: np.ndarray = np.load(Path(name).expanduser(), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--pairs: {name} can't be read as an array: {error}") from error
    if rows.ndim < 2:
        raise ConfigError(f"--pairs: {name} must hold rows [n, ...], got shape {rows.shape}")
    return rows
