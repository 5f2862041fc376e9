"""Config files: Python files whose get_config() returns the values of a run."""

import importlib.util
import inspect
import os
import stat
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.values import shown

_PACKAGE = Path(__file__).resolve().parent.parent
# A wheel carries the configs inside the package; in a clone they stand beside it.
_INSTALLED_CONFIGS, _CLONED_CONFIGS = _PACKAGE / "configs", _PACKAGE.parent / "configs"
_SHIPPED_CONFIGS = _INSTALLED_CONFIGS if _INSTALLED_CONFIGS.is_dir() else _CLONED_CONFIGS
_MOST_BYTES = 2**20


class _Duty(NamedTuple):
    """What a function of a file returns: in a word, as a type, and what it is for."""

    word: str
    type: str
    meaning: str


_DUTIES = {
    "get_config": _Duty("a config", "a ConfigDict", "which returns the config"),
    "sweep": _Duty(
        "a sweep",
        "a dictionary",
        "which says what to vary: {'grid': {'source.dim': (10, 20)}, 'seeds': (0, 1)}",
    ),
}


def split_variant(name: str) -> tuple[str, str | None]:
    """Returns the file and the variant of FILE[:VARIANT]; None: no variant is given."""
    file, colon, variant = name.rpartition(":")
    # A colon may belong to a folder's name.
    return (file, variant) if colon and os.sep not in variant else (name, None)


def load_config(name: str) -> Mapping[str, Any]:
    """Returns what get_config() of FILE[:VARIANT] returns.

    config_flags can load files too, but through a call that newer Pythons removed, and
    with a traceback where a line would do.

    Args:
      name: a path or the name of a shipped config, and perhaps a variant.

    Raises:
      ConfigError: if there is no such file, or it does not make a config.
    """
    return _load(name, "get_config")


def load_sweep(name: str) -> Mapping[str, Any]:
    """Returns what sweep() of FILE[:VARIANT] returns; raises as `load_config`."""
    return _load(name, "sweep")


def _load(name: str, function: str) -> Mapping[str, Any]:
    """Returns the mapping that a function of FILE[:VARIANT] returns."""
    file, variant = split_variant(name)
    path, duty = _find(file), _DUTIES[function]
    spec = importlib.util.spec_from_file_location("config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"config file {shown(file)} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        values = _call(module, variant, function)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    except KeyboardInterrupt:  # of the user, as far as one can tell
        raise
    except SystemExit as error:
        raise ConfigError(
            f"{file} calls sys.exit({shown(error.code)}); it must return {duty.word}, or raise an "
            "error that says why not"
        ) from error
    except BaseException as error:  # whatever a file does, its user gets a line
        if _is_ours(error, path):
            raise
        raise ConfigError(
            f"{file} failed to load: {type(error).__name__}: {_message(error)}"
        ) from error
    if not isinstance(values, Mapping | ConfigDict):
        raise ConfigError(f"{file}: {function}() must return {duty.type}, got {shown(values)}")
    return values


def _find(file: str) -> Path:
    """Returns the path of a regular file, small enough to be a config.

    configs/quickstart.py, quickstart.py and quickstart mean the shipped config in any folder,
    as long as no file of one's own has that path.
    """
    given = Path(file)
    # An empty name is no file; as a path it would be the current folder.
    candidates = [given] if file else []
    if given.parent in (Path(), Path("configs")) and given.name:
        shipped = _SHIPPED_CONFIGS / (given.name if given.suffix else f"{given.name}.py")
        # A folder of that name, of one's own runs perhaps, does not hide a shipped config.
        hidden = os.path.isdir(given) and os.path.isfile(shipped)
        candidates = [shipped] if hidden else [given, shipped]
    for path in candidates:
        try:
            found = path.stat()
        except (OSError, ValueError):  # missing, not to be read, too long, or no path at all
            continue
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise ConfigError(f"config file {shown(file)} is {kind}; expected FILE[:VARIANT]")
        if found.st_size > _MOST_BYTES:
            raise ConfigError(
                f"config file {shown(file)} has {found.st_size:,} bytes; a config has at most "
                f"{_MOST_BYTES:,}"
            )
        return path
    names = ", ".join(sorted(path.stem for path in _SHIPPED_CONFIGS.glob("[!_]*.py")))
    raise ConfigError(
        f"config file {shown(file)} does not exist; expected FILE[:VARIANT], or one of {names}"
    )


def _call(module: Any, variant: str | None, name: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"it must define {name}(), {_DUTIES[name].meaning}")
    arguments = () if variant is None else (variant,)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        expected = "no variant" if variant is not None else "a variant: FILE:VARIANT"
        raise ConfigError(f"{name}{inspect.signature(function)} takes {expected}") from error
    return function(*arguments)


def _is_ours(error: BaseException, file: Path) -> bool:
    """Returns whether an error arose in this package, or in what it calls, and not in the file.

    Then it is a bug of ours, of which a traceback tells more than a line.
    """
    frames = [
        Path(frame.f_code.co_filename).resolve()
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    file = file.resolve()
    # This module is on the way to every file. A shipped config is inside the package, too.
    callers = [
        path
        for path in frames
        if path == file or (path.is_relative_to(_PACKAGE) and path != Path(__file__).resolve())
    ]
    return callers[-1:] not in ([], [file])


def _message(error: BaseException) -> str:
    """Returns what an error says, in its first line."""
    try:
        lines = str(error).splitlines()
    except Exception:  # an error whose text fails
        lines = []
    text = lines[0] if lines else "no message"
    return text if len(text) <= 200 else f"{text[:200]}…"
