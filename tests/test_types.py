import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp.conditionals import Laplace, Normal
from aninfonce_jax.types import register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Scaled:
    values: object
    name: str = dataclasses.field(default="a", metadata={"static": True})


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Shifted:
    values: object
    name: str = dataclasses.field(default="a", metadata={"static": True})


def test_trees_of_two_classes_differ_though_their_fields_are_alike():
    # With jax.tree_util.register_dataclass of jax 0.10.2 they are the same.
    for one, other in ((Scaled(1.0), Shifted(1.0)), (Normal(np.ones(2)), Laplace(np.ones(2)))):
        assert jax.tree.structure(one) != jax.tree.structure(other)
        assert jax.tree.structure(one) == jax.tree.structure(dataclasses.replace(one))


def test_static_fields_are_structure_and_others_are_leaves():
    tree = Scaled(jnp.arange(3), "b")
    assert jax.tree.structure(tree) != jax.tree.structure(Scaled(jnp.arange(3), "c"))
    doubled = jax.jit(lambda x: jax.tree.map(lambda leaf: 2 * leaf, x))(tree)
    assert doubled.name == "b"
    np.testing.assert_array_equal(doubled.values, [0, 2, 4])
    ((path, _),), _ = jax.tree_util.tree_flatten_with_path(tree)
    assert jax.tree_util.keystr(path) == ".values"
