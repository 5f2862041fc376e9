"""A bound on the memory that a test may take, of which no allocator knows a way around."""

import contextlib
import resource
from pathlib import Path

PAGE = resource.getpagesize()


@contextlib.contextmanager
def memory_limit(extra_bytes):
    """Lets this process have so many bytes more than it has; an allocation beyond that fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (taken + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
