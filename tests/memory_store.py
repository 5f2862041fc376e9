"""A store in memory, for threads that play processes."""

import threading
import time

from aninfonce_jax.distributed.watch import StoreLostError


class MemoryStore:
    """Texts by name, as `jax.distributed` would keep them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.is_lost = False
        self._changed = threading.Condition()

    def set(self, key: str, text: str, *, overwrite: bool = False) -> bool:
        """Writes a text; returns False, and changes nothing, if there is one already."""
        with self._changed:
            self._require()
            if key in self.texts and not overwrite:
                return False
            self.texts[key] = text
            self._changed.notify_all()
            return True

    def get(self, key: str, seconds: float) -> str | None:
        """Returns a text, waiting for it for a while; None if there is none by then."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while key not in self.texts and time.monotonic() < deadline:
                self._require()
                self._changed.wait(0.05)
            self._require()
            return self.texts.get(key)

    def below(self, prefix: str) -> dict[str, str]:
        """Returns all texts whose names begin so, by the rest of their names."""
        with self._changed:
            self._require()
            return {
                key.removeprefix(prefix): text
                for key, text in self.texts.items()
                if key.startswith(prefix)
            }

    def remove(self, prefix: str) -> None:
        """Removes a text, or all below a name."""
        with self._changed:
            self._require()
            self.texts = {k: v for k, v in self.texts.items() if not k.startswith(prefix)}

    def _require(self) -> None:
        if self.is_lost:
            raise StoreLostError("it is gone")
