"""The command that the documentation gives to XPK starts the program, and not for ever."""

import re
import subprocess
import sys

from small_run import ROOT


def documented_command():
    """Returns the command as a reader would paste it, with a bucket that is a folder here."""
    page = (ROOT / "docs" / "scaling-out.md").read_text()
    text = re.search(r"^    xpk workload create(?:.*\\\n)+.*\n", page, re.MULTILINE)[0]
    return text.replace("gs://MY_BUCKET", '"$BUCKET"')


def workload(fakes, tmp_path):
    """Returns what XPK is told to run, as the shell of a user hands it over."""
    xpk = tmp_path / "xpk"
    code = "import sys; print([x for x in sys.argv if x.startswith('--command=')][0][10:])"
    xpk.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    xpk.chmod(0o755)
    environment = fakes.environment | {"PATH": f"{tmp_path}:{fakes.environment['PATH']}"}
    environment["BUCKET"] = str(tmp_path / "bucket")
    run = subprocess.run(
        ["bash", "-c", documented_command()],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout


def test_a_workload_that_gets_no_further_comes_to_an_end(fakes, tmp_path):
    command = workload(fakes, tmp_path)
    fakes.plan(0, "save 75", "75")

    def start(**variables):
        return subprocess.run(
            ["bash", "-c", command],
            cwd=fakes.checkout,
            env=fakes.environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    for _ in range(5):
        assert start(TPU_WORKER_ID="0").returncode == 75
        # The others do not count: not those of the same slice, nor the first of another.
        others = {"TPU_WORKER_ID": "1"}, {"TPU_WORKER_ID": "0", "MEGASCALE_SLICE_ID": "1"}
        assert [start(**other).returncode for other in others] == [75, 75]
    done = start(TPU_WORKER_ID="0")
    assert done.returncode == 1
    assert "4 starts without a new checkpoint (latest: run at step 0)" in done.stderr
    assert fakes.calls("python")[0][2:] == [
        f"--workdir={tmp_path}/bucket/runs/one",
        "--config=configs/quickstart.py",
    ]
