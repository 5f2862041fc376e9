"""Files that are written whole or not at all."""

import os
import pathlib


def write_bytes(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Writes a file whole or not at all, and makes its folder if need be.

    Returns:
      The path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)
    return path
