"""A digest inside a JSON file of all that it holds, so that damage and edits are noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aninfonce_jax.files import FileError, finite
from aninfonce_jax.remote import AnyPath

# Of config.json and eval.json. Files of format 1 had neither this number nor a digest.
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
