import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from aninfonce_jax.models import encoder as encoder_lib
from aninfonce_jax.models.encoder import LinenEncoder, NNXEncoder, as_encoder, embed

X = jax.random.normal(jax.random.key(1), (6, 5))


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x))
        x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(3)(x)


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(5, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        # Before flax 0.12 a plain list was one.
        layers = getattr(nnx, "List", list)
        self.blocks = layers([nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)])

    def __call__(self, x):
        x = self.dropout(self.norm(self.first(x)))
        for block in self.blocks:
            x = block(x)
        return x


def functions():
    def init(key, x):
        return {"matrix": jax.random.normal(key, (x.shape[1], 3))}

    return init, lambda params, x: x @ params["matrix"]


NETWORKS = {
    "linen": LinenNet(),
    "nnx": NNXEncoder(NNXNet),
    "functions": functions(),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_kind_of_network_is_a_pair_of_pure_functions(kind):
    encoder = as_encoder(NETWORKS[kind])
    assert encoder.layers == ("embedding",)
    assert encoder_lib.embedding_dim(encoder, X) == 3
    variables = jax.jit(encoder.init)(jax.random.key(0), X)
    chex.assert_trees_all_equal(variables, encoder.init(jax.random.key(0), X))
    layers, state = jax.jit(lambda v: encoder.apply(v, X, train=False))(variables)
    chex.assert_shape(layers["embedding"], (6, 3))
    chex.assert_trees_all_equal(state, {k: v for k, v in variables.items() if k != "params"})
    other = encoder.init(jax.random.key(7), X)
    assert np.abs(embed(encoder, other, X) - embed(encoder, variables, X)).max() > 0


@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_a_training_pass_returns_new_state_and_leaves_the_old(kind):
    encoder = as_encoder(NETWORKS[kind])
    variables = encoder.init(jax.random.key(0), X)
    before = jax.tree.map(np.asarray, jax.tree.map(_raw, variables))

    def train(variables, key):
        layers, state = encoder.apply(variables, X, train=True, key=key)
        return layers["embedding"], state

    one, state = jax.jit(train)(variables, jax.random.key(0))
    chex.assert_trees_all_equal(jax.tree.map(_raw, variables), before)
    chex.assert_trees_all_equal_structs({**variables, **state}, variables)
    moved = jax.tree.map(lambda a, b: bool((_raw(a) != _raw(b)).any()), state, _state(variables))
    assert any(jax.tree.leaves(moved)), "BatchNorm must have moved its running statistics"
    two, _ = jax.jit(train)({**variables, **state}, jax.random.key(1))
    assert np.abs(one - two).max() > 0, "dropout must draw anew"
    grads = jax.grad(lambda p: train({**variables, "params": p}, jax.random.key(0))[0].sum())(
        variables["params"]
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_a_module_of_nnx_brings_its_own_weights():
    module = NNXNet(nnx.Rngs(3))
    encoder = as_encoder(module)
    variables = encoder.init(jax.random.key(0), X)
    chex.assert_trees_all_equal(
        jax.tree.map(_raw, variables), jax.tree.map(_raw, encoder.init(jax.random.key(1), X))
    )
    module.eval()
    np.testing.assert_allclose(embed(encoder, variables, X), module(X), rtol=1e-6)


def test_layers_are_named_and_the_last_is_the_embedding():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x):
            features = nn.Dense(8)(x)
            return {"zeta": features, "alpha": nn.Dense(3)(features)}

    encoder = LinenEncoder(Two(), layers=("zeta", "alpha"))
    variables = encoder.init(jax.random.key(0), X)
    layers, _ = encoder.apply(variables, X, train=False)
    assert list(layers) == ["zeta", "alpha"]
    chex.assert_shape(embed(encoder, variables, X), (6, 3))
    with pytest.raises(ValueError, match="must return the layers embedding, got"):
        as_encoder(Two()).apply(variables, X, train=False)
    single = LinenEncoder(nn.Dense(3), layers=("a", "b"))
    variables = single.init(jax.random.key(0), X)
    with pytest.raises(TypeError, match="must return a mapping with the layers a, b"):
        single.apply(variables, X, train=False)


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match="Linen or NNX module, a pair of functions"):
        as_encoder("resnet")
    with pytest.raises(TypeError, match="got tuple"):
        as_encoder((1, 2))
    pooled = as_encoder((lambda key, x: {}, lambda params, x: jnp.sum(x)))
    with pytest.raises(ValueError, match=r"embeddings \[batch, dim\], got shape \(\)"):
        encoder_lib.embedding_dim(pooled, X)


def _raw(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _state(variables):
    return {name: value for name, value in variables.items() if name != "params"}
