"""Two processes with two devices each: one run, that stops and fails together."""

import json
from pathlib import Path

import process_group
import pytest
from process_group import Group, assert_same_losses, flags

from aninfonce_jax import main

LIBRARY = Path(__file__).parents[1] / "library_worker.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The work directory of the same run by one process with four devices."""
    folder = tmp_path_factory.mktemp("alone")
    arguments = [*flags({"train.devices": 4}), f"--workdir={folder / 'run'}"]
    assert main.main(["main", *arguments]) == 0
    return folder / "run"


def test_two_processes_train_like_one_and_stop_and_go_on_together(alone, tmp_path):
    arguments = [*flags(), f"--workdir={tmp_path / 'run'}"]
    with Group(tmp_path, 2, arguments, fault="1:3:SIGTERM") as group:
        assert group.wait() == [75, 75], group
    for rank in (0, 1):
        # It comes in the third call, is handed in with the fourth, known to all with the fifth.
        assert "stopped at step 5 of 12; the state is saved" in group.complaint(rank)
    process_group.run(tmp_path, 2, arguments)
    assert_same_losses(tmp_path / "run", alone)


def test_processes_that_differ_are_refused_with_both_values(tmp_path):
    arguments = [*flags(), f"--workdir={tmp_path / 'run'}"]
    other = {1: ["--config.train.batch_size=48"]}
    with Group(tmp_path, 2, arguments, own=other) as group:
        assert group.wait() == [2, 2], group
    for rank in (0, 1):
        assert "train.batch_size of aninfonce is 48 there and 24 here" in group.complaint(rank)
    assert not (tmp_path / "run").exists()


def test_a_program_of_ones_own_loads_every_row_once(tmp_path):
    """Under jax.distributed, `train` spans all processes without being told."""
    process_group.run(tmp_path, 2, [str(tmp_path)], program=[str(LIBRARY)])
    loaded = [
        dict(map(json.loads, (tmp_path / f"rows{rank}.jsonl").read_text().splitlines()))
        for rank in (0, 1)
    ]
    for step in range(3):
        assert loaded[0][step] == list(range(8 * step, 8 * step + 4))
        assert loaded[1][step] == list(range(8 * step + 4, 8 * step + 8))
    states = [(tmp_path / f"result{rank}.json").read_text() for rank in (0, 1)]
    assert states[0] == states[1]
