"""A digest inside a JSON file of all that it holds, so that damage and edits are noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aninfonce_jax.files import FileError, finite, read_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.names import reading

# The format of config.json and eval.json. Files of format 1 had neither this number nor a digest.
FORMAT = 2


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content as JSON will hold it, with its format and digest."""
    plain = json.loads(json.dumps(finite({**content, "format": FORMAT})))
    return {**plain, "digest": _digest(plain)}


def check_seal(path: AnyPath, content: Mapping[str, Any]) -> bool:
    """Returns whether there is a seal; raises FileError if it does not fit."""
    if not {"format", "digest"} & content.keys():
        return False  # format 1
    unsealed = {name: value for name, value in content.items() if name != "digest"}
    if content.get("digest") != _digest(unsealed):
        raise FileError(f"{path} was changed: its digest does not fit its content")
    if content["format"] != FORMAT:
        raise FileError(f"{path} has format {content['format']}, this version knows {FORMAT}")
    return True


def read_sealed(
    path: AnyPath, most_bytes: int, entries: Mapping[str, type], advice: str
) -> Mapping[str, Any]:
    """Returns what a sealed file holds.

    Args:
      path: the file.
      most_bytes: that it may have.
      entries: what must be in it, and of which type.
      advice: how it is made again, behind what is wrong with it.

    Raises:
      WorkdirError: it is missing, damaged or was edited.
    """
    with reading(path, advice):
        values = read_json(path, most_bytes)
        check_seal(path, values)
        for name, kind in entries.items():
            if not isinstance(values.get(name), kind):
                raise FileError(f"{path} holds no {name}")
    return values
