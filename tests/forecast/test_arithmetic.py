"""FLOPs of a traced program, held against what can be counted by hand and what XLA counts."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from aninfonce_jax.forecast.arithmetic import count_flops
from aninfonce_jax.placement import DATA_AXIS, Placement


def flops(function, *arguments, platform="cpu"):
    return dict(count_flops(jax.make_jaxpr(function)(*arguments), platform))


def by_compiler(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


A, B = jnp.ones((8, 16)), jnp.ones((16, 32))
PRODUCT = 2 * 8 * 16 * 32


@pytest.mark.parametrize(
    ("precision", "dtype", "kind"),
    [
        (None, "float32", "float32"),
        ("default", "float32", "float32"),
        ("high", "float32", "high"),
        ("highest", "float32", "highest"),
        ("highest", "bfloat16", "bfloat16"),
    ],
)
def test_a_product_counts_by_how_it_is_multiplied(precision, dtype, kind):
    a, b = A.astype(dtype), B.astype(dtype)
    assert flops(lambda a, b: jnp.matmul(a, b, precision=precision), a, b) == {kind: PRODUCT}


def test_batched_products_count_all_of_the_batch():
    a, b = jnp.ones((5, 8, 16)), jnp.ones((5, 16, 32))
    assert flops(jnp.matmul, a, b) == {"float32": 5 * PRODUCT}


def test_a_scan_counts_every_turn_and_a_while_one():
    def scanned(a):
        return jax.lax.scan(lambda carry, _: (carry @ B.T @ B.T.T, None), a, length=7)[0]

    def looped(a):
        return jax.lax.while_loop(lambda a: a.sum() < 0, lambda a: a @ B @ B.T, a)

    assert flops(lambda a: scanned(a @ B), A)["float32"] == PRODUCT + 7 * 2 * (2 * 8 * 32 * 16)
    assert flops(looped, A) == {"float32": 2 * PRODUCT}


def test_of_a_choice_by_platform_the_right_branch_counts():
    def choose(a, b):
        return jax.lax.platform_dependent(
            a, b, cpu=lambda a, b: a @ b, cuda=lambda a, b: 2 * (a @ b) @ b.T @ b,
            default=lambda a, b: (a[:, :1] @ b[:1]),
        )  # fmt: skip

    assert flops(choose, A, B, platform="cpu") == {"float32": PRODUCT}
    assert flops(choose, A, B, platform="gpu") == {"float32": 3 * PRODUCT}
    assert flops(choose, A, B, platform="tpu") == {"float32": 2 * 8 * 32}


def test_of_another_choice_the_largest_counts():
    def choose(which, a, b):
        return jax.lax.cond(which, lambda: a @ b, lambda: (a @ b) @ b.T @ b)

    assert flops(choose, True, A, B) == {"float32": 3 * PRODUCT}


def test_what_each_device_does_for_itself_counts_on_all():
    placement = Placement.local()

    def local(a):
        return a @ B

    mapped = jax.shard_map(
        local, mesh=placement.mesh, in_specs=P(DATA_AXIS), out_specs=P(DATA_AXIS)
    )
    rows = 8 * placement.size
    assert flops(mapped, jnp.ones((rows, 16))) == {"float32": placement.size * PRODUCT}


def test_a_kernel_counts_every_cell_of_its_grid():
    from jax.experimental import pallas as pl

    def kernel(a_ref, b_ref, out_ref):
        out_ref[...] = a_ref[...] @ b_ref[...]

    call = pl.pallas_call(
        kernel,
        grid=(4,),
        in_specs=[
            pl.BlockSpec((8, 16), lambda i: (i, 0)),
            pl.BlockSpec((16, 32), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((8, 32), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((32, 32), jnp.float32),
        interpret=True,
    )
    assert flops(call, jnp.ones((32, 16)), B) == {"float32": 4 * PRODUCT}


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "padding"),
    [(8, 3, 1, 1), (9, 3, 2, 1), (16, 7, 2, 3), (8, 1, 2, 0)],
)
def test_convolutions_and_their_gradients_count_as_the_compiler_counts_them(
    side, kernel, stride, padding
):
    x, w = jnp.ones((2, side, side, 3)), jnp.ones((kernel, kernel, 3, 5))

    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    forward_flops = flops(convolve, x, w)["float32"]
    assert forward_flops == pytest.approx(by_compiler(convolve, x, w), rel=0.02)
    # The gradient's taps are the same pairs of pixels, from the other side.
    gradient = jax.make_jaxpr(lambda w, g: jax.vjp(lambda x: convolve(x, w), x)[1](g))(
        w, jnp.ones(convolve(x, w).shape)
    )
    assert count_flops(gradient, "cpu")["float32"] - forward_flops == forward_flops
    weights = jax.make_jaxpr(lambda x, g: jax.vjp(lambda w: convolve(x, w), w)[1](g))(
        x, jnp.ones(convolve(x, w).shape)
    )
    assert count_flops(weights, "cpu")["float32"] - forward_flops == forward_flops
