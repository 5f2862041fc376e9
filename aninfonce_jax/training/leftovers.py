"""Folders among the checkpoints that are not used: interrupted saves, and damaged checkpoints."""

from aninfonce_jax.files import move
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.workdir import FINISHED_SAVE, INTERRUPTED_SAVE


def interrupted_saves(directory: AnyPath) -> list[AnyPath]:
    """Returns what saves left behind that did not come to their end.

    Where nothing can be renamed, a save begins under its own name and ends with a mark.
    """
    found: list[AnyPath] = [*directory.iterdir()]
    return [path for path in sorted(found, key=str) if _is_interrupted(path)]


def set_aside(folder: AnyPath, ending: str) -> None:
    """Renames a checkpoint that is not used, out of the way but not lost."""
    target, copy = folder.with_name(f"{folder.name}.{ending}"), 1
    while target.exists():
        copy += 1
        target = folder.with_name(f"{folder.name}.{ending}-{copy}")
    if folder.exists():
        move(folder, target.name)


def _is_interrupted(folder: AnyPath) -> bool:
    if INTERRUPTED_SAVE in folder.name:
        return True
    if not isinstance(folder, RemotePath) or not folder.name.isdecimal():
        return False
    return not (folder / FINISHED_SAVE).exists()
