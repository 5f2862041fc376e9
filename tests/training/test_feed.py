import numpy as np
from aninfonce_jax.mesh import make_mesh

from aninfonce_jax.training.feed import NoFeed
from aninfonce_jax.training.state import build_experiment


def indices(experiment, mesh, first, count):
    with experiment.open_feed(first, mesh) as feed:
        return [np.asarray(next(feed).index) for _ in range(count)]


def test_a_process_needs_no_feed(small_config):
    with build_experiment(small_config()).open_feed(3, make_mesh(1)) as feed:
        assert isinstance(feed, NoFeed)
        assert next(feed) is None
        assert (feed.waited, feed.unreadable) == (0.0, 0)


def test_the_batch_of_a_step_is_the_same_wherever_a_session_starts(image_config):
    experiment, mesh = build_experiment(image_config()), make_mesh(4)
    whole = indices(experiment, mesh, 0, 10)
    for step in range(10):
        np.testing.assert_array_equal(indices(experiment, mesh, step, 1)[0], whole[step])
    # An epoch and more: 60 pictures in batches of 8.
    assert len(set(np.concatenate(whole)[:60])) == 60


def test_batches_are_split_over_the_mesh(image_config):
    experiment, mesh = build_experiment(image_config()), make_mesh(4)
    with experiment.open_feed(0, mesh) as feed:
        batch = next(feed)
    assert batch.image.dtype == np.uint8
    assert {shard.data.shape for shard in batch.image.addressable_shards} == {(2, 16, 16, 3)}
    assert feed.waited > 0


def test_unreadable_pictures_are_counted(image_config, image_folder, tmp_path):
    (tmp_path / "test").symlink_to(image_folder / "test")
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for file in (image_folder / "train" / name).iterdir():
            (tmp_path / "train" / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "train" / "a" / "3.JPEG").write_bytes(b"broken")
    config = image_config(source__folder=str(tmp_path), source__max_bad_share=0.1)
    experiment = build_experiment(config)
    with experiment.open_feed(0, make_mesh(1)) as feed:
        for _ in range(8):
            next(feed)
        assert feed.unreadable == 1
