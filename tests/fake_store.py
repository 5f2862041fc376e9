"""An object store in memory, in place of gcsfs: for tests that need no server."""

from typing import Any

import fsspec
import pytest
import tensorstore

from aninfonce_jax import remote
from aninfonce_jax.workdir import lease


class FakeStore(fsspec.AbstractFileSystem):
    """Objects by name. Folders are nothing but the beginnings of names.

    Attributes:
      objects: what is stored.
      error: raised by every request; None: none is.
    """

    protocol = ("gs", "gcs")
    cachable = False

    def __init__(self, **settings: Any) -> None:
        # fsspec passes on what remote._store has set for every gs://, once a test has called it.
        super().__init__(**{**settings, "use_listings_cache": False})
        self.objects: dict[str, bytes] = {}
        self.error: Exception | None = None

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Lists one level."""
        self._fail()
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        for name, content in self.objects.items():
            if name == path:
                found[name] = {"name": name, "type": "file", "size": len(content)}
            elif name.startswith(f"{path}/"):
                below = f"{path}/{name.removeprefix(f'{path}/').partition('/')[0]}"
                kind = "file" if below == name else "directory"
                found[below] = {"name": below, "type": kind, "size": len(content)}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else list(found)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Tells of one object, or of a beginning of names."""
        path = self._strip_protocol(path)
        found = self.ls(path)
        own = [entry for entry in found if entry["name"] == path]
        return own[0] if own else {"name": path, "type": "directory", "size": 0}

    def cat_file(self, path: str, **_: Any) -> bytes:
        """Reads."""
        self._fail()
        try:
            return self.objects[self._strip_protocol(path)]
        except KeyError as error:
            raise FileNotFoundError(f"http://store/{path}") from error

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Writes."""
        self._fail()
        if not path.startswith("gs://bucket/"):
            raise FileNotFoundError(f"http://store/{path}")
        self.objects[self._strip_protocol(path)] = bytes(value)

    def rm_file(self, path: str) -> None:
        """Removes."""
        self._fail()
        if self.objects.pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)

    def rm(self, path: str, recursive: bool = False, **_: Any) -> None:
        """Removes one object, or all below."""
        for name in self.find(path):
            self.rm_file(name)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies."""
        self.pipe_file(f"gs://{self._strip_protocol(path2)}", self.cat_file(path1))

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def install(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """Puts a store with one bucket, `bucket`, in the place of gcsfs and TensorStore."""
    store = FakeStore()
    locks = tensorstore.KvStore.open({"driver": "memory"}).result()
    monkeypatch.setattr(remote, "_store_class", lambda: FakeStore)
    monkeypatch.setattr(remote, "_store", lambda: store)
    monkeypatch.setattr(lease, "open_store", lambda folder: locks / f"{folder.place}/")
    return store
