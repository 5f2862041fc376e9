"""Folders that the first test to need them makes, for all workers of a session; to be read only."""

import fcntl
import os


def make_once(tmp_path_factory, name, make):
    """Returns a folder that `make` has filled, in this worker or in another.

    Args:
      tmp_path_factory: of pytest.
      name: of the folder, in the session.
      make: fills the folder that it is given, which does not exist yet.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # a folder for each worker is below that of the session
    folder, made = base / f"shared-{name}", base / f"shared-{name}.made"
    with (base / f"shared-{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # the others wait, and take what they find
        if not made.exists():
            make(folder)
            made.touch()
    return folder
