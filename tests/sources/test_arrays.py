"""Mapped arrays: what was read of them is not held."""

import sys
from pathlib import Path

import numpy as np
import pytest

from aninfonce_jax.sources.arrays import release_pages


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((4096, 1024), np.float32))  # 16 MiB
    return tmp_path / "rows.npy"


def mapped_kilobytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssFile")).split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_that_were_read_are_given_back(file):
    rows = np.load(file, mmap_mode="r")[1:]
    before = mapped_kilobytes()
    assert rows.sum() == 4095 * 1024
    assert mapped_kilobytes() - before > 8 * 1024
    release_pages(rows)
    assert mapped_kilobytes() - before < 2 * 1024
    assert rows[-1].sum() == 1024


def test_changes_of_ones_own_are_kept(file):
    for mode in ("c", "r+"):
        rows = np.load(file, mmap_mode=mode)
        rows[0, 0] = 5
        release_pages(rows)
        assert rows[0, 0] == 5
    release_pages(np.ones(3))
    release_pages([1, 2])
