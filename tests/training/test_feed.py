import numpy as np

from aninfonce_jax.build import build_source
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.feed import Feed


def open_feed(config, step, devices=4):
    source, placement = build_source(config), Placement.local(devices)
    return Feed(source, config.train.batch_size, seed=config.seed, step=step, placement=placement)


def indices(config, first, count):
    with open_feed(config, first) as feed:
        return [np.asarray(next(feed).index) for _ in range(count)]


def test_a_process_needs_no_feed(small_config):
    with open_feed(small_config(), 3) as feed:
        assert feed.is_empty
        assert next(feed) is None
        assert feed.unreadable == 0


def test_the_batch_of_a_step_is_the_same_wherever_a_session_starts(image_config):
    config = image_config()
    whole = indices(config, 0, 10)
    for step in range(10):
        np.testing.assert_array_equal(indices(config, step, 1)[0], whole[step])
    # An epoch and more: 60 images in batches of 8.
    assert len(set(np.concatenate(whole)[:60])) == 60


def test_batches_are_split_over_the_devices(image_config):
    with open_feed(image_config(), 0) as feed:
        assert not feed.is_empty
        batch = next(feed)
    assert batch.image.dtype == np.uint8
    assert {shard.data.shape for shard in batch.image.addressable_shards} == {(2, 16, 16, 3)}


def test_unreadable_images_are_counted(image_config, image_folder, tmp_path):
    (tmp_path / "test").symlink_to(image_folder / "test")
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for file in (image_folder / "train" / name).iterdir():
            (tmp_path / "train" / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "train" / "a" / "3.JPEG").write_bytes(b"broken")
    config = image_config(source__folder=str(tmp_path), source__max_bad_share=0.1)
    with open_feed(config, 0, devices=1) as feed:
        for _ in range(8):
            next(feed)
        assert feed.unreadable == 1


def test_a_run_that_is_at_its_end_opens_no_files():
    with Feed(None, 8, seed=0, step=4, placement=Placement.local(1)) as feed:
        assert feed.is_empty
        assert next(feed) is None
