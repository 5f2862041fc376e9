import jax
import jax.numpy as jnp
import pytest

from aninfonce_jax.sources.source import Known, Source
from aninfonce_jax.types import Pairs


class Twice(Source):
    def example(self):
        return jnp.zeros((2, 3))

    def pairs(self, key, fed, batch_size):
        view = jax.random.normal(key, (batch_size, 3))
        return Pairs(view, view)


def test_two_methods_make_a_source():
    source = Twice()
    assert source.name == "Twice"
    assert source.known == Known(None, None, None)
    assert source.fed(8) is None
    assert source.held_out(8) is source
    assert source.preview(jax.random.key(0), 4) is None


def test_a_source_that_is_fed_holds_out_nothing_unless_it_says_so():
    class Fed(Twice):
        def fed(self, batch_size):
            return jax.ShapeDtypeStruct((batch_size, 3), jnp.float32)

    assert Fed().held_out(8) is None
    with pytest.raises(NotImplementedError, match="Fed says that it is fed, but has no feed"):
        Fed().open_feed(None, seed=0, step=0)


def test_a_source_without_pairs_is_none():
    class Empty(Source):
        def example(self):
            return jnp.zeros((2, 3))

    with pytest.raises(TypeError, match="abstract"):
        Empty()
