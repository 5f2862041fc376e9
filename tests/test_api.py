import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aninfonce_jax as an


def test_every_public_name_is_there():
    for name in an.__all__:
        assert getattr(an, name) is not None
        assert name in dir(an)
    assert sorted(an.__all__) == sorted(an._HOME)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'anifnonce_loss'"):
        an.anifnonce_loss  # noqa: B018


@pytest.mark.parametrize("name", ["train", "objectives"])
def test_what_the_losses_alone_do_without_is_named(monkeypatch, name):
    def missing(module):
        raise ModuleNotFoundError("No module named 'flax'", name="flax")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=f"{name} needs flax, which is not installed: "):
        an.__getattr__(name)  # what was asked for before is an attribute by now


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, aninfonce_jax; assert not {'jax', 'numpy', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_readme_training_step_learns():
    """The README's example, with a linear encoder: the loss falls and Λ̂ finds Λ."""
    dim = 3
    truth = np.array([20.0, 20.0, 4.0])
    process = an.LatentProcess(
        an.Sphere(dim),
        an.marginals.Uniform(),
        an.conditionals.Anisotropic(truth),
        an.draw_mixing(jax.random.key(0), dim, layers=1, activation="none", init="orthogonal"),
    )

    def encode(weights, x):
        return x @ weights

    params = {
        "encoder": jax.random.normal(jax.random.key(1), (dim, dim)),
        "log_concentration": jnp.full((dim,), -0.4, jnp.float32),
    }
    optimizer = optax.adam(5e-2)
    opt_state = optimizer.init(params)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(params, opt_state, key):
        pairs = an.sample_pairs(key, process, 512)

        def loss_fn(params):
            out = an.aninfonce_loss(
                encode(params["encoder"], pairs.view1),
                encode(params["encoder"], pairs.view2),
                jnp.exp(params["log_concentration"]),
            )
            return out.loss, out.metrics

        (loss, _), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    losses = []
    for key in jax.random.split(jax.random.key(2), 400):
        params, opt_state, loss = step(params, opt_state, key)
        losses.append(loss)
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.5
    assert an.concentration_error(truth, jnp.exp(params["log_concentration"])) < 0.1
