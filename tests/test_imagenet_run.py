"""configs/imagenet.py on real images: trained, killed, resumed and evaluated on a CPU."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest
from image_files import ROOT, real

# All that differs from the full experiment is where the images are, and how many.
SMALL = {
    "train.batch_size": 4,
    "train.steps": 3,
    "optimizer.warmup_steps": 1,
    "eval.every": 3,
    "eval.held_out_batches": 1,
    "eval.train_examples": 100,
    "eval.test_examples": 40,
    "eval.readout_examples": 16,
    "eval.batch_size": 8,
    "checkpoint.every": 1,
    "log.every": 1,
}


# As a user would run it: not on the eight slow devices of the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def command(folder, workdir, *more):
    return [
        sys.executable,
        *("-m", "aninfonce_jax.main", "--progress=off", f"--workdir={workdir}"),
        "--config=configs/imagenet.py:aninfonce",
        f"--config.source.folder={folder}",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
        *more,
    ]


@pytest.mark.slow
def test_imagenet_trains_is_killed_resumes_and_evaluates(tmp_path):
    with tarfile.open(real("imagenette224_subset.tar")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder, workdir = tmp_path / "imagenette224", tmp_path / "run"
    first = subprocess.Popen(command(folder, workdir), cwd=ROOT, env=ENVIRONMENT)
    while not list(workdir.glob("checkpoints/1/SHA256SUMS")):
        assert first.poll() is None, "it ended before its first checkpoint"
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    subprocess.run(command(folder, workdir), cwd=ROOT, env=ENVIRONMENT, check=True)
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["split"] == "train"] == [1, 2, 3]
    trained = json.loads((workdir / "eval.json").read_text())
    subprocess.run(command(folder, workdir, "--mode=eval"), cwd=ROOT, env=ENVIRONMENT, check=True)
    again = json.loads((workdir / "eval.json").read_text())
    assert again["readouts"] == trained["readouts"]
    assert (workdir / "table1.csv").exists()
    assert (workdir / "report.html").exists()
