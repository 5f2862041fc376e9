"""Pages of work directories that the loop wrote, and others derived from them."""

import functools

import pytest
from derived_workdirs import Written, derive_readouts, derive_recovery
from shared_folders import make_once

from aninfonce_jax.report import report
from aninfonce_jax.workdir import REPORT_FILE


@pytest.fixture(scope="session")
def fake_workdir(synthetic_runs):
    """Makes a work directory with known latents; see `derive_recovery`."""
    return functools.partial(derive_recovery, Written.read(synthetic_runs[0]))


@pytest.fixture(scope="session")
def fake_image_workdir(image_runs):
    """Makes a work directory with known examples; see `derive_readouts`."""
    return functools.partial(derive_readouts, Written.read(image_runs[1]))


@pytest.fixture(scope="session")
def contrast(fake_workdir, tmp_path_factory):
    """Two runs and their page: AnInfoNCE finds all, InfoNCE loses style."""
    base = tmp_path_factory.mktemp("contrast")
    folders = [
        fake_workdir(base / "an"),
        fake_workdir(base / "info", "infonce", content=0.97, style=0.06),
    ]
    return folders, report.write_report(folders, base / "out")


@pytest.fixture(scope="session")
def pages(synthetic_runs, image_runs, pairs_run, known_run, tmp_path_factory):
    """By name, the runs of a page, all written by the loop, and the page itself."""
    runs = {
        "synthetic": synthetic_runs,
        "images": image_runs,
        "pairs": [pairs_run],
        "known": [known_run],
        "mixed": [*synthetic_runs, *image_runs, pairs_run],
    }

    def make(folder):
        for name, folders in runs.items():
            report.write_report(folders, folder / name)

    folder = make_once(tmp_path_factory, "pages", make)
    return {name: (folders, folder / name / REPORT_FILE) for name, folders in runs.items()}
