"""Micro-batches give the gradient of the whole batch, and say where they can not."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.losses.contrast import aninfonce_loss
from aninfonce_jax.training.microbatch import microbatched

ROWS, FEATURES, DIM = 12, 6, 3
X1 = jax.random.normal(jax.random.key(1), (ROWS, FEATURES))
X2 = X1 + 0.1 * jax.random.normal(jax.random.key(2), (ROWS, FEATURES))


class Encoder(nn.Module):
    norm: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(16)(x)
        if self.norm:
            x = nn.BatchNorm(use_running_average=False)(x)
        x = nn.Dropout(self.dropout, deterministic=not self.dropout)(nn.relu(x))
        return nn.Dense(DIM)(x)


def contrast(encode):
    def loss(params):
        first, second = encode(params, X1), encode(params, X2)
        return aninfonce_loss(first, second, jnp.array([1.0, 5.0, 9.0])).loss

    return loss


@pytest.mark.parametrize("microbatches", [1, 2, 3, 12])
def test_value_and_gradient_are_those_of_the_whole_batch(microbatches):
    model = Encoder()
    params = model.init(jax.random.key(0), X1)
    whole = jax.jit(jax.value_and_grad(contrast(model.apply)))(params)
    parts = jax.jit(jax.value_and_grad(contrast(microbatched(model.apply, microbatches))))(params)
    chex.assert_trees_all_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_rows_and_trees_come_back_in_order():
    def encode(scale, inputs):
        return {"first": scale * inputs[0], "second": inputs[1] + 1}

    out = microbatched(encode, 3)(2.0, (X1, X2))
    chex.assert_trees_all_close(out, {"first": 2 * X1, "second": X2 + 1})


def test_memory_is_that_of_one_microbatch():
    """From the compiler: hidden activations of the whole batch are never kept."""
    rows, width = 512, 2048
    x = jnp.ones((rows, 4))
    params = {"a": jnp.ones((4, width)), "b": jnp.ones((width, 4))}

    def encode(params, x):
        return jnp.tanh(jnp.tanh(x @ params["a"]) @ params["b"])

    def temporary_bytes(encode):
        grad = jax.jit(jax.grad(lambda params: jnp.sum(encode(params, x) ** 2)))
        return grad.lower(params).compile().memory_analysis().temp_size_in_bytes

    whole, parts = temporary_bytes(encode), temporary_bytes(microbatched(encode, 16))
    assert whole > 4 * rows * width
    assert parts < whole / 4


def test_batch_norm_sees_the_microbatch_and_returns_its_mean_statistics():
    model = Encoder(norm=True)
    variables = model.init(jax.random.key(0), X1)

    def encode(params, x):
        return model.apply({**variables, "params": params}, x, mutable="batch_stats")

    embeddings, state = microbatched(encode, 3, has_aux=True)(variables["params"], X1)
    expected = [encode(variables["params"], X1[start::3]) for start in range(3)]
    for start, (rows, _) in enumerate(expected):
        chex.assert_trees_all_close(embeddings[start::3], rows, rtol=1e-5, atol=1e-6)
    mean = jax.tree.map(lambda *parts: sum(parts) / 3, *(stats for _, stats in expected))
    chex.assert_trees_all_close(state, mean, rtol=1e-5)
    whole = encode(variables["params"], X1)[0]
    assert not np.allclose(embeddings, whole, atol=1e-2), "statistics are the micro-batch's"


def test_dropout_draws_anew_for_each_microbatch_and_alike_in_both_passes():
    model = Encoder(dropout=0.5)
    params = model.init(jax.random.key(0), X1)
    key = jax.random.key(7)

    def encode(params, x, key):
        return model.apply(params, x, rngs={"dropout": key})

    parts = microbatched(encode, 3)

    def by_hand(params, x):
        rows = jnp.zeros((ROWS, DIM))
        for index in range(3):
            part = encode(params, x[index::3], jax.random.fold_in(key, index))
            rows = rows.at[index::3].set(part)
        return rows

    loss, expected = contrast(lambda p, x: parts(p, x, key)), contrast(by_hand)
    chex.assert_trees_all_close(
        jax.jit(jax.value_and_grad(loss))(params),
        jax.jit(jax.value_and_grad(expected))(params),
        rtol=1e-5,
        atol=1e-6,
    )
    same = jnp.tile(X1[:1], (ROWS, 1))
    embeddings = parts(params, same, key)
    assert not np.allclose(embeddings[0::3], embeddings[1::3])


@pytest.mark.parametrize(
    ("microbatches", "error", "message"),
    [
        (0, ValueError, "microbatches must be at least 1, got 0"),
        (2.0, TypeError, "microbatches must be an int, got float"),
        (5, ValueError, "microbatches=5 must divide the batch, got 12 rows"),
    ],
)
def test_bad_numbers_are_refused(microbatches, error, message):
    with pytest.raises(error, match=message):
        microbatched(lambda params, x: x, microbatches)({}, X1)


def test_numpy_integers_are_fine_numbers():
    out = microbatched(lambda params, x: x, np.int64(3))({}, X1)
    chex.assert_trees_all_equal(out, X1)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"a": X1, "b": X2[:6]}, ValueError, "same number of rows, got arrays with 6 and 12"),
        (np.ones((12, 2)).tolist(), TypeError, "got a float among them; make an array of a list"),
        ("text", TypeError, "inputs must be arrays .* got a str among them"),
        (jnp.float32(1), ValueError, r"arrays \[batch, ...\], got a scalar among them"),
        (None, ValueError, "at least one array .* got none"),
        (X1[:0], ValueError, "at least one row, got none"),
    ],
)
def test_inputs_that_can_not_be_cut_are_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        microbatched(lambda params, x: x, 3)({}, inputs)


def test_what_encodes_must_be_a_function_that_returns_what_it_says():
    with pytest.raises(TypeError, match="encode must be a function, got dict"):
        microbatched({}, 3)
    with pytest.raises(TypeError, match="has_aux must be True or False, got str"):
        microbatched(lambda params, x: x, 3, has_aux="state")
    with pytest.raises(TypeError, match=r"must return \(embeddings, aux\), got"):
        microbatched(lambda params, x: x, 3, has_aux=True)({}, X1)
    with pytest.raises(ValueError, match=r"embeddings must be arrays \[batch, ...\], got a scalar"):
        microbatched(lambda params, x: jnp.sum(x), 3)({}, X1)
