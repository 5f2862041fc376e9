"""Digests of arrays, records and folders, to tell damage from data."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from aninfonce_jax.files import files_below, write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir import SEAL_FILE


class DamagedError(Exception):
    """Something that does not match its checksum."""


def is_visible(leaf: Any) -> bool:
    """Returns whether this process has the global value of a leaf."""
    if not isinstance(leaf, jax.Array):
        return True
    return leaf.is_fully_addressable or leaf.is_fully_replicated


def digest_array(array: np.ndarray | jax.Array) -> str | None:
    """Returns the digest of the global value, None where one process can't see it."""
    if not is_visible(array):
        return None
    return hashlib.sha256(np.asarray(array).tobytes()).hexdigest()


def protect(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns a JSON value together with the digest of its text."""
    text = json.dumps(record)
    return {"record": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def unprotect(protected: Mapping[str, str]) -> dict[str, Any]:
    """Returns what `protect` was given; raises DamagedError if it changed since."""
    text = protected["record"]
    if hashlib.sha256(text.encode()).hexdigest() != protected["sha256"]:
        raise DamagedError("its record does not match its own checksum")
    return json.loads(text)


def _digest_files(folder: AnyPath) -> dict[str, str]:
    """Returns the digest of every file below a folder, by its relative path."""
    return {
        f"{path}".removeprefix(f"{folder}/"): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files_below(folder)
        if not path.name.startswith(SEAL_FILE)
    }


def write_seal(folder: AnyPath) -> None:
    """Writes the digests of all files of a folder into it, as `sha256sum` would."""
    lines = [f"{digest}  {name}\n" for name, digest in _digest_files(folder).items()]
    write_bytes(folder / SEAL_FILE, "".join(lines).encode())


def check_seal(folder: AnyPath) -> None:
    """Raises DamagedError if a file differs from the seal, is missing, or was added."""
    try:
        text = (folder / SEAL_FILE).read_text()
    except FileNotFoundError:
        return  # killed before it was sealed: the record tells
    sealed = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        if not name:
            raise DamagedError(f"file {SEAL_FILE} is cut off")
        sealed[name] = digest
    found = _digest_files(folder)
    for name in sorted(sealed.keys() | found.keys()):
        if name not in found:
            raise DamagedError(f"file {name} is missing")
        if name not in sealed:
            raise DamagedError(f"file {name} is not listed in {SEAL_FILE}")
        if sealed[name] != found[name]:
            raise DamagedError(f"file {name} does not match its checksum")
