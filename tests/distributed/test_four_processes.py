"""Four processes with two devices each, on latents and on images, and checkpoints between."""

import json
import shutil

import numpy as np
import process_group
import pytest
from image_files import write_folder
from process_group import Group, assert_same_losses, flags
from small_configs import SMALL_IMAGES

from aninfonce_jax import main
from aninfonce_jax import workdir as workdir_lib

pytestmark = pytest.mark.slow

IMAGES = SMALL_IMAGES | {"train.batch_size": 16, "log.every": 1}


def alone(folder, arguments, devices):
    """Runs a command in this process."""
    assert (
        main.main(["main", *arguments, f"--workdir={folder}", f"--config.train.devices={devices}"])
        == 0
    )
    return folder


def scores(folder):
    return json.loads((folder / workdir_lib.EVAL_FILE).read_text())


def state_files(folder, step):
    """Returns what a checkpoint holds, by the digests in its record."""
    checkpoint = folder / workdir_lib.CHECKPOINT_FOLDER / str(step)
    path = checkpoint / workdir_lib.RECORD_FOLDER / workdir_lib.RECORD_FILE
    return json.loads(json.loads(path.read_text())["record"])["sha256"]


def test_four_processes_train_like_one(tmp_path):
    process_group.run(tmp_path, 4, [*flags(), f"--workdir={tmp_path / 'four'}"])
    alone(tmp_path / "one", flags(), 8)
    assert_same_losses(tmp_path / "four", tmp_path / "one")
    ours, theirs = scores(tmp_path / "four"), scores(tmp_path / "one")
    for name in ("loss", "r2", "mcc_pearson"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4)


def test_slices_change_nothing_but_the_way(tmp_path):
    sliced = flags({"train.slices": 2})
    process_group.run(tmp_path, 4, [*sliced, f"--workdir={tmp_path / 'four'}"])
    alone(tmp_path / "one", flags(), 8)
    assert_same_losses(tmp_path / "four", tmp_path / "one")


def test_a_preempted_run_equals_one_that_was_not(tmp_path):
    """To the last bit, with a second signal during the save."""
    process_group.run(tmp_path, 4, [*flags(), f"--workdir={tmp_path / 'whole'}"])
    arguments = [*flags(), f"--workdir={tmp_path / 'parts'}"]
    with Group(tmp_path, 4, arguments, fault="2:3:SIGTERM,2:5:SIGTERM,0:5:SIGTERM") as group:
        assert group.wait() == [75] * 4, group
    process_group.run(tmp_path, 4, arguments)
    assert_same_losses(tmp_path / "parts", tmp_path / "whole", tolerance=0)
    assert state_files(tmp_path / "parts", 12) == state_files(tmp_path / "whole", 12)


def test_a_signal_in_the_last_call_stops_all(tmp_path):
    arguments = [*flags(), f"--workdir={tmp_path / 'run'}"]
    with Group(tmp_path, 2, arguments, fault="1:12:SIGTERM") as group:
        assert group.wait() == [75, 75], group
    process_group.run(tmp_path, 2, arguments)


@pytest.fixture(scope="module")
def halted(tmp_path_factory):
    """A run of four processes that was stopped at step 8 of 12, and one that was not."""
    folder = tmp_path_factory.mktemp("halted")
    arguments = [*flags(), f"--workdir={folder / 'run'}"]
    with Group(folder, 4, arguments, fault="3:6:SIGTERM") as group:
        assert group.wait() == [75] * 4, group
    alone(folder / "whole", flags(), 8)
    return folder


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_checkpoint_of_four_goes_on_in_one_process(halted, tmp_path, devices):
    shutil.copytree(halted / "run", tmp_path / "run")
    alone(tmp_path / "run", flags(), devices)
    assert_same_losses(tmp_path / "run", halted / "whole", tolerance=1e-5)


def test_a_checkpoint_of_four_goes_on_in_two(halted, tmp_path):
    shutil.copytree(halted / "run", tmp_path / "run")
    process_group.run(tmp_path, 2, [*flags(), f"--workdir={tmp_path / 'run'}"])
    assert_same_losses(tmp_path / "run", halted / "whole", tolerance=1e-5)


@pytest.mark.parametrize("devices", [1, 8])
def test_a_checkpoint_goes_from_four_to_one_process_and_back(halted, tmp_path, devices):
    shutil.copytree(halted / "run", tmp_path / "run")
    arguments = [*flags(), f"--workdir={tmp_path / 'run'}"]
    with Group(tmp_path, 1, arguments, devices=devices, fault="0:2:SIGTERM") as group:
        assert group.wait() == [75], group
    group = process_group.run(tmp_path, 4, arguments)
    assert "going on from step 11 of 12" in group.said(0)
    assert_same_losses(tmp_path / "run", halted / "whole", tolerance=1e-5)


def test_damage_is_judged_by_the_first_and_followed_by_all(halted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(halted / "run", run)
    latest = max(run.glob("checkpoints/[0-9]*"), key=lambda path: int(path.name))
    target = max((x for x in latest.rglob("*") if x.is_file()), key=lambda x: x.stat().st_size)
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    group = process_group.run(tmp_path, 4, [*flags(), f"--workdir={run}"])
    assert f"checkpoint {latest.name}: damaged, not used" in group.said(0)
    assert "going on from step" in group.said(0)
    assert_same_losses(run, halted / "whole", tolerance=1e-5)
    assert (latest.parent / f"{latest.name}.damaged").exists()


def test_nothing_whole_ends_all_with_a_line(halted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(halted / "run", run)
    for record in run.glob("checkpoints/[0-9]*/record/metadata"):
        record.write_text("{}")
    with Group(tmp_path, 2, [*flags(), f"--workdir={run}"]) as group:
        assert group.wait() == [1, 1], group
    for rank in (0, 1):
        assert "no checkpoint in" in group.complaint(rank)


def test_scores_are_made_again_by_all(halted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(halted / "whole", run)
    before = scores(run)
    (run / workdir_lib.EVAL_FILE).unlink()
    # The run had eight devices in one process; here each has two.
    arguments = ["--mode=eval", f"--workdir={run}", "--config.train.devices=0"]
    process_group.run(tmp_path, 2, arguments)
    np.testing.assert_allclose(scores(run)["r2"], before["r2"], rtol=1e-4)
    with Group(tmp_path, 2, arguments, own={1: ["--config.eval.samples=32"]}) as group:
        assert group.wait() == [2, 2], group
    assert "config.eval.samples is 32 there and 64 here" in group.complaint(1)


# --- Images ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_folder(root, {"train": {"a": 30, "b": 30}, "test": {"a": 10, "b": 10}})
    return root


def image_flags(folder):
    return flags({"source.folder": folder}, IMAGES)


def test_images_train_like_in_one_process_with_the_same_readouts(folder, tmp_path):
    arguments = [*image_flags(folder), f"--workdir={tmp_path / 'four'}"]
    with Group(tmp_path, 4, arguments, fault="1:2:SIGTERM") as group:
        assert group.wait() == [75] * 4, group
    process_group.run(tmp_path, 4, arguments)
    alone(tmp_path / "one", image_flags(folder), 8)
    assert_same_losses(tmp_path / "four", tmp_path / "one", tolerance=1e-4)
    ours, theirs = scores(tmp_path / "four"), scores(tmp_path / "one")
    assert ours["readouts"].keys() == theirs["readouts"].keys()
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-3)
    np.testing.assert_allclose(ours["knn_accuracy"], theirs["knn_accuracy"], atol=0.11)


def test_other_data_on_one_host_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    next((tmp_path / "other" / "train" / "a").iterdir()).unlink()
    own = {1: [f"--config.source.folder={tmp_path / 'other'}"]}
    arguments = [*image_flags(folder), f"--workdir={tmp_path / 'run'}"]
    with Group(tmp_path, 2, arguments, own=own) as group:
        assert group.wait() == [2, 2], group
    for rank in (0, 1):
        assert "the data set is '59 examples" in group.complaint(rank)
        assert "'60 examples" in group.complaint(rank)


def test_missing_data_on_one_host_reach_all(folder, tmp_path):
    own = {1: [f"--config.source.folder={tmp_path / 'nowhere'}"]}
    arguments = [*image_flags(folder), f"--workdir={tmp_path / 'run'}"]
    with Group(tmp_path, 2, arguments, own=own) as group:
        assert group.wait() == [2, 2], group
    assert "does not exist" in group.complaint(1)
    assert "process 1 failed:" in group.complaint(0)
