"""The store that all processes share: small texts by name, kept by the runtime's coordinator."""

from typing import Any

import jax

from aninfonce_jax.compat import coordination
from aninfonce_jax.distributed.watch import StoreLostError


class RuntimeStore:
    """The store of `jax.distributed`."""

    def __init__(self) -> None:
        self._client: Any = coordination()

    def set(self, key: str, text: str, *, overwrite: bool = False) -> bool:
        """Writes a text; returns False, and changes nothing, if there is one already."""
        try:
            self._client.key_value_set(key, text, allow_overwrite=overwrite)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise StoreLostError(_first_line(error)) from error
        return True

    def get(self, key: str, seconds: float) -> str | None:
        """Returns a text, waiting for it for a while; None if there is none by then."""
        try:
            if seconds <= 0:
                found: str = self._client.key_value_try_get(key)
            else:
                found = self._client.blocking_key_value_get(key, max(1, round(seconds * 1000)))
        except jax.errors.JaxRuntimeError as error:
            if any(word in str(error) for word in ("NOT_FOUND", "DEADLINE_EXCEEDED")):
                return None
            raise StoreLostError(_first_line(error)) from error
        return found

    def below(self, prefix: str) -> dict[str, str]:
        """Returns all texts whose names begin so, by the rest of their names."""
        try:
            found = self._client.key_value_dir_get(prefix)
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return {}
            raise StoreLostError(_first_line(error)) from error
        return {key.removeprefix(prefix): text for key, text in found}

    def remove(self, prefix: str) -> None:
        """Removes a text, or all below a name."""
        try:
            self._client.key_value_delete(prefix)
        except jax.errors.JaxRuntimeError as error:
            raise StoreLostError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
