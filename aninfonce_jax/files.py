"""Files that are written whole or not at all."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes a file whole or not at all, and makes its folder if need be.

    Returns:
      The path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)
    return path


def write_json(path: Path, value: Any) -> Path:
    """Writes a value as strict JSON, whole or not at all; see `finite`.

    Returns:
      The path.
    """
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    return write_bytes(path, f"{text}\n".encode())


def finite(value: Any) -> Any:
    """Returns a JSON value with null, which strict JSON has, for NaN and infinities."""
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
