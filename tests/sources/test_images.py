import chex
import jax
import numpy as np
import pytest

from aninfonce_jax.build import build_image_pairs
from aninfonce_jax.config.kinds import ImagesConfig
from aninfonce_jax.data.augment import augment
from aninfonce_jax.data.interventions import AVERAGED, READOUTS
from aninfonce_jax.data.source import DataError
from aninfonce_jax.placement import Placement, Rows


def open_images(folder, **settings):
    config = {"dataset": "folder", "folder": str(folder), "image_size": 16} | settings
    return build_image_pairs(ImagesConfig(**config))


@pytest.fixture
def source(image_folder):
    return open_images(image_folder)


def batch_of(source, count=8):
    with source.open_feed(Rows(count), seed=0, step=0) as feed:
        return next(feed)


def ids(examples):
    return [examples.images[i].id for i in range(len(examples))]


def labels(examples, count=20):
    return {examples.images[i].label for i in range(count)}


def make_pairs(source, key, batch):
    # One program: there are over a hundred operations in it.
    return jax.jit(source.pairs, static_argnums=2)(key, batch, 8)


def test_a_pair_is_two_different_views_of_each_image(source):
    batch = batch_of(source)
    pairs = make_pairs(source, jax.random.key(0), batch)
    chex.assert_shape((pairs.view1, pairs.view2), (8, 16, 16, 3))
    chex.assert_type((pairs.view1, pairs.view2), np.float32)
    assert (np.abs(pairs.view1 - pairs.view2).max(axis=(1, 2, 3)) > 0.01).all()
    again = make_pairs(source, jax.random.key(0), batch_of(source))
    chex.assert_trees_all_equal(pairs, again)
    assert pairs.latents1 is pairs.latents2 is None


def test_pairs_tell_which_image_they_show_and_what_was_done_to_it(source):
    batch, key = batch_of(source), jax.random.key(0)
    pairs = make_pairs(source, key, batch)

    @jax.jit
    def done_to(key):
        _, params = augment(key, batch.image, source.spec)
        return params.by_operation(source.spec)

    np.testing.assert_array_equal(pairs.number, batch.index)
    for own, done in zip(jax.random.split(key), (pairs.done1, pairs.done2), strict=True):
        chex.assert_trees_all_close(done, done_to(own))
        assert set(done) == {"crop", "flip", "jitter", "grey"}


def test_pairs_do_not_depend_on_the_devices(source):
    batch, key = batch_of(source), jax.random.key(3)
    spread = Placement.local(8).put_rows(batch)
    one, eight = (make_pairs(source, key, rows) for rows in (batch, spread))
    chex.assert_trees_all_close(jax.device_get(one), jax.device_get(eight), atol=1e-6)


def test_what_is_fed_has_the_shapes_that_were_told(source):
    batch = batch_of(source)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch), source.fed(8)
    )


def test_held_out_pairs_are_of_the_test_images(source):
    held_out = source.held_out(20)
    assert held_out.train is source.test
    assert len(held_out.train) == 20 != len(source.train)
    assert source.held_out(21) is None


def test_plain_views_are_the_images(source):
    batch = batch_of(source)
    np.testing.assert_allclose(source.plain_views(batch), batch.image / np.float32(255), atol=1e-6)


def test_views_may_be_smaller_than_images(image_folder):
    source = open_images(image_folder, view_size=12)
    chex.assert_shape(source.plain_views(batch_of(source)), (8, 12, 12, 3))
    chex.assert_shape(source.example(), (2, 12, 12, 3))


def test_what_is_chosen_is_fixed_and_comes_from_all_classes(source):
    train = source.known.examples.train
    chosen = train.choose(20, seed=1)
    assert len(set(ids(chosen))) == len(chosen) == 20
    assert labels(chosen) == {0, 1}
    assert ids(chosen) == ids(train.choose(20, seed=1))
    assert ids(chosen) != ids(train.choose(20, seed=2))
    for count in (0, 999):
        whole = train.choose(count, seed=1)
        assert sorted(ids(whole)) == sorted(ids(train))
        assert labels(whole) == {0, 1}


def test_examples_come_once_each_with_their_labels(source):
    test = source.known.examples.test
    with test.batches(Rows(8)) as feed:
        batches = list(feed)
    keep = np.concatenate([batch.mask for batch in batches])
    assert (len(batches), keep.sum()) == (3, 20)
    found = np.concatenate([batch.label for batch in batches])[keep]
    assert found.tolist() == [test.images[i].label for i in range(20)]


def test_classes_and_every_augmentation_are_known(source):
    known = source.known
    assert known.latents is None
    assert known.examples.classes == 2
    assert known.interventions.names == READOUTS
    assert known.interventions.averaged == AVERAGED
    assert not known.interventions.has_strength("grey")
    assert not known.interventions.occurs("blur")  # simclr_cifar has none
    assert known.interventions.occurs("grey")
    shown = known.interventions.intervene(
        jax.random.key(0), batch_of(source), "grey", strength="upper", context="clean"
    )
    assert np.ptp(np.asarray(shown.without), axis=-1).max() > 0.01
    np.testing.assert_allclose(np.ptp(np.asarray(shown.applied), axis=-1), 0, atol=1e-5)


def test_a_preview_shows_test_images_beside_their_views(source):
    sheet = source.preview(jax.random.key(0), 3)
    assert sheet.title.endswith(", simclr_cifar, strength 1")
    assert list(sheet.columns) == ["original", "view 1", "view 2"]
    for images, captions in sheet.columns.values():
        assert images.shape == (3, 16, 16, 3)
        assert len(captions) == 3
    assert sheet.columns["original"][1] == ["16 × 16 pixels"] * 3


def test_a_missing_split_is_a_clear_error(image_folder):
    with pytest.raises(DataError, match="has no split 'dev'"):
        open_images(image_folder, test_split="dev")
