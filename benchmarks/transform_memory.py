"""Memory of `transform` on a mapped array that is larger than one would like to hold.

    python benchmarks/transform_memory.py --gigabytes=5

It writes such a file, embeds it, and prints after every tenth of the rows what the process holds:
memory of its own ("anonymous"), and pages of the file that are mapped, which the system takes back
when it needs them. Linux only.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import numpy as np

import aninfonce_jax as an

COLUMNS = 1024
CHUNK = 4096


def resident() -> dict[str, float]:
    """Returns what this process holds, in MB, by kind."""
    names = {"RssAnon": "anonymous", "RssFile": "mapped", "VmRSS": "all"}
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(found[key].split()[0]) / 1024 for key, name in names.items()}


def write_rows(path: Path, count: int) -> None:
    """Writes an array [count, COLUMNS] without ever holding it."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, COLUMNS)}
    chunk = np.random.default_rng(0).normal(size=(CHUNK, COLUMNS)).astype(np.float32)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, count, CHUNK):
            file.write(chunk[: min(CHUNK, count - start)].tobytes())


def init(key: jax.Array, rows: jax.Array) -> jax.Array:
    return jax.random.normal(key, (rows.shape[1], 8)) / 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--folder", default=None, help="where the file is written, and removed")
    flags = parser.parse_args()
    count = int(flags.gigabytes * 1e9) // (4 * COLUMNS)
    rows = np.random.default_rng(1).normal(size=(64, COLUMNS)).astype(np.float32)
    encoder = (init, lambda weights, x: x @ weights)
    model = an.AnInfoNCE(dim=8, encoder=encoder, steps=1, batch_size=16).fit(rows, rows + 0.1)
    model.transform(rows)
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path, count)
        mapped = np.load(path, mmap_mode="r")
        before = resident()
        print(f"{count:,} rows of {COLUMNS} columns, {mapped.nbytes / 1e9:.2f} GB")
        print(f"before: {_shown(before)}")
        highest = dict.fromkeys(before, 0.0)
        done, told = 0, 0
        for batch in model.model_.transform_batches(mapped):
            done += len(batch)
            now = resident()
            highest = {name: max(highest[name], now[name]) for name in now}
            if done * 10 // count > told:
                told = done * 10 // count
                print(f"{10 * told:3d}% of the rows: {_shown(now)}", flush=True)
        print(f"highest: {_shown(highest)}")


def _shown(held: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f} MB" for name, value in held.items())


if __name__ == "__main__":
    main()
