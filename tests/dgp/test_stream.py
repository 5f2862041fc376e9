import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from reference_densities import quick_jit
from scipy.optimize import root

import aninfonce_jax as an
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.conditionals import Anisotropic
from aninfonce_jax.dgp.mixing import draw_mixing
from aninfonce_jax.dgp.spaces import Box, Sphere
from aninfonce_jax.dgp.stream import LatentProcess, sample_pairs


def small_process(method="exact", dim=6):
    concentration = conditionals.concentration_values("bimodal", dim)
    mixing = draw_mixing(jax.random.key(0), dim, candidates=50)
    return LatentProcess(
        Sphere(dim), marginals.Uniform(), Anisotropic(concentration, method), mixing
    )


def test_pairs_are_the_mixed_latents():
    process = small_process()
    with jax.numpy_dtype_promotion("strict"):
        sample = quick_jit(lambda key: sample_pairs(key, process, 64))
        pairs, again, other = (sample(jax.random.key(seed)) for seed in (1, 1, 2))
    chex.assert_trees_all_equal(pairs, again)
    assert float(jnp.abs(pairs.latents2 - other.latents2).max()) > 0.1
    chex.assert_shape(jax.tree.leaves(pairs), (64, 6))
    chex.assert_tree_all_finite(pairs)
    chex.assert_trees_all_close(pairs.view1, process.mixing(pairs.latents1), atol=1e-6)
    chex.assert_trees_all_close(pairs.view2, process.mixing(pairs.latents2), atol=1e-6)
    chex.assert_trees_all_close(process.mixing.inverse(pairs.view2), pairs.latents2, atol=1e-4)
    latents, observations = process.anchors(jax.random.key(2), 5)
    chex.assert_trees_all_close(observations, process.mixing(latents), atol=1e-6)


def test_vmap_over_keys_and_processes():
    process = small_process("paper")
    keys = jax.random.split(jax.random.key(0), 2)
    stacked = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x), jnp.asarray(x)]), process.mixing)
    sample = jax.vmap(
        lambda key, mixing: sample_pairs(key, dataclasses.replace(process, mixing=mixing), 32)
    )
    pairs = quick_jit(sample)(keys, stacked)
    single = quick_jit(lambda key: sample_pairs(key, process, 32))(keys[1])
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[1], pairs), single, atol=1e-5)


def process_of(name):
    """Of each kind that rejects draws, and so loops."""
    bimodal = conditionals.concentration_values("bimodal", 4)
    parts = {
        "paper": (Sphere(4), marginals.Uniform(), Anisotropic(bimodal)),
        "shell": (Sphere(4, 2.0), marginals.Uniform(), Anisotropic(bimodal, "paper", 0.2)),
        "vmf": (
            Sphere(4),
            marginals.VonMisesFisher(1.0),
            conditionals.VonMisesFisher(25.0),
        ),
        "box": (Box(4), marginals.Uniform(), conditionals.GeneralizedNormal(bimodal, 3.0)),
    }
    return LatentProcess(*parts[name], draw_mixing(jax.random.key(0), 4, candidates=50))


@pytest.mark.parametrize("name", ["paper", "shell", "vmf", "box"])
def test_same_key_gives_the_same_batch_on_any_number_of_devices(name):
    process = process_of(name)
    key, size = jax.random.key(4), 512

    def sample_on(devices):
        mesh = jax.make_mesh(
            (devices,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices]
        )
        rows = NamedSharding(mesh, PartitionSpec("data"))
        replicated = NamedSharding(mesh, PartitionSpec())
        sample = quick_jit(sample_pairs, static_argnums=2, out_shardings=rows)
        pairs = sample(*jax.device_put((key, process), replicated), size)
        assert len(pairs.view1.sharding.device_set) == devices
        return jax.tree.map(np.asarray, pairs)

    chex.assert_trees_all_close(sample_on(1), sample_on(8), atol=1e-6)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        sample_pairs(jax.random.key(0), small_process(), 0)


def test_with_a_perfect_encoder_the_loss_is_least_at_the_true_concentration():
    # Negatives from the anchors only. One Λ̂ each for content and style, so that five factors
    # share the evidence: the sampling error is 0.2 % of the one and 0.4 % of the other.
    truth = np.array([25.0, 5.0])
    process = LatentProcess(
        Sphere(10), marginals.Uniform(), Anisotropic(np.repeat(truth, 5)), lambda x: x
    )
    batch, batches = 64, 2400
    pairs = quick_jit(lambda key: sample_pairs(key, process, batch * batches))(jax.random.key(0))
    views = [view.reshape(batches, batch, 10) for view in (pairs.latents1, pairs.latents2)]

    @jax.jit
    @jax.grad
    def slope(log_concentration):
        concentration = jnp.repeat(jnp.exp(log_concentration), 5)

        def batch_loss(pair):
            return an.aninfonce_loss(*pair, concentration, negatives="anchors").loss

        return jnp.mean(jax.lax.map(batch_loss, tuple(views)))

    found = root(
        lambda x: np.float64(slope(jnp.float32(x))),
        x0=np.log([20.0, 7.0]),
        options={"xtol": 1e-4, "eps": 1e-4},
    )
    np.testing.assert_allclose(np.exp(found.x), truth, rtol=0.01)


def test_mixing_may_be_any_callable():
    process = LatentProcess(
        Box(2),
        marginals.Uniform(),
        conditionals.Normal([4.0, 4.0]),
        functools.partial(jnp.multiply, 2.0),
    )
    pairs = sample_pairs(jax.random.key(0), process, 8)
    chex.assert_trees_all_close(pairs.view2, 2.0 * pairs.latents2)
