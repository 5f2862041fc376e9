"""A Google Cloud Storage of this machine, for tests: `gcp-storage-emulator` with conditions.

The emulator writes whatever it is asked to. Google's answers say which generation of an object they
are about, and a write or a removal may name the one that it expects; both are added here. It can
also be told to answer with an error.

    with serve() as store:
        subprocess.run(command, env=os.environ | store.environment)
"""

import contextlib
import dataclasses
import http.server
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

BUCKET = "bucket"


@dataclasses.dataclass
class Store:
    """A running emulator.

    Attributes:
      address: of its server.
      storage: what it holds.
      faults: status codes that the next requests are answered with, first to last.
      denied: whether every write is refused, for want of permission.
      writes: how many requests have changed something so far.
    """

    address: str
    storage: Any
    faults: list[int] = dataclasses.field(default_factory=list)
    denied: bool = False
    writes: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """What makes gcsfs and TensorStore of another process go to it."""
        return {
            "STORAGE_EMULATOR_HOST": self.address,
            "TENSORSTORE_GCS_HTTP_URL": self.address,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "anything",
            "FSSPEC_GCS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all objects that begin so."""
        return sorted(name for name in self.storage.objects[BUCKET] if name.startswith(prefix))

    def read(self, name: str) -> bytes:
        """Returns what an object holds."""
        return self.storage.get_file(BUCKET, name)

    def write(self, name: str, content: bytes) -> None:
        """Changes what an object holds, behind everybody's back."""
        from gcp_storage_emulator.handlers import objects

        # Its checksums are made anew: the emulator compares them when the object is copied.
        unknown = dict.fromkeys(("crc32c", "md5Hash", "etag"))
        known = {**self.storage.get_file_obj(BUCKET, name), **unknown}
        self.storage.create_file(BUCKET, name, content, objects._checksums(content, known))

    def download(self, prefix: str, folder: Path) -> Path:
        """Writes all objects below a prefix into a folder, as `gcloud storage cp -r` does."""
        for name in self.names(f"{prefix}/"):
            path = folder / name.removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.read(name))
        return folder


@contextlib.contextmanager
def serve() -> Iterator[Store]:
    """Runs an emulator on a port of its own, with one bucket."""
    from gcp_storage_emulator import server as emulator

    # It takes every question about what is not there for an error.
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    storage = emulator.Storage(use_memory_fs=True)
    emulator.buckets.create_bucket(BUCKET, storage)
    store = Store("", storage)
    one_at_a_time = threading.Lock()

    class Handler(emulator.RequestHandler):
        """Puts faults and conditions before the emulator's own answers."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(storage, *arguments)

        def _answer(self, method: str) -> None:
            with one_at_a_time:
                status = _fault(store, method) or _refusal(store, self.path)
                if status is None:
                    emulator.Router(self).handle(method)
                    store.writes += method != "GET"
                    return
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_error(status)

        def do_GET(self) -> None:  # noqa: N802
            self._answer("GET")

        def do_POST(self) -> None:  # noqa: N802
            self._answer("POST")

        def do_PUT(self) -> None:  # noqa: N802
            self._answer("PUT")

        def do_DELETE(self) -> None:  # noqa: N802
            self._answer("DELETE")

        def end_headers(self) -> None:
            if (generation := _generation(store, self.path)) is not None:
                self.send_header("x-goog-generation", generation)
            super().end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.address = f"http://localhost:{server.server_port}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _fault(store: Store, method: str) -> int | None:
    if store.faults:
        return store.faults.pop(0)
    return 403 if store.denied and method != "GET" else None


def _refusal(store: Store, address: str) -> int | None:
    """Returns "precondition failed" if a request expects another generation."""
    expected = parse_qs(urlparse(address).query).get("ifGenerationMatch")
    if expected is None or expected == [_generation(store, address) or "0"]:
        return None
    return 412


def _generation(store: Store, address: str) -> str | None:
    """Returns the generation of the object that an address names; None if there is none."""
    parsed = urlparse(address)
    match = re.search(rf"/b/{BUCKET}/o(?:/([^/]+))?$", parsed.path)
    name = match and (match[1] or parse_qs(parsed.query).get("name", [""])[0])
    found = store.storage.objects.get(BUCKET, {}).get(unquote(name)) if name else None
    return found and found["generation"]
