"""Explicit negatives that are made ready a slab at a time."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from reference_losses import anisotropic_score, dot_score

from aninfonce_jax.losses import rows_with_bank
from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss
from aninfonce_jax.types import Array

ROWS, KEYS, DIM = 7, 23, 3
# Divides neither.
CHUNK = 5
PARAMETER = {"aninfonce": np.array([0.5, 3.0, 20.0]), "infonce": np.array(0.3)}
SCORE = {"aninfonce": anisotropic_score, "infonce": dot_score}


def example(dtype: Any = np.float32, keys: int = KEYS) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    view1, bank = rng.normal(size=(ROWS, DIM)), rng.normal(size=(keys, DIM))
    view2 = view1 + 0.3 * rng.normal(size=view1.shape)
    return [x.astype(dtype) for x in (view1, view2, bank)]


def ours(kind: str, parameter: Array, *arrays: Array, **settings: Any) -> Array:
    view1, view2, bank = arrays
    settings = {"negatives": bank, "chunk_size": CHUNK} | settings
    if kind == "aninfonce":
        return aninfonce_loss(view1, view2, parameter, **settings).loss
    return infonce_loss(view1, view2, temperature=parameter, **settings).loss


def naive(kind: str, hardness: float, parameter: Array, *arrays: Array) -> Array:
    anchors, positives, negatives = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in arrays)
    score = jax.vmap(SCORE[kind], (0, 0, None))
    all_scores = jax.vmap(jax.vmap(SCORE[kind], (None, 0, None)), (0, None, None))
    positive = score(anchors, positives, parameter)
    negative = all_scores(anchors, negatives, parameter)
    weights = jax.nn.softmax(hardness * negative, axis=-1) * len(negatives)
    hard = jnp.sum(weights * jnp.exp(negative), axis=-1)
    return jnp.mean(jnp.log(jnp.exp(positive) + hard) - positive)


def differentiate(loss: Any) -> Any:
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))


def cases() -> Iterator[Any]:
    """Lists strategy, loss, hardness and dtype; one row of bfloat16 stands for the slow rest."""
    for case in itertools.product(
        ("chunked", "pallas"), ("aninfonce", "infonce"), (0.0, 0.5), (np.float32, jnp.bfloat16)
    ):
        quick = case[3] == np.float32 or case[:3] == ("chunked", "aninfonce", 0.5)
        name = "-".join(map(str, (*case[:3], jnp.dtype(case[3]).name)))
        yield pytest.param(*case, id=name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("strategy", "kind", "hardness", "dtype"), list(cases()))
def test_values_and_gradients(
    strategy: str, kind: str, hardness: float, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_with_bank, "_KERNEL_SLAB", 10)
    arrays = example(dtype)
    with jax.enable_x64(True):
        exact = PARAMETER[kind], *(np.float64(x) for x in arrays)
        want, expected = differentiate(functools.partial(naive, kind, hardness))(*exact)
    loss = functools.partial(ours, kind, strategy=strategy, hardness=hardness)
    got, found = differentiate(loss)(np.float32(PARAMETER[kind]), *arrays)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for x, y in zip(found, expected, strict=True):
        rounding = 1e-5 if x.dtype == jnp.float32 else 2.0**-7
        np.testing.assert_allclose(np.float64(x), y, rtol=0, atol=rounding * np.max(np.abs(y)))
    assert [x.dtype for x in found[1:]] == [dtype] * 3


def test_memory_does_not_grow_with_the_number_of_keys() -> None:
    def beyond_arguments_and_gradients(rows: int, keys: int, chunk_size: int | None) -> int:
        shapes = [(), (rows, 64), (rows, 64), (keys, 64)]
        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        loss = functools.partial(ours, "aninfonce", strategy="chunked", chunk_size=chunk_size)
        return differentiate(loss).lower(*arguments).compile().memory_analysis().temp_size_in_bytes

    for rows, chunk_size in ((256, 256), (4, None)):
        few, many = (
            beyond_arguments_and_gradients(rows, keys, chunk_size) for keys in (4096, 65536)
        )
        # The larger number takes 16 MiB itself.
        assert many - few < 2**18


@pytest.mark.slow
def test_it_serves_transformations_and_second_derivatives() -> None:
    arrays = [jnp.asarray(x) for x in example()]

    def loss(strategy: str, concentration: Array, bank: Array) -> Array:
        return ours("aninfonce", concentration, *arrays[:2], bank, strategy=strategy)

    def on_two_banks(f: Any) -> Any:
        each = jax.vmap(jax.grad(f, argnums=(0, 1)), (None, 0))
        return lambda concentration, bank: each(concentration, jnp.stack([bank, 2 - bank]))

    dense, chunked = (functools.partial(loss, name) for name in ("dense", "chunked"))
    for transform in (
        jax.hessian,
        lambda f: jax.jacrev(jax.grad(f)),
        lambda f: jax.grad(jax.checkpoint(f), argnums=(0, 1)),
        on_two_banks,
    ):
        at = jnp.asarray(PARAMETER["aninfonce"], jnp.float32), arrays[2]
        found, expected = (jax.jit(transform(f))(*at) for f in (chunked, dense))
        chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bank", [P(), P("data")], ids=["one bank", "a bank for each"])
@pytest.mark.parametrize("checked", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["aninfonce", pytest.param("infonce", marks=pytest.mark.slow)])
def test_a_loss_of_its_own_on_every_device(kind: str, checked: bool, bank: Any) -> None:
    """Without an `axis_name`, in a mapped function: Λ, and maybe the bank, are replicated."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",), axis_types=(AxisType.Auto,))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2 * n, DIM)).astype(np.float32) for n in (ROWS, ROWS, KEYS)]

    def mean(strategy: str, *arguments: Array) -> Array:
        return lax.pmean(ours(kind, *arguments, strategy=strategy), "data")

    def gradients(strategy: str) -> Any:
        spread = jax.shard_map(
            functools.partial(mean, strategy),
            mesh=mesh,
            in_specs=(P(), P("data"), P("data"), bank),
            out_specs=P(),
            check_vma=checked,
        )
        return differentiate(spread)(jnp.float32(PARAMETER[kind]), *arrays)

    chex.assert_trees_all_close(gradients("chunked"), gradients("dense"), rtol=1e-4, atol=1e-6)
