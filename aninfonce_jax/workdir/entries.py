"""What lies in a folder: runs, and names that are taken by something else."""

from collections.abc import Iterable

from aninfonce_jax.files import is_there
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.workdir.names import (
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    FIGURE_ENDINGS,
    FIGURES_FOLDER,
    FILES,
    FOLDERS,
    SWEEP_FILE,
    TRACES,
    WorkdirError,
    reading,
)


def find_runs(folders: Iterable[AnyPath]) -> list[AnyPath]:
    """Returns the runs that folders hold: each one itself, and those one level below.

    Raises:
      WorkdirError: if a folder does not exist, or holds no run.
    """
    found: list[AnyPath] = []
    for folder in folders:
        with reading(folder):
            if not folder.exists():
                raise WorkdirError(f"work directory {folder} does not exist")
            if not folder.is_dir():
                raise WorkdirError(f"work directory {folder} is a file; expected a folder")
            below = sorted(path for path in folder.iterdir() if path.is_dir())
            runs = [path for path in (folder, *below) if _is_run(path)]
        if not runs:
            raise WorkdirError(f"{folder} holds no run: no {CONFIG_FILE} in it or one level below")
        found += runs
    return found


def has_config(folder: AnyPath) -> bool:
    """Returns whether a run has written its config into a folder."""
    return (folder / CONFIG_FILE).exists()


def has_checkpoint(folder: AnyPath, step: int | None = None) -> bool:
    """Returns whether a run has saved its state: at a step, or at any."""
    checkpoints = folder / CHECKPOINT_FOLDER
    return checkpoints.exists() if step is None else (checkpoints / str(step)).is_dir()


def is_sweep(folder: AnyPath) -> bool:
    """Returns whether a folder holds the runs of a sweep.

    Raises:
      WorkdirError: if the folder can't be read.
    """
    with reading(folder):
        return (folder / SWEEP_FILE).exists()


def _is_run(folder: AnyPath) -> bool:
    # By its traces too: a run whose config was lost must not be left out silently.
    return any(is_there(folder / name) for name in (CONFIG_FILE, *TRACES))


def check_entries(folder: AnyPath) -> None:
    """Raises WorkdirError if a name that a run uses is taken by something else."""
    with reading(folder):
        is_file = folder.exists() and not folder.is_dir()
        names = [*FILES, *FOLDERS]
        if isinstance(folder, RemotePath):  # one question rather than one for each name
            present = {path.name for path in folder.iterdir()}
            names = [name for name in names if name in present]
    if is_file:
        raise WorkdirError(
            f"work directory {folder} can't be written: it is a file; choose another --workdir"
        )
    for name in names:
        _check_entry(folder / name, is_folder=name in FOLDERS)
    for path in _figures(folder):
        _check_entry(path, is_folder=False)


def _check_entry(path: AnyPath, *, is_folder: bool) -> None:
    with reading(path):
        is_right = path.is_dir() if is_folder else path.is_file()
    if is_there(path) and not is_right:
        raise WorkdirError(
            f"{path} is {_kind(path)}, expected a {'folder' if is_folder else 'file'}; "
            "move it away, or choose another --workdir"
        )


def _figures(folder: AnyPath) -> list[AnyPath]:
    """Returns what has the name of a figure; in an object store nothing stands in its way."""
    figures = folder / FIGURES_FOLDER
    with reading(figures):
        if isinstance(folder, RemotePath) or not figures.is_dir():
            return []
        return sorted(path for path in figures.iterdir() if path.name.endswith(FIGURE_ENDINGS))


def _kind(path: AnyPath) -> str:
    if path.is_symlink() and not path.exists():
        return "a link to nothing"
    if path.is_dir():
        return "a folder"
    return "a file" if path.is_file() else "neither file nor folder"
