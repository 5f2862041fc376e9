"""What compilers of other machines need to find, and where what they print goes."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath


@contextlib.contextmanager
def compilers_ready(log: AnyPath) -> Iterator[None]:
    """Sets up the environment of compilers; enter it before jax is imported.

    Programs are traced on the CPU, whatever this machine has. Libtpu lets one process load it at
    a time, to protect a TPU, of which there is none to protect here. What compilers print by
    themselves, pages of it, goes to a file; what Python prints goes where it always does.

    Args:
      log: the file; written at the end, if its folder is there.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    sys.stderr.flush()
    screen, pythons = os.dup(2), sys.stderr
    with tempfile.TemporaryFile() as file, os.fdopen(os.dup(2), "w", 1) as stream:
        os.dup2(file.fileno(), 2)
        sys.stderr = stream
        try:
            yield
        finally:
            os.dup2(screen, 2)
            os.close(screen)
            sys.stderr = pythons
            if log.parent.is_dir():
                file.seek(0)
                write_bytes(log, file.read())
