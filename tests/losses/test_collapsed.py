"""Embeddings that have nearly collapsed: float32 against an enumeration of pairs in float64.

All scores are nearly alike then, and what tells them apart must not be lost in rounding.
"""

import functools
import itertools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss
from aninfonce_jax.losses.sharded import over_mesh
from aninfonce_jax.types import Array

BATCH, BANK, DIM = 16, 24, 5
SPREAD = 1e-3
TEMPERATURE = 0.1
KINDS = ("both", "anchors", "bank")
STRATEGIES = ("dense", "chunked", "pallas", "gather", "ring")
CHUNK = 7


@functools.cache
def example(spread: float = SPREAD) -> tuple[np.ndarray, ...]:
    """Returns two views and a bank of negatives, all around one point."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=DIM)
    centre /= np.linalg.norm(centre)
    view1 = centre + spread * rng.normal(size=(BATCH, DIM))
    view2 = view1 + 0.3 * spread * rng.normal(size=(BATCH, DIM))
    bank = centre + spread * rng.normal(size=(BANK, DIM))
    return tuple(x.astype(np.float32) for x in (view1, view2, bank))


def naive(kind: str, normalize: bool, hardness: float, *arguments: Array) -> Array:
    temperature, *points = arguments
    if normalize:
        points = [x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in points]
    view1, view2, bank = points
    anchors, positives, keys, left_out = view1, view2, bank, np.zeros((BATCH, BANK), bool)
    if kind == "anchors":
        keys, left_out = view1, np.eye(BATCH, dtype=bool)
    if kind == "both":
        anchors = keys = jnp.concatenate([view1, view2])
        positives = jnp.concatenate([view2, view1])
        left_out = np.tile(np.eye(BATCH, dtype=bool), (2, 2))
    positive = jnp.sum(anchors * positives, axis=-1) / temperature
    scores = jnp.where(left_out, -jnp.inf, anchors @ keys.T / temperature)
    negative = jax.nn.logsumexp((1 + hardness) * scores, axis=1)
    if hardness:
        number = np.sum(~left_out[0])
        negative += np.log(number) - jax.nn.logsumexp(hardness * scores, axis=1)
    return jnp.mean(jnp.logaddexp(positive, negative) - positive)


def ours(
    kind: str, normalize: bool, hardness: float, strategy: str, devices: int, *arguments: Array
) -> Array:
    temperature, view1, view2, bank = arguments
    loss = functools.partial(
        infonce_loss, normalize=normalize, hardness=hardness, strategy=strategy, chunk_size=CHUNK
    )
    if strategy in ("gather", "ring"):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("data",), axis_types=(AxisType.Auto,))
        loss = over_mesh(loss, mesh, "data")
    return loss(
        view1, view2, temperature=temperature, negatives=bank if kind == "bank" else kind
    ).loss


def all_kinds(kinds: tuple[str, ...], loss: Any, *settings: Any) -> Any:
    """Returns values and gradients of a loss for every kind of negatives, in one compilation."""

    def each(*arguments: Array) -> list[Any]:
        return [
            jax.value_and_grad(functools.partial(loss, kind, *settings), argnums=(0, 1, 2, 3))(
                *arguments
            )
            for kind in kinds
        ]

    return jax.jit(each)


@functools.cache
def expected(kinds: tuple[str, ...], normalize: bool, hardness: float) -> Any:
    with jax.enable_x64(True):
        arguments = [jnp.asarray(np.float64(x)) for x in (np.float32(TEMPERATURE), *example())]
        return jax.device_get(all_kinds(kinds, naive, normalize, hardness)(*arguments))


def cases() -> Any:
    yield "dense", 1, True, 0.0, ("both",)
    yield "chunked", 1, True, 0.0, ("both",)
    yield "chunked", 1, False, 0.0, ("both",)
    yield "ring", 8, True, 0.0, ("both",)
    for strategy, normalize, hardness in itertools.product(STRATEGIES, (True, False), (0.0, 0.5)):
        for devices in (1, 8) if strategy in ("gather", "ring") else (1,):
            yield pytest.param(
                *(strategy, devices, normalize, hardness, KINDS), marks=pytest.mark.slow
            )


@pytest.mark.parametrize(("strategy", "devices", "normalize", "hardness", "kinds"), list(cases()))
def test_gradients_of_temperature_and_embeddings(
    strategy: str, devices: int, normalize: bool, hardness: float, kinds: tuple[str, ...]
) -> None:
    loss = all_kinds(kinds, ours, normalize, hardness, strategy, devices)
    got = jax.device_get(loss(jnp.float32(TEMPERATURE), *example()))
    for kind, mine, exact in zip(kinds, got, expected(kinds, normalize, hardness), strict=True):
        np.testing.assert_allclose(mine[0], exact[0], rtol=1e-6, err_msg=kind)
        names = ("temperature", "view1", "view2", "bank")
        for name, x, y in zip(names, mine[1], exact[1], strict=True):
            # Embeddings are rounded to 6e-8, and differ by 1e-3.
            atol = 1e-4 * np.max(np.abs(y))
            np.testing.assert_allclose(x, y, rtol=0, atol=atol, err_msg=f"{kind}, {name}")


@pytest.mark.parametrize("strategy", [pytest.param("dense", marks=pytest.mark.slow), "chunked"])
def test_second_derivatives(strategy: str) -> None:
    """Forward over reverse, along one direction, of views and temperature."""

    def along(loss: Any, temperature: Array, *points: Array) -> Any:
        direction = jnp.ones_like(temperature), *(jnp.sin(100 * x) for x in points)
        gradient = jax.grad(functools.partial(loss, "both", True, 0.0), argnums=(0, 1, 2, 3))
        return jax.jvp(gradient, (temperature, *points), direction)[1]

    spread = 0.1
    with jax.enable_x64(True):
        arguments = [jnp.asarray(np.float64(x)) for x in (TEMPERATURE, *example(spread))]
        exact = jax.device_get(jax.jit(functools.partial(along, naive))(*arguments))

    def loss(*arguments: Any) -> Array:
        return ours(*arguments[:3], strategy, 1, *arguments[3:])

    found = jax.jit(functools.partial(along, loss))(jnp.float32(TEMPERATURE), *example(spread))
    for x, y in zip(found[:3], exact[:3], strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-4 * np.max(np.abs(y)))


def test_it_agrees_with_aninfonce_on_the_sphere() -> None:
    """Which is the same loss there, with Λ = 1 / τ."""
    view1, view2, _ = example()

    @jax.jit
    def both(temperature: Array) -> tuple[Any, Any]:
        value_and_grad = functools.partial(jax.value_and_grad, argnums=0)
        return (
            value_and_grad(lambda t: infonce_loss(view1, view2, temperature=t).loss)(temperature),
            value_and_grad(lambda t: aninfonce_loss(view1, view2, 1 / t).loss)(temperature),
        )

    infonce, aninfonce = both(jnp.float32(TEMPERATURE))
    chex.assert_trees_all_close(infonce, aninfonce, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["dense", "chunked"])
def test_a_zero_row_has_score_zero_with_everything(strategy: str) -> None:
    """It can't be scaled to unit length, so its scores are not those of unit vectors."""
    rng = np.random.default_rng(0)
    view1, view2 = rng.normal(size=(2, 6, 3)).astype(np.float32)
    view1[2] = view2[4] = 0

    def loss(view1: Array, view2: Array) -> Any:
        out = infonce_loss(view1, view2, temperature=0.3, strategy=strategy, chunk_size=4)
        return out.loss, out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
        view1, view2
    )
    points = np.float64(np.concatenate([view1, view2]))
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30)
    scores = points @ points.T / 0.3
    positive = scores[np.arange(12), (np.arange(12) + 6) % 12]
    np.fill_diagonal(scores, -np.inf)
    want = np.log(np.sum(np.exp(scores), axis=1)) - positive
    np.testing.assert_allclose(out.per_anchor, want, rtol=1e-5)
    np.testing.assert_allclose(out.alignment, -np.mean(positive), rtol=1e-5)
    chex.assert_tree_all_finite(gradients)
    # A zero row stays where it is for small changes: its gradient is that of a plain product.
    assert float(jnp.max(jnp.abs(gradients[0][2]))) > 1e-3


# --- Accuracy, whatever the scale ---


def true_accuracy(view1: np.ndarray, view2: np.ndarray) -> float:
    """Of the anisotropic score with one Λ for all, which picks the nearest."""
    points = np.float64(np.concatenate([view1, view2]))
    distances = np.sum((points[:, None] - points[None]) ** 2, axis=-1)
    n = len(view1)
    positive = distances[np.arange(2 * n), (np.arange(2 * n) + n) % (2 * n)]
    distances[np.arange(2 * n) % n == (np.arange(2 * n) % n)[:, None]] = np.inf
    return float(np.mean(positive < distances.min(axis=1)))


@pytest.mark.parametrize("strategy", ["dense", "chunked", "pallas", "ring"])
def test_accuracy_is_the_same_for_tiny_scores_and_huge_rows(strategy: str) -> None:
    rng = np.random.default_rng(0)
    view1 = rng.normal(size=(32, DIM)).astype(np.float32)
    view2 = (view1 + 0.6 * rng.normal(size=view1.shape)).astype(np.float32)
    loss = functools.partial(
        aninfonce_loss, normalize=False, strategy=strategy, chunk_size=CHUNK, negatives="both"
    )
    if strategy == "ring":
        mesh = Mesh(np.array(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
        loss = over_mesh(loss, mesh, "data")
    compiled = jax.jit(lambda a, b, c: loss(a, b, c).metrics["accuracy"])
    want = true_accuracy(view1, view2)
    assert 0.2 < want < 0.9
    for scale, concentration in (
        (1.0, 1.0), (1.0, 1e-7), (1.0, 1e-30), (1e10, 1.0), (1e10, 1e-20),
        (1e18, 1e-36), (1e-10, 1.0), (1e-10, 1e20), (1e-18, 1.0),
    ):  # fmt: skip
        found = compiled(scale * view1, scale * view2, jnp.float32(concentration))
        assert found == want, (scale, concentration)
