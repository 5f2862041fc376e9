"""Every strategy, in every mode, on any number of devices, against float64 enumeration."""

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference_losses import anisotropic_score, dot_score, enumerate_pairs, naive_per_anchor

from aninfonce_jax.losses import exchange, plan
from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss, lp_loss
from aninfonce_jax.losses.given import Factored
from aninfonce_jax.losses.sharded import over_mesh
from aninfonce_jax.types import Array, LossOutput

AXIS = "data"
AUTO = (AxisType.Auto,)
BATCH, BANK, DIM = 24, 40, 5
ON_ONE_DEVICE = ("dense", "chunked", "pallas")
STRATEGIES = (*ON_ONE_DEVICE, "gather", "ring")
MODES = ("pmap", "shard_map", "shard_map_unchecked", "jit")
# Divides neither the batch nor a device's share of it.
CHUNK = 5
PARAMETER = {"aninfonce": np.array([0.5, 1.0, 3.0, 9.0, 20.0]), "infonce": np.array(0.3)}
SCORE = {"aninfonce": anisotropic_score, "infonce": dot_score}


class Result(NamedTuple):
    """A loss, its anchors sorted, and the gradients of the mean over all anchors.

    `d_scale` belongs to a replicated weight of the encoder, `d_parameter` to Λ or τ, the
    others to the encoder's input, of which each device has its rows.
    """

    loss: Any
    per_anchor: Any
    d_scale: Any
    d_parameter: Any
    d_view1: Any
    d_view2: Any
    d_bank: Any = None


def example(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    view1 = rng.normal(size=(BATCH, DIM))
    view2 = view1 + 0.3 * rng.normal(size=view1.shape)
    return view1.astype(dtype), view2.astype(dtype)


def inputs(negatives: str, dtype: Any) -> tuple[np.ndarray, ...]:
    """Returns the two views and, if the negatives are a "bank", those."""
    bank = np.random.default_rng(1).normal(size=(BANK, DIM)).astype(dtype)
    return (*example(dtype), bank) if negatives == "bank" else example(dtype)


@functools.cache
def reference(kind: str, negatives: str, dtype: Any = np.float32) -> Result:
    if negatives == "bank":
        others = range(2 * BATCH, 2 * BATCH + BANK)
        rows = [[(i, BATCH + i), *((i, key) for key in others)] for i in range(BATCH)]
    else:
        rows = enumerate_pairs(BATCH, negatives)

    def mean(scale: Array, parameter: Array, *arrays: Array) -> tuple[Array, Array]:
        view1, *others = (array * scale[None] for array in arrays)
        per_anchor = naive_per_anchor(
            view1, jnp.concatenate(others), parameter, score=SCORE[kind], rows=rows
        )
        return per_anchor.mean(), per_anchor

    with jax.enable_x64(True):
        arrays = [jnp.asarray(np.float64(x)) for x in inputs(negatives, dtype)]
        argnums = tuple(range(2 + len(arrays)))
        (loss, per_anchor), grads = jax.jit(jax.value_and_grad(mean, argnums, has_aux=True))(
            jnp.ones(DIM), jnp.asarray(PARAMETER[kind]), *arrays
        )
        return Result(float(loss), np.sort(per_anchor), *map(np.asarray, grads))


def loss_function(kind: str, **settings: Any) -> Any:
    def loss(view1: Array, view2: Array, parameter: Array, **more: Any) -> LossOutput:
        if kind == "aninfonce":
            return aninfonce_loss(view1, view2, parameter, **settings, **more)
        return infonce_loss(view1, view2, temperature=parameter, **settings, **more)

    return loss


def value_and_grads(loss: Any, arrays: int = 2) -> Any:
    """Returns what a training step differentiates: an encoder, here a scale, and a loss."""

    def total(scale: Array, parameter: Array, *arrays: Array) -> Any:
        view1, view2, *bank = [(x * scale[None]).astype(x.dtype) for x in arrays]
        out = loss(view1, view2, parameter, **({"negatives": bank[0]} if bank else {}))
        return out.loss, out

    return jax.value_and_grad(total, argnums=tuple(range(2 + arrays)), has_aux=True)


def run(
    mode: str,
    devices: int,
    kind: str,
    dtype: Any = np.float32,
    negatives: str = "both",
    **settings: Any,
) -> Result:
    """Computes loss and gradients on `devices` devices, as the docstring tells users to."""
    parameters = jnp.ones(DIM), jnp.asarray(PARAMETER[kind], jnp.float32)
    arrays = inputs(negatives, dtype)
    if negatives != "bank":
        settings["negatives"] = negatives
    differentiate = functools.partial(value_and_grads, arrays=len(arrays))
    chosen = jax.devices()[:devices]
    mesh = Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,))
    if mode == "jit":
        if settings["strategy"] in ON_ONE_DEVICE:
            loss = loss_function(kind, **settings)
        else:
            loss = over_mesh(loss_function(kind, **settings), mesh, AXIS)
        sharded = [jax.device_put(x, NamedSharding(mesh, P(AXIS))) for x in arrays]
        (loss, out), grads = jax.jit(differentiate(loss))(*parameters, *sharded)
        return Result(loss, np.sort(out.per_anchor), *grads)

    def step(*args: Array) -> Any:
        loss = loss_function(kind, axis_name=AXIS, **settings)
        (value, out), (d_scale, d_parameter, *d_arrays) = differentiate(loss)(*args)
        return value, out.per_anchor, *lax.pmean((d_scale, d_parameter), AXIS), *d_arrays

    if mode == "pmap":
        split = [x.reshape(devices, -1, DIM) for x in arrays]
        in_axes = None, None, *(0 for _ in arrays)
        mapped = jax.pmap(step, AXIS, in_axes=in_axes, devices=chosen)
        value, per_anchor, d_scale, d_parameter, *d_arrays = mapped(*parameters, *split)
        value, d_scale, d_parameter = (x[0] for x in (value, d_scale, d_parameter))
    else:
        rows = [P(AXIS) for _ in arrays]
        mapped = jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(P(), P(), *rows),
            out_specs=(P(), P(AXIS), P(), P(), *rows),
            check_vma=mode == "shard_map",
        )
        value, per_anchor, d_scale, d_parameter, *d_arrays = jax.jit(mapped)(*parameters, *arrays)
    # As documented: without replication checks it is the gradient of the sum over devices.
    factor = 1 if mode == "shard_map" else 1 / devices
    d_arrays = [np.float32(x).reshape(-1, DIM) * factor for x in d_arrays]
    return Result(value, np.sort(np.ravel(per_anchor)), d_scale, d_parameter, *d_arrays)


def assert_matches(result: Result, expected: Result, dtype: Any = np.float32) -> None:
    """Everything to float32 accuracy, but for gradients that the input's type rounds."""
    rounded = 1e-5 if dtype == np.float32 else 2.0**-7
    tolerance = Result(1e-6, 1e-5, rounded, 1e-5, rounded, rounded, rounded)
    for name, got, want, rtol in zip(Result._fields, result, expected, tolerance, strict=True):
        if want is None:
            assert got is None
            continue
        scale = np.max(np.abs(want))
        np.testing.assert_allclose(np.float64(got), want, rtol=0, atol=rtol * scale, err_msg=name)


def skip_what_kernels_can_not(strategy: str, mode: str, devices: int) -> None:
    if strategy == "pallas" and mode == "shard_map":
        pytest.skip("interpreted kernels do not know shard_map's replication checks")
    if strategy == "pallas" and mode == "jit" and devices > 1:
        pytest.skip("the compiler can't spread kernels, which is refused; see below")


def every_combination() -> Iterator[Any]:
    """Lists strategy, mode, devices, dtype and negatives; some are slow tests."""
    for strategy, mode, negatives in itertools.product(STRATEGIES, MODES, ("both", "bank")):
        for devices, dtype in itertools.product((1, 2, 4, 8), (np.float32, jnp.bfloat16)):
            # Quick are those that differ in more than a little; one row of pmap and one of
            # bfloat16 stand for the rest.
            quick = devices == 4 and dtype == np.float32 and mode != "pmap"
            if negatives == "bank":
                quick &= mode == ("shard_map_unchecked" if strategy == "pallas" else "shard_map")
            elif strategy == "gather":
                quick |= devices == 4 and dtype == np.float32
                quick |= devices == 2 and dtype == jnp.bfloat16 and mode == "shard_map"
            if strategy in ("gather", "ring") and dtype == np.float32:
                quick |= devices == 8 and mode == "shard_map"
            yield pytest.param(
                *(strategy, mode, devices, dtype, negatives),
                id=f"{strategy}-{mode}-{devices}-{np.dtype(dtype).name}-{negatives}",
                marks=() if quick else pytest.mark.slow,
            )


@pytest.mark.parametrize(
    ("strategy", "mode", "devices", "dtype", "negatives"), list(every_combination())
)
def test_values_and_gradients(
    strategy: str, mode: str, devices: int, dtype: Any, negatives: str
) -> None:
    skip_what_kernels_can_not(strategy, mode, devices)
    settings = {"strategy": strategy, "chunk_size": CHUNK, "negatives": negatives}
    result = run(mode, devices, "aninfonce", dtype, **settings)
    assert_matches(result, reference("aninfonce", negatives, dtype), dtype)


# --- What the matrix above leaves out ---


@pytest.mark.parametrize("negatives", ["both", "bank"])
@pytest.mark.parametrize("mode", [pytest.param("pmap", marks=pytest.mark.slow), "shard_map"])
@pytest.mark.parametrize("strategy", ["auto", "chunked", "ring"])
def test_tiles_of_the_default_size(strategy: str, mode: str, negatives: str) -> None:
    result = run(mode, 4, "aninfonce", strategy=strategy, negatives=negatives)
    assert_matches(result, reference("aninfonce", negatives))


@pytest.mark.parametrize("strategy", ["chunked", "gather", "ring", "pallas"])
def test_a_concentration_that_underflows_has_the_gradient_of_the_dense_form(strategy: str) -> None:
    raw = jnp.array([1.0, 2.0, -120.0, 0.0, 1.0])
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,), axis_types=(AxisType.Auto,))

    def gradient(strategy: str) -> Array:
        loss = functools.partial(aninfonce_loss, strategy=strategy, chunk_size=CHUNK)
        if strategy in ("gather", "ring"):
            loss = over_mesh(loss, mesh, AXIS)
        return jax.jit(jax.grad(lambda x: loss(*example(), x).loss))(jax.nn.softplus(raw))

    assert jax.nn.softplus(raw)[2] == 0
    np.testing.assert_allclose(gradient(strategy), gradient("dense"), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["aninfonce", pytest.param("infonce", marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ["dense", "chunked", "gather", "ring"])
def test_a_parameter_that_differs_along_another_axis(strategy: str, kind: str) -> None:
    """Each column of a grid of devices has its Λ or τ, and all have the same rows."""
    grid = np.array(jax.devices()[:4]).reshape(2, 2)
    mesh = Mesh(grid, (AXIS, "model"), axis_types=(AxisType.Auto,) * 2)
    parameters = np.stack([PARAMETER[kind], 2 * PARAMETER[kind]]).astype(np.float32)

    def local(parameter: Array, view1: Array, view2: Array) -> Array:
        settings = {"strategy": strategy, "chunk_size": CHUNK, "axis_name": AXIS}
        return loss_function(kind, **settings)(view1, view2, parameter[0]).loss[None]

    specs = P("model"), P(AXIS), P(AXIS)
    spread = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P("model"))
    differentiate = functools.partial(jax.grad, argnums=(0, 1, 2))

    def alone(parameters: Array, view1: Array, view2: Array) -> Array:
        return sum(loss_function(kind)(view1, view2, x).loss for x in parameters)

    found = jax.jit(differentiate(lambda *a: jnp.sum(spread(*a))))(parameters, *example())
    expected = jax.jit(differentiate(alone))(jnp.asarray(parameters), *example())
    chex.assert_trees_all_close(jax.device_get(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["dense", "chunked", "pallas", "ring"])
@pytest.mark.parametrize(
    ("kind", "negatives"),
    [
        ("aninfonce", "anchors"),
        ("infonce", "both"),
        pytest.param("infonce", "anchors", marks=pytest.mark.slow),
    ],
)
def test_other_losses_and_negatives(strategy: str, kind: str, negatives: str) -> None:
    settings = {"strategy": strategy, "chunk_size": CHUNK, "negatives": negatives}
    result = run("shard_map_unchecked", 4, kind, **settings)
    assert_matches(result, reference(kind, negatives))


@pytest.mark.parametrize("chunk_size", [1, 7, 24, 48, 1000])
def test_any_chunk_size(chunk_size: int) -> None:
    result = run("jit", 1, "aninfonce", strategy="chunked", chunk_size=chunk_size)
    assert_matches(result, reference("aninfonce", "both"))


def test_chunked_keeps_few_scores_and_never_many() -> None:
    def kept(rows: int, keys: int, **settings: Any) -> int:
        """Returns the numbers that wait for the gradient beyond rows and keys themselves."""
        shapes = [(rows, DIM), (rows, DIM), (keys, DIM)]
        arrays = [jnp.zeros(shape, jnp.float32) for shape in shapes]

        def loss(view1: Array, view2: Array, bank: Array) -> Array:
            arguments = {"negatives": bank, "strategy": "chunked"} | settings
            return aninfonce_loss(view1, view2, 1.0, **arguments).loss

        residuals = jax.eval_shape(lambda *x: jax.vjp(loss, *x)[1], *arrays)
        return max(x.size for x in jax.tree.leaves(residuals))

    assert kept(256, 2048) == 256 * 2048
    assert kept(256, 2048, chunk_size=1024) == 2048 * DIM
    # Few rows: not even all keys are held.
    assert kept(64, 2048) == 2048 * DIM
    assert kept(2048, 4096) == 4096 * DIM
    # Half of the scores are cheaper to compute again than all are to keep.
    assert kept(2048, 1, negatives="anchors") == 2048 * DIM


@pytest.mark.parametrize("strategy", ["gather", "ring"])
def test_what_travels_between_devices(strategy: str) -> None:
    """Points only, never gradients, in two bytes where products round them to as many bits."""
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=(AxisType.Auto,))
    view = jax.ShapeDtypeStruct((4 * 6, DIM), jnp.float32)
    sent = "all_gather" if strategy == "gather" else "collective_permute"

    def travelling(platform: str, precision: lax.Precision) -> set[tuple[str, str]]:
        settings = {"strategy": strategy, "precision": precision}
        loss = over_mesh(functools.partial(aninfonce_loss, **settings), mesh, AXIS)
        grad = jax.jit(jax.grad(lambda *views: loss(*views, 1.0).loss, argnums=(0, 1)))
        text = grad.trace(view, view).lower(lowering_platforms=(platform,)).as_text()
        kinds = "all_gather|collective_permute|reduce_scatter|all_to_all"
        return set(re.findall(rf"stablehlo.({kinds})\b.*: \(tensor<12x{DIM}x(\w+)>", text))

    assert travelling("tpu", lax.Precision.DEFAULT) == {(sent, "bf16")}
    assert travelling("tpu", lax.Precision.HIGHEST) == {(sent, "f32")}
    assert travelling("cuda", lax.Precision.DEFAULT) == {(sent, "f16")}
    assert travelling("cuda", lax.Precision.HIGHEST) == {(sent, "f32")}
    assert travelling("cpu", lax.Precision.DEFAULT) == {(sent, "f32")}


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_keys_of_no_product_travel_as_they_are(platform: str) -> None:
    """Lp distances are no products, and nothing rounds their points."""
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=(AxisType.Auto,))
    view = jax.ShapeDtypeStruct((4 * 6, DIM), jnp.float32)
    cubic = functools.partial(lp_loss, p=3.0, precision=lax.Precision.DEFAULT)
    loss = jax.jit(lambda *views: over_mesh(cubic, mesh, AXIS)(*views).loss)
    text = loss.trace(view, view).lower(lowering_platforms=(platform,)).as_text()
    assert "all_gather" in text
    assert "16>" not in text.replace("i16>", "")


def test_halves_keep_the_bits_of_tf32() -> None:
    x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    # Rows of all sizes, and entries of a row that differ by a million and more.
    x *= np.logspace(-25, 35, 64, dtype=np.float32)[:, None]
    x[:, 0] *= np.float32(2.0**-20)
    x[5] = 0
    halves, scale = jax.jit(exchange._in_halves)(x)
    assert halves.dtype == jnp.float16
    assert np.isfinite(halves).all()
    found = np.asarray(halves, np.float32) * np.asarray(scale)
    np.testing.assert_allclose(found, x, rtol=2.0**-11)
    # Sent on from device to device they stay what they are.
    again, scale = exchange._in_halves(jnp.asarray(found))
    np.testing.assert_array_equal(np.asarray(again, np.float32) * np.asarray(scale), found)
    halves, scale = exchange._in_halves(jnp.full((1, 2), jnp.inf))
    assert not np.isfinite(np.asarray(halves, np.float32) * np.asarray(scale)).any()


TWO_AXES = ("slices", "data")


def two_axes(*shape: int) -> Mesh:
    devices = np.array(jax.devices()[: shape[0] * shape[1]]).reshape(shape)
    return Mesh(devices, TWO_AXES, axis_types=(AxisType.Auto,) * 2)


def over_two_axes(mesh: Mesh, axes: Any, checked: bool | None, **settings: Any) -> Result:
    """Computes on a mesh of two axes: through `over_mesh`, or in a checked `shard_map` or not."""
    negatives = settings.pop("negatives")
    arrays = inputs(negatives, np.float32)
    if negatives != "bank":
        settings["negatives"] = negatives
    parameters = jnp.ones(DIM), jnp.asarray(PARAMETER["aninfonce"], jnp.float32)
    loss = loss_function("aninfonce", chunk_size=CHUNK, **settings)
    if checked is None:
        differentiated = value_and_grads(over_mesh(loss, mesh, axes), len(arrays))
        (value, out), grads = jax.jit(differentiated)(*parameters, *arrays)
        return Result(value, np.sort(out.per_anchor), *grads)

    def step(*args: Array) -> Any:
        local = functools.partial(loss, axis_name=axes)
        (value, out), (d_scale, d_parameter, *d_arrays) = value_and_grads(local, len(arrays))(*args)
        return value, out.per_anchor, *lax.pmean((d_scale, d_parameter), axes), *d_arrays

    rows = [P(axes) for _ in arrays]
    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(P(), P(), *rows),
        out_specs=(P(), P(axes), P(), P(), *rows),
        check_vma=checked,
    )
    value, per_anchor, d_scale, d_parameter, *d_arrays = jax.jit(mapped)(*parameters, *arrays)
    factor = 1 if checked else 1 / mesh.size
    d_arrays = [np.float32(x) * factor for x in d_arrays]
    return Result(value, np.sort(per_anchor), d_scale, d_parameter, *d_arrays)


def every_pair_of_axes() -> Iterator[Any]:
    """Lists strategy, negatives, shape, order of axes and checks; some are slow tests."""
    for strategy, negatives, checked in itertools.product(
        ("gather", "ring", "dense"), ("both", "bank"), (None, True, False)
    ):
        for shape, axes in itertools.product(((2, 4), (4, 2), (8, 1)), (TWO_AXES, TWO_AXES[::-1])):
            quick = shape == (2, 4) and axes == TWO_AXES and strategy != "dense"
            # A bank has gradients that go home; one of each kind of checks will do.
            quick &= checked is (None if negatives == "both" else strategy == "gather")
            yield pytest.param(
                *(strategy, negatives, shape, axes, checked),
                marks=() if quick else pytest.mark.slow,
            )


@pytest.mark.parametrize(
    ("strategy", "negatives", "shape", "axes", "checked"), list(every_pair_of_axes())
)
def test_a_batch_spread_over_two_axes(
    strategy: str, negatives: str, shape: tuple[int, int], axes: tuple[str, str], checked: Any
) -> None:
    result = over_two_axes(two_axes(*shape), axes, checked, strategy=strategy, negatives=negatives)
    assert_matches(result, reference("aninfonce", negatives))


def test_little_is_gathered_over_the_slow_axis() -> None:
    """There a device receives what its counterparts have, and then all from its neighbours."""
    mesh, count = two_axes(2, 4), 8 * 6
    view = jax.ShapeDtypeStruct((count, DIM), jnp.float32)
    loss = over_mesh(functools.partial(aninfonce_loss, strategy="gather"), mesh, TWO_AXES)
    grad = jax.jit(jax.grad(lambda *views: loss(*views, 1.0, negatives=views[0]).loss))
    jaxpr = str(grad.trace(view, view).jaxpr)
    found = re.findall(
        rf"f32\[(\d+),{DIM}\][^=\n]*= (all_gather|reduce_scatter)\[.*?axis_name=\('(\w+)',\)",
        jaxpr,
        re.DOTALL,
    )
    # The value, and the gradient with what goes home.
    gathered = [("12", "all_gather", "slices"), ("48", "all_gather", "data")]
    home = [("12", "reduce_scatter", "data"), ("6", "reduce_scatter", "slices")]
    assert found == gathered + gathered + home


@pytest.mark.parametrize("hardness", [0.5, 2.0])
@pytest.mark.parametrize("kind", ["aninfonce", "infonce"])
def test_hard_negatives_count_by_their_score(kind: str, hardness: float) -> None:
    """Against the definition: the mean of exp(s) under weights exp(βs), times their number."""
    rows = np.array(enumerate_pairs(BATCH, "both"))

    def naive(view1: Array, view2: Array, parameter: Array) -> Array:
        points = jnp.concatenate([view1, view2])
        points = points / jnp.linalg.norm(points, axis=-1, keepdims=True)
        score = jax.vmap(jax.vmap(SCORE[kind], (0, 0, None)), (0, 0, None))
        scores = score(points[rows[..., 0]], points[rows[..., 1]], parameter)
        positive, negative = scores[:, 0], scores[:, 1:]
        weights = jnp.exp(hardness * negative)
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
        hard = negative.shape[1] * jnp.sum(weights * jnp.exp(negative), axis=-1)
        return jnp.mean(jnp.log(jnp.exp(positive) + hard) - positive)

    with jax.enable_x64(True):
        args = *(jnp.asarray(np.float64(view)) for view in example()), jnp.asarray(PARAMETER[kind])
        loss = loss_function(kind, hardness=hardness)
        differentiate = functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
        result = jax.jit(differentiate(lambda *a: loss(*a).loss))(*args)
        chex.assert_trees_all_close(result, jax.jit(differentiate(naive))(*args), rtol=1e-9)


@pytest.mark.parametrize("hardness", [0.0, 0.5])
@pytest.mark.parametrize("debias", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("kind", ["aninfonce", "infonce"])
def test_false_negatives_are_corrected_for(kind: str, debias: float, hardness: float) -> None:
    """Against the definition of Chuang et al. 2020, and with weights that of Robinson et al. 2021.

    The positives stand for what false negatives score; the shares are such that in some rows the
    correction ends at the lowest score, and in others it does not.
    """
    rows = np.array(enumerate_pairs(BATCH, "both"))

    def corrected(view1: Array, view2: Array, parameter: Array) -> tuple[Array, Array]:
        points = jnp.concatenate([view1, view2])
        points = points / jnp.linalg.norm(points, axis=-1, keepdims=True)
        score = jax.vmap(jax.vmap(SCORE[kind], (0, 0, None)), (0, 0, None))
        scores = score(points[rows[..., 0]], points[rows[..., 1]], parameter)
        positive, negative = scores[:, 0], scores[:, 1:]
        weights = jnp.exp(hardness * negative)
        mean = jnp.sum(weights * jnp.exp(negative), axis=1) / jnp.sum(weights, axis=1)
        lowest = -1 / parameter if kind == "infonce" else -2 * jnp.max(parameter)
        rest = (mean - debias * jnp.exp(positive)) / (1 - debias)
        total = negative.shape[1] * jnp.maximum(rest, jnp.exp(lowest))
        return jnp.mean(jnp.log(jnp.exp(positive) + total) - positive), rest > jnp.exp(lowest)

    with jax.enable_x64(True):
        args = *(jnp.asarray(np.float64(view)) for view in example()), jnp.asarray(PARAMETER[kind])
        loss = loss_function(kind, hardness=hardness, debias=debias)
        differentiate = functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
        result = jax.jit(differentiate(lambda *a: loss(*a).loss))(*args)
        (value, is_above), gradient = jax.jit(
            functools.partial(differentiate, has_aux=True)(corrected)
        )(*args)
        chex.assert_trees_all_close(result, (value, gradient), rtol=1e-9, atol=1e-15)
    if debias == 0.5:
        assert not is_above.all()
    if debias == 0.02:
        assert is_above.any()


def test_a_correction_that_has_no_meaning_is_refused() -> None:
    view = jnp.asarray(example()[0])
    for settings, message in (
        ({"normalize": False}, "only embeddings on the sphere have"),
        ({"labels": np.zeros(len(view), int)}, "same_label='positive' marks them"),
        ({"debias": 1.0}, "from 0 to below 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            infonce_loss(view, view, **{"debias": 0.1, **settings})
    with pytest.raises(ValueError, match="one diagonal Λ for all anchors, got Factored"):
        aninfonce_loss(view, view, Factored(np.eye(view.shape[1])), debias=0.1)


TRANSFORMATIONS = {
    "hessian": jax.hessian,
    "reverse twice": lambda f: jax.jacrev(jax.grad(f)),
    "remat": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
}


@functools.cache
def transformed(strategy: str, name: str) -> np.ndarray:
    view1, view2 = (jnp.asarray(view[:6]) for view in example())
    # With a chunk size, gather and ring take the kernels where there are any.
    loss = functools.partial(aninfonce_loss, strategy=strategy, chunk_size=4)
    if strategy in ("gather", "ring"):
        mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,), axis_types=(AxisType.Auto,))
        loss = over_mesh(loss, mesh, AXIS)
    transform = TRANSFORMATIONS[name](lambda x: loss(view1, view2, x).loss)
    return jax.jit(transform)(jnp.asarray(PARAMETER["aninfonce"], jnp.float32))


def every_transformation() -> Iterator[Any]:
    """Lists strategies and transformations; quick are all of one strategy, and one of all."""
    for strategy, name in itertools.product(
        ("chunked", "gather", "ring", "pallas"), TRANSFORMATIONS
    ):
        quick = strategy == "chunked" or name == "remat"
        yield pytest.param(strategy, name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("strategy", "name"), list(every_transformation()))
def test_transformations_and_second_derivatives(strategy: str, name: str) -> None:
    chex.assert_trees_all_close(
        transformed(strategy, name), transformed("dense", name), rtol=1e-4, atol=1e-6
    )


# --- Numerics ---


def extremes() -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    view1, view2 = example()
    same = np.tile(view1[:1], (BATCH, 1))
    return {
        "flat": (view1, view2, 1e-4),
        "peaked": (view1, view2, 1e4),
        "identical embeddings": (same, same, 3.0),
        "identical views": (view1, view1, 25.0),
    }


differentiate = functools.partial(jax.value_and_grad, argnums=(0, 1, 2))


@functools.cache
def exact_extreme(case: str, dtype: Any) -> tuple[Any, Any]:
    """Returns the loss, and the gradients of views and Λ, of an extreme in float64."""
    *views, concentration = extremes()[case]

    def mean(view1: Array, view2: Array, concentration: Array) -> Array:
        rows = enumerate_pairs(BATCH, "both")
        return naive_per_anchor(
            view1, view2, concentration, score=anisotropic_score, rows=rows
        ).mean()

    with jax.enable_x64(True):
        exact = [jnp.asarray(np.float64(view.astype(dtype))) for view in views]
        found = jax.jit(differentiate(mean))(*exact, jnp.full(DIM, concentration))
        return jax.tree.map(np.asarray, found)


def extreme_errors(
    strategy: str, case: str, dtype: Any, chunk_size: int
) -> tuple[float, list[tuple[float, float]]]:
    """Returns the error of the loss; of each gradient its error, and its largest entry."""
    *views, concentration = extremes()[case]
    ours = functools.partial(aninfonce_loss, strategy=strategy, chunk_size=chunk_size)
    if strategy in ("gather", "ring"):
        mesh = Mesh(np.array(jax.devices()[:8]), (AXIS,), axis_types=(AxisType.Auto,))
        ours = over_mesh(ours, mesh, AXIS)
    loss, gradients = jax.jit(differentiate(lambda *arguments: ours(*arguments).loss))(
        *(jnp.asarray(view.astype(dtype)) for view in views),
        jnp.full(DIM, concentration, jnp.float32),
    )
    exact_loss, exact_gradients = exact_extreme(case, dtype)
    pairs = zip(gradients, exact_gradients, strict=True)
    errors = [(np.max(np.abs(np.float64(x) - y)), np.max(np.abs(y))) for x, y in pairs]
    return float(np.abs(np.float64(loss) - exact_loss)), errors


@pytest.mark.parametrize(
    ("strategy", "dtype"),
    [
        ("chunked", np.float32),
        ("pallas", np.float32),
        ("gather", np.float32),
        ("ring", np.float32),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product(("chunked", "pallas"), (jnp.bfloat16, np.float16))
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("case", list(extremes()))
def test_extremes_against_float64(strategy: str, case: str, dtype: Any) -> None:
    # A device has 6 points, and three divides them: the test below says why.
    chunk_size = 3 if strategy == "gather" else CHUNK
    loss, errors = extreme_errors(strategy, case, dtype, chunk_size)
    concentration = extremes()[case][2]
    rounding = 1e-6 * (1 + concentration)
    assert loss <= rounding
    *d_views, (error, largest) = errors
    # A weight is as wrong, relatively, as its score is absolutely.
    assert error <= (1e-4 + 1e-7 * concentration) * largest + 1e-7
    for error, largest in d_views:
        relative = 1e-4 if dtype == np.float32 else 2.0**-7
        assert error <= relative * largest + rounding


def test_scores_that_round_differently_when_computed_again() -> None:
    """They move a weight by no more than a unit in the last place of the largest score.

    A gradient weighs keys by exp(score - logsumexp), from scores that are computed again. Scores
    of Λ = 1e4 have units of 1e-3. Where they round as they did for the log-sum-exp, that cancels
    in the weight of a key that outweighs all others: every strategy is then off by less than
    1e-6. Programs compiled without optimisation, as in these tests, round differently in the
    tiles [3, 5] into which 6 rows and 48 gathered keys are cut here, and the gradient is off by
    3e-4; with XLA's usual optimisation, or square tiles, by 2e-7.
    """
    largest_score = 1e4
    unit = float(jnp.finfo(jnp.float32).eps) * largest_score
    loss, errors = extreme_errors("gather", "peaked", np.float32, CHUNK)
    assert loss <= unit
    for error, largest in errors:
        assert error <= unit * largest


def test_a_million_keys() -> None:
    """The sum of a million terms, tile by tile, keeps the precision of float32."""
    rng = np.random.default_rng(0)
    views = rng.normal(size=(2, 3, 8)).astype(np.float32)
    bank = rng.normal(size=(10**6, 8)).astype(np.float32)
    out = jax.jit(functools.partial(aninfonce_loss, strategy="chunked"))(
        views[0], views[1], jnp.full(8, 25.0), negatives=bank
    )
    points = [
        np.float64(x) / np.linalg.norm(np.float64(x), axis=1)[:, None] for x in (*views, bank)
    ]
    score = lambda a, b: -12.5 * np.sum((a - b) ** 2, axis=-1)  # noqa: E731
    positive = score(points[0], points[1])
    negative = score(points[0][:, None], points[2][None])
    expected = np.log(np.exp(positive) + np.sum(np.exp(negative), axis=1)) - positive
    np.testing.assert_allclose(out.per_anchor, expected, rtol=1e-6)


# --- What auto does, and what is refused ---


def test_auto_says_what_it_chose() -> None:
    def chosen(batch: int, dim: int, devices: int | None = None, **settings: Any) -> str:
        views = (jax.ShapeDtypeStruct((batch, dim), jnp.float32),) * 2

        def loss(view1: Array, view2: Array) -> LossOutput:
            return aninfonce_loss(view1, view2, 1.0, **settings)

        if devices is None:
            return jax.eval_shape(loss, *views).strategy
        mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,), axis_types=(AxisType.Auto,))
        spread = over_mesh(functools.partial(aninfonce_loss, **settings), mesh, AXIS)
        concentration = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.eval_shape(spread, *views, concentration).strategy

    assert chosen(100, 8) == "dense"
    assert chosen(100_000, 8) == "chunked"
    assert chosen(100, 8, chunk_size=10) == "chunked"
    assert chosen(800, 8, devices=8) == "gather"
    assert chosen(2**20, 128, devices=8) == "ring"
    assert chosen(800, 8, devices=8, strategy="ring") == "ring"
    # A mesh of one device is as good as none.
    assert chosen(100, 8, devices=1) == "dense"
    assert chosen(1000, 8, devices=1) == chosen(1000, 8) == "chunked"
    assert chosen(100_000, 8, devices=1, strategy="ring") == "chunked"


def test_outputs_of_all_strategies_are_the_same_tree() -> None:
    """So that both branches of a condition, and every turn of a loop, may return one."""
    loss = functools.partial(aninfonce_loss, concentration=1.0)

    @jax.jit
    def either(flag: Array, view1: Array, view2: Array) -> LossOutput:
        return lax.cond(
            flag,
            lambda: loss(view1, view2, strategy="dense"),
            lambda: loss(view1, view2, strategy="chunked"),
        )

    dense, chunked = (either(flag, *example()) for flag in (True, False))
    assert jax.tree.structure(dense) == jax.tree.structure(chunked)
    np.testing.assert_allclose(dense.loss, chunked.loss, rtol=1e-6)
    outputs = [
        jax.eval_shape(functools.partial(loss, strategy=name), *example())
        for name in ("dense", "chunked")
    ]
    assert [out.strategy for out in outputs] == ["dense", "chunked"]
    # As `LossOutput.strategy` warns: the word is that of the first branch, whichever was taken.
    assert [out.strategy for out in (dense, chunked)] == ["dense", "dense"]
    assert set(outputs[0].metrics) == {"accuracy", "score", "nonfinite", "nonpositive"}


def test_a_mesh_of_one_device_computes_what_one_device_does() -> None:
    """No collective of any size is left, and half of the scores are computed."""
    mesh = Mesh(np.array(jax.devices()[:1]), (AXIS,), axis_types=AUTO)
    view = jax.ShapeDtypeStruct((1000, DIM), jnp.float32)

    def text(loss: Any) -> str:
        grad = jax.jit(jax.grad(lambda *views: loss(*views, 1.0).loss, argnums=(0, 1)))
        return grad.trace(view, view).lower().as_text()

    spread, alone = text(over_mesh(aninfonce_loss, mesh, AXIS)), text(aninfonce_loss)
    # Tiles of 500 x 500, of which 2000 points have 4 x 4, and none with all of them.
    for found in (spread, alone):
        assert "tensor<500x500xf32>" in found
        assert "tensor<2000x2000xf32>" not in found
    assert not re.search(r"stablehlo.(all_gather|collective_permute|reduce_scatter)", spread)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"strategy": "flash"}, ValueError, "strategy must be one of 'auto', 'dense'.*'flash'"),
        ({"strategy": "ring"}, ValueError, "strategy='ring' needs axis_name"),
        ({"strategy": "gather"}, ValueError, "strategy='gather' needs axis_name"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
        ({"chunk_size": -3}, ValueError, "chunk_size must be at least 1, got -3"),
        ({"chunk_size": 2.0}, TypeError, "chunk_size must be an int or None, got float"),
        ({"axis_name": "batch"}, ValueError, "axis_name='batch' is not a mapped axis here"),
        ({"axis_name": 0}, TypeError, "axis_name must be a string, a tuple of strings, or None"),
        ({"axis_name": ["batch"]}, TypeError, r"axis_name must be a string.*got \['batch'\]"),
        (
            {"strategy": "pallas", "precision": lax.Precision.HIGH},
            ValueError,
            "'pallas' knows precision DEFAULT and HIGHEST, got HIGH; use 'chunked'",
        ),
        ({"hardness": -1.0}, ValueError, "hardness must be at least 0 and finite, got -1.0"),
        ({"hardness": "hard"}, TypeError, "hardness must be a Python number, got str"),
    ],
)
@pytest.mark.parametrize("kind", ["aninfonce", "infonce"])
def test_impossible_settings_are_refused(
    kind: str, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        loss_function(kind, **settings)(*example(), PARAMETER[kind])


def test_float64_has_no_kernels() -> None:
    views = [np.float64(view) for view in example()]
    with jax.enable_x64(True), pytest.raises(ValueError, match="'pallas' computes in float32"):
        jax.eval_shape(lambda *views: aninfonce_loss(*views, 1.0, strategy="pallas"), *views)


def test_gpus_have_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ValueError, match="'pallas' is for TPU; on GPU use 'chunked'"):
        aninfonce_loss(*example(), 1.0, strategy="pallas")


def test_kernels_are_for_one_device_or_a_mapped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler can't spread them: neither does auto ask that of it, nor may a user."""
    monkeypatch.setattr(plan, "platform_of", lambda x: "tpu")
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=(AxisType.Auto,))

    def chosen(spread: bool, strategy: str = "auto") -> str:
        sharding = NamedSharding(mesh, P(AXIS)) if spread else None
        view = jax.ShapeDtypeStruct((8192, DIM), jnp.float32, sharding=sharding)
        loss = functools.partial(aninfonce_loss, concentration=1.0, strategy=strategy)
        return jax.jit(loss).eval_shape(view, view).strategy

    refused = "'pallas' can't be spread over devices.*use an.over_mesh, axis_name"
    assert chosen(spread=True) == "chunked"
    with pytest.raises(ValueError, match=refused):
        chosen(spread=True, strategy="pallas")
    # With several devices around it is not known before compilation which ones it will be.
    assert chosen(spread=False) == "chunked"
    assert chosen(spread=False, strategy="pallas") == "pallas"
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert chosen(spread=False) == "pallas"
    assert chosen(spread=True) == "chunked"

    def mapped(axes: set[str]) -> str:
        grid = Mesh(mesh.devices.reshape(2, 2), (AXIS, "model"), axis_types=(AxisType.Auto,) * 2)
        names = []

        def each(view: Array) -> Array:
            out = aninfonce_loss(view, view, 1.0)
            names.append(out.strategy)
            return out.loss[None]

        spread = jax.shard_map(
            each, mesh=grid, in_specs=P(AXIS), out_specs=P(AXIS), axis_names=axes, check_vma=False
        )
        jax.jit(spread).eval_shape(jax.ShapeDtypeStruct((8192, DIM), jnp.float32))
        return names[0]

    assert mapped({AXIS, "model"}) == "pallas"
    assert mapped({AXIS}) == "chunked"


def test_views_spread_differently_are_refused() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,), axis_types=(AxisType.Auto,))
    view = np.ones((4, DIM), np.float32)

    def loss(view1: Array, view2: Array) -> Array:
        return aninfonce_loss(view1, view2, 1.0, axis_name=AXIS).loss

    def spread(second: P) -> Any:
        return jax.shard_map(loss, mesh=mesh, in_specs=(P(AXIS), second), out_specs=P())

    with pytest.raises(ValueError, match=r"spread over the same axes, got \['data'\] and \[\]"):
        spread(P())(view, view[:2])
    with pytest.raises(ValueError, match="must have the same shape"):
        spread(P())(view, view)


@pytest.mark.parametrize(
    ("views", "bank", "named"), [(P(), P(AXIS), "view1 and view2"), (P(AXIS), P(), "negatives")]
)
def test_rows_that_every_device_has_alike_are_refused(views: P, bank: P, named: str) -> None:
    """They would count once for each device."""
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,), axis_types=(AxisType.Auto,))

    def loss(checked: bool) -> Any:
        return jax.shard_map(
            lambda a, b, c: aninfonce_loss(a, b, 1.0, negatives=c, axis_name=AXIS).loss,
            mesh=mesh,
            in_specs=(views, views, bank),
            out_specs=P(),
            check_vma=checked,
        )

    view = np.ones((4, DIM), np.float32)
    with pytest.raises(ValueError, match=f"{named} must be spread over axis_name='data'"):
        jax.eval_shape(loss(checked=True), view, view, view)
    # Without the checks nothing is known of where arrays differ.
    jax.eval_shape(loss(checked=False), view, view, view)


def test_over_mesh_takes_parameters_and_settings_by_keyword() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=(AxisType.Auto,))
    spread = over_mesh(infonce_loss, mesh, AXIS)
    bank = np.random.default_rng(1).normal(size=(12, DIM)).astype(np.float32)

    def value_and_grad(loss: Any, **settings: Any) -> Any:
        def mean(temperature: Array, bank: Array) -> Array:
            return loss(*example(), temperature=temperature, negatives=bank, **settings).loss

        return jax.jit(jax.value_and_grad(mean, argnums=(0, 1)))(jnp.float32(0.3), bank)

    chex.assert_trees_all_close(
        jax.device_get(value_and_grad(spread, strategy="ring")),
        value_and_grad(infonce_loss),
        rtol=1e-5,
        atol=1e-7,
    )
    settings = {"temperature": 0.3, "negatives": "anchors"}
    found, expected = (
        jax.jit(functools.partial(loss, **settings))(*example()) for loss in (spread, infonce_loss)
    )
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)


def test_over_mesh_checks_what_it_can() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=(AxisType.Auto,))
    spread = over_mesh(aninfonce_loss, mesh, AXIS)
    view1, view2 = example()
    bank = view1[:5].tolist()
    with pytest.raises(ValueError, match=r"axis_name must name axes of the mesh, \['data'\], got"):
        over_mesh(aninfonce_loss, mesh, "batch")
    with pytest.raises(ValueError, match=r"axis_name must name each axis once, got"):
        over_mesh(aninfonce_loss, mesh, (AXIS, AXIS))
    with pytest.raises(ValueError, match=r"view1 must have rows that the 4 devices.*got 22"):
        spread(view1[:22], view2[:22], 1.0)
    with pytest.raises(ValueError, match=r"negatives must have rows that the 4 devices.*got 5"):
        spread(view1, view2, 1.0, negatives=bank)
    with pytest.raises(ValueError, match=r"concentration must be positive and finite, got -1.0"):
        spread(view1, view2, -1.0)
    found = jax.jit(lambda *views: spread(*views, 1.0, negatives=bank[:4]).loss)(view1, view2)
    alone = functools.partial(aninfonce_loss, concentration=1.0, negatives=np.float32(bank[:4]))
    expected = jax.jit(alone)(view1, view2).loss
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_global_batch_of_one_is_refused_and_one_row_per_device_is_not() -> None:
    view = np.ones((1, DIM), np.float32)

    def loss(view1: Array, view2: Array) -> Array:
        return aninfonce_loss(view1, view2, 1.0, axis_name=AXIS).loss

    with pytest.raises(ValueError, match="got a batch of 1: it has no negatives"):
        jax.pmap(loss, AXIS)(view[None], view[None])
    two = np.stack([view, 2 * view])
    np.testing.assert_allclose(jax.pmap(loss, AXIS)(two, two), np.log(3), rtol=1e-6)


# --- over_mesh: any mesh, and what it refuses ---


@pytest.mark.skipif(
    jax.__version_info__ < (0, 8),
    reason="jax 0.7 can't differentiate a product whose rows are spread over explicit axes",
)
def test_over_mesh_takes_a_mesh_with_explicit_axes() -> None:
    """Which is what `jax.make_mesh` gives where it is told nothing."""
    mesh = jax.make_mesh((8,), (AXIS,), axis_types=(AxisType.Explicit,))
    spread = over_mesh(aninfonce_loss, mesh, AXIS)
    weights = jnp.linspace(0.5, 1.5, DIM * DIM).reshape(DIM, DIM)

    def mean(loss: Any, weights: Array, view1: Array, view2: Array) -> Array:
        return loss(view1 @ weights, view2 @ weights, 2.0).loss

    expected = jax.jit(jax.grad(functools.partial(mean, aninfonce_loss)))(weights, *example())
    alone = jax.jit(lambda *views: aninfonce_loss(*views, 2.0).loss)(*example())
    # Rows that are not spread yet ask for nothing, nor do values alone.
    found = jax.jit(jax.grad(functools.partial(mean, spread)))(weights, *example())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    views = [jax.device_put(view, NamedSharding(mesh, P(AXIS))) for view in example()]
    np.testing.assert_allclose(spread(*views, jnp.float32(2.0)).loss, alone, rtol=1e-6)
    needs = r"explicit axes needs jax.set_mesh.*AxisType.Auto,\) \* 1"
    with pytest.raises(ValueError, match=needs):
        jax.grad(lambda view: spread(view, views[1], 2.0).loss)(views[0])
    with jax.set_mesh(mesh):
        found = jax.jit(jax.grad(functools.partial(mean, spread)))(weights, *views)
        # Rows that are not spread yet are.
        loss = jax.jit(lambda *views: spread(*views, 2.0).loss)(*example())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss, alone, rtol=1e-6)
    with pytest.raises(ValueError, match="view1 must not be spread over explicit axes"):
        aninfonce_loss(*views, 2.0)
    other = over_mesh(aninfonce_loss, jax.make_mesh((8,), (AXIS,), axis_types=AUTO), AXIS)
    with (
        jax.set_mesh(mesh),
        pytest.raises(ValueError, match=r"\(data=8 Explicit\), got \(data=8 Auto"),
    ):
        other(*views, 2.0)


def test_over_mesh_refuses_what_it_can_not_spread() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,), axis_types=AUTO)

    def mine(view1: Array, view2: Array) -> LossOutput:
        return aninfonce_loss(view1, view2, 1.0)

    with pytest.raises(TypeError, match="mine can't be spread over a mesh: it takes no axis_name"):
        over_mesh(mine, mesh, AXIS)
    with pytest.raises(TypeError, match="can't be spread"):
        over_mesh(functools.partial(mine), mesh, AXIS)
    with pytest.raises(TypeError, match="loss must be a function, got str"):
        over_mesh("aninfonce", mesh, AXIS)
    with pytest.raises(TypeError, match=r"mesh must be a jax.sharding.Mesh, got list"):
        over_mesh(aninfonce_loss, jax.devices(), AXIS)
    for axis in (None, 0, [AXIS], ()):
        with pytest.raises(TypeError, match="axis_name must be a string or a tuple of strings"):
            over_mesh(aninfonce_loss, mesh, axis)
    spread = over_mesh(aninfonce_loss, mesh, AXIS)
    with pytest.raises(TypeError, match="axis_name is set by over_mesh"):
        spread(*example(), 1.0, axis_name=AXIS)
    with pytest.raises(TypeError, match="view1 must be an array of numbers, got a NoneType"):
        spread(None, None, 1.0)
    with pytest.raises(ValueError, match=r"negatives must be one of 'both'.*got None"):
        spread(*example(), 1.0, negatives=None)
