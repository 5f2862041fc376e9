import chex
import jax
import numpy as np
import pytest
from aninfonce_jax.mesh import batch_sharding, make_mesh

from aninfonce_jax.config.schema import DataConfig
from aninfonce_jax.data.source import DataError
from aninfonce_jax.sources.images import build_image_pairs, choose


@pytest.fixture
def source(image_folder):
    return build_image_pairs(DataConfig("folder", str(image_folder), image_size=16))


def pictures(source, count=8):
    with source.training_batches(count, seed=0) as batches:
        return next(batches).image


def test_a_pair_is_two_different_views_of_each_picture(source):
    pairs = source.pairs(jax.random.key(0), pictures(source))
    chex.assert_shape((pairs.view1, pairs.view2), (8, 16, 16, 3))
    chex.assert_type((pairs.view1, pairs.view2), np.float32)
    assert (np.abs(pairs.view1 - pairs.view2).max(axis=(1, 2, 3)) > 0.01).all()
    again = source.pairs(jax.random.key(0), pictures(source))
    chex.assert_trees_all_equal(pairs, again)


def test_pairs_do_not_depend_on_the_mesh(source):
    images, key = pictures(source), jax.random.key(3)
    spread = jax.device_put(images, batch_sharding(make_mesh(8)))
    one, eight = jax.jit(source.pairs)(key, images), jax.jit(source.pairs)(key, spread)
    chex.assert_trees_all_close(jax.device_get(one), jax.device_get(eight), atol=1e-6)


def test_plain_views_are_the_pictures(source):
    images = pictures(source)
    np.testing.assert_allclose(source.plain_views(images), images / np.float32(255), atol=1e-6)


def test_views_may_be_smaller_than_pictures(image_folder):
    source = build_image_pairs(DataConfig("folder", str(image_folder), image_size=16, view_size=12))
    chex.assert_shape(source.plain_views(pictures(source)), (8, 12, 12, 3))
    chex.assert_shape(source.example(), (2, 12, 12, 3))


def test_what_is_chosen_is_fixed_and_comes_from_all_classes(source):
    chosen = choose(source.train, 20, seed=1)
    ids = [chosen[i].id for i in range(len(chosen))]
    assert len(set(ids)) == 20
    assert {chosen[i].label for i in range(20)} == {0, 1}
    assert ids == [choose(source.train, 20, seed=1)[i].id for i in range(20)]
    assert ids != [choose(source.train, 20, seed=2)[i].id for i in range(20)]
    for count in (0, 999):
        whole = choose(source.train, count, seed=1)
        assert sorted(whole[i].id for i in range(len(whole))) == sorted(
            source.train[i].id for i in range(len(source.train))
        )
        assert {whole[i].label for i in range(20)} == {0, 1}


def test_a_missing_split_is_a_clear_error(image_folder):
    with pytest.raises(DataError, match="has no split 'dev'"):
        build_image_pairs(DataConfig("folder", str(image_folder), test_split="dev"))
