import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from aninfonce_jax.models import resnet
from aninfonce_jax.models.bottleneck import Bottleneck
from aninfonce_jax.models.resnet import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LAYERS,
    ProjectedResNet,
    Projector,
    ResNet,
    standardise,
)
from aninfonce_jax.placement import Placement

TINY = ResNet(18, "cifar", width=0.125)


def images():
    # Of an odd size: where conventions of padding at stride 2 differ. Everywhere the same
    # shape, as compiling is what takes time here.
    return jax.random.uniform(jax.random.key(0), (8, 9, 9, 3))


def abstract(model, shape, dtype=jnp.float32, **options):
    """Shapes of features and variables, without computing them."""
    return jax.eval_shape(
        functools.partial(model.init_with_output, train=False, **options),
        jax.random.key(0),
        jax.ShapeDtypeStruct(shape, dtype),
    )


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@functools.cache
def initial_variables():
    return jax.jit(functools.partial(TINY.init, train=False))(jax.random.key(0), images())


def away_from_start(variables):
    """Variables with noise for the initial zeros and ones, so that every part matters."""
    rng = np.random.default_rng(0)

    def noisy(path, leaf):
        noise = jnp.asarray(rng.uniform(0.5, 1.5, leaf.shape), leaf.dtype)
        return leaf if path[-1] == "kernel" else noise

    return traverse_util.path_aware_map(noisy, variables)


@functools.cache
def tiny_variables():
    return away_from_start(initial_variables())


@functools.partial(jax.jit, static_argnames=("model", "train"))
def run(variables, x, *, model=TINY, train=False):
    """Features, and the statistics after them."""
    features, updates = model.apply(variables, x, train=train, mutable=["batch_stats"])
    return features, updates.get("batch_stats", {})


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize(("depth", "features"), [(18, 128), (34, 128), (50, 512)])
def test_features(depth, features, stem, dtype):
    model = ResNet(depth, stem, width=0.25, dtype=dtype)
    out, variables = abstract(model, (2, 32, 48, 3), jnp.float16)
    assert model.features == features
    chex.assert_shape(out, (2, features))
    assert {leaf.dtype for leaf in jax.tree.leaves((variables, out))} == {jnp.dtype("float32")}


@pytest.mark.parametrize(("depth", "count"), [(18, 11_176_512), (34, 21_284_672), (50, 23_508_032)])
def test_the_known_numbers_of_parameters(depth, count):
    _, variables = abstract(ResNet(depth, "imagenet"), (1, 64, 64, 3))
    assert size(variables["params"]) == count
    _, small = abstract(ResNet(depth, "cifar"), (1, 64, 64, 3))
    assert size(small["params"]) == count - 64 * 3 * (7 * 7 - 3 * 3)


def test_width_multiplies_channels():
    sizes = []
    for width, channels in [(1, 64), (0.5, 32), (0.3, 19), (0.125, 8), (0.01, 8)]:
        model = ResNet(18, "cifar", width)
        assert (model.channels, model.features) == (channels, 8 * channels)
        sizes.append(size(abstract(model, (1, 8, 8, 3))[1]["params"]))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 10


def test_stems_divide_height_and_width():
    for stem, strides in [("imagenet", 4), ("cifar", 1)]:
        _, state = abstract(ResNet(18, stem), (1, 64, 32, 3), capture_intermediates=True)
        shapes = [
            state["intermediates"][f"stage{stage}_block2"]["__call__"][0].shape
            for stage in range(1, 5)
        ]
        expected = [(1, 64 // strides // 2**i, 32 // strides // 2**i, 64 * 2**i) for i in range(4)]
        assert shapes == expected


def test_initial_values():
    bottleneck = Bottleneck(8, 1, jnp.float32)
    x = jnp.zeros((1, 2, 2, 8))
    init = jax.jit(functools.partial(bottleneck.init, train=False))
    for params, last in [
        (initial_variables()["params"], "norm2"),
        (init(jax.random.key(0), x)["params"], "norm3"),
    ]:
        for path, leaf in traverse_util.flatten_dict(params).items():
            if path[-1] == "kernel":
                fan_out = leaf.shape[0] * leaf.shape[1] * leaf.shape[3]
                np.testing.assert_allclose(np.std(leaf), (2 / fan_out) ** 0.5, rtol=0.2)
            else:
                one = path[-1] == "scale" and path[-2] != last
                np.testing.assert_array_equal(leaf, np.full(leaf.shape, float(one)))


def test_blocks_start_as_their_shortcuts():
    variables, x = initial_variables(), images()

    def change(path, leaf):
        return jnp.flip(leaf, 0) if path[-2].startswith("conv") else leaf

    changed = traverse_util.path_aware_map(change, variables["params"])
    features, _ = run(variables, x, train=True)
    chex.assert_trees_all_equal(run(variables | {"params": changed}, x, train=True)[0], features)
    assert jnp.std(features) > 0.01


def test_standardise():
    mean, std = np.float32(IMAGENET_MEAN), np.float32(IMAGENET_STD)
    x = np.stack([mean, mean + std, mean - 2 * std]).reshape(1, 3, 1, 3)
    expected = np.broadcast_to(np.float32([0, 1, -2]).reshape(1, 3, 1, 1), x.shape)
    np.testing.assert_allclose(standardise(jnp.asarray(x), jnp.float32), expected, atol=1e-6)


def test_statistics():
    variables, x = tiny_variables(), images()
    trained, after = run(variables, x, train=True)
    evaluated, unchanged = run(variables, x)
    chex.assert_trees_all_equal(unchanged, variables["batch_stats"])
    assert not jnp.allclose(trained, evaluated, rtol=0.05)
    # The running ones: an image's features do not depend on its batch.
    alone, _ = run(variables, jnp.repeat(x[:1], 8, axis=0))
    chex.assert_trees_all_close(alone[0], evaluated[0], rtol=1e-4)
    kernel = variables["params"]["stem_conv"]["kernel"]
    outputs = jax.lax.conv_general_dilated(
        standardise(x, jnp.float32),
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    for name, statistic in [("mean", jnp.mean), ("var", jnp.var)]:
        before = variables["batch_stats"]["stem_norm"][name]
        expected = 0.9 * before + 0.1 * statistic(outputs, axis=(0, 1, 2))
        chex.assert_trees_all_close(after["stem_norm"][name], expected, rtol=1e-4)


def test_no_implicit_promotion_in_float32():
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(functools.partial(run, train=True), tiny_variables(), images())


@functools.partial(jax.jit, static_argnames="model")
def gradients(variables, x, *, model):
    """Gradients of the squared features' sum, with the features and the statistics."""

    def loss(params):
        features, stats = run(variables | {"params": params}, x, model=model, train=True)
        return jnp.sum(jnp.square(features)), (features, stats)

    return jax.grad(loss, has_aux=True)(variables["params"])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_are_finite_and_reach_everything(dtype):
    variables = tiny_variables()
    result, _ = gradients(variables, images(), model=TINY.clone(dtype=dtype))
    chex.assert_tree_all_finite(result)
    chex.assert_trees_all_equal_shapes_and_dtypes(result, variables["params"])
    assert all(np.any(leaf) for leaf in jax.tree.leaves(result))


def test_remat_changes_no_result():
    variables, x = tiny_variables(), images()
    remat = TINY.clone(remat=True)
    expected, given = abstract(TINY, x.shape), abstract(remat, x.shape)
    chex.assert_trees_all_equal_shapes_and_dtypes(given, expected)
    results = gradients(variables, x, model=remat)
    chex.assert_trees_all_close(results, gradients(variables, x, model=TINY), rtol=1e-3, atol=1e-3)


def test_remat_changes_no_gradient_of_a_bottleneck(monkeypatch):
    monkeypatch.setitem(resnet.DEPTHS, 50, ((1, 1), True))
    model, x = ResNet(50, "cifar", width=0.125), images()
    init = jax.jit(functools.partial(model.init, train=False))
    variables = away_from_start(init(jax.random.key(0), x))
    results = gradients(variables, x, model=model.clone(remat=True))
    chex.assert_trees_all_close(results, gradients(variables, x, model=model), rtol=1e-3, atol=1e-3)


def kept_for_gradients(model):
    """Bytes that eight images leave for the backward pass, beside the weights."""
    x = jax.ShapeDtypeStruct((8, 224, 224, 3), jnp.float32)
    _, variables = abstract(model, x.shape)

    def backward(params, stats, x):
        def features(params):
            return model.apply(
                {"params": params, "batch_stats": stats}, x, train=True, mutable=["batch_stats"]
            )[0]

        return jax.vjp(features, params)[1]

    kept = jax.eval_shape(backward, variables["params"], variables["batch_stats"], x)
    weights = 4 * size(variables["params"])
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept)) - weights


def test_remat_keeps_less():
    # Bottlenecks keep little as it is.
    for depth, share in [(18, 0.3), (50, 0.75)]:
        model = ResNet(depth, "imagenet", dtype=jnp.bfloat16)
        assert kept_for_gradients(model.clone(remat=True)) < share * kept_for_gradients(model)


def test_bfloat16_is_close_to_float32():
    variables, x = tiny_variables(), images()
    _, (features, stats) = gradients(variables, x, model=TINY.clone(dtype=jnp.bfloat16))
    expected, expected_stats = run(variables, x, train=True)
    assert {leaf.dtype for leaf in jax.tree.leaves((features, stats))} == {jnp.dtype("float32")}
    assert 0 < np.max(np.abs(features - expected)) < 0.1 * np.std(expected)
    chex.assert_trees_all_close(stats, expected_stats, rtol=0.02, atol=0.02)


def test_norms_see_the_global_batch():
    placement = Placement.local()
    assert placement.size == 8
    variables, x = tiny_variables(), images()
    # Each device's image differs in brightness: statistics of its own would be far off.
    x = x * jnp.linspace(0.1, 1, 8).reshape(8, 1, 1, 1)
    sharded = jax.device_put(x, placement.split)
    assert len(sharded.addressable_shards) == 8
    result = run(jax.device_put(variables, placement.whole), sharded, train=True)
    expected = run(variables, x, train=True)
    chex.assert_trees_all_close(result, expected, rtol=1e-3, atol=1e-4)
    own, _ = run(variables, jnp.repeat(x[:1], 8, axis=0), train=True)
    assert not jnp.allclose(own[0], expected[0][0], rtol=0.05)


def torch_resnet18(torch, variables):
    """A ResNet-18 in PyTorch, written apart from ours, with the same variables.

    Returns a function of images [batch, height, width, 3], and the modules by name.
    """
    modules = {}
    flat = {
        "/".join(path): torch.from_numpy(np.array(leaf))
        for path, leaf in traverse_util.flatten_dict(variables).items()
    }

    def conv(name, stride):
        kernel = flat[f"params/{name}/kernel"].permute(3, 2, 0, 1)
        out, inputs, size, _ = kernel.shape
        module = torch.nn.Conv2d(inputs, out, size, stride, padding=(size - 1) // 2, bias=False)
        module.weight.data.copy_(kernel)
        return module

    def norm(name):
        module = torch.nn.BatchNorm2d(len(flat[f"params/{name}/scale"]), eps=1e-5, momentum=0.1)
        module.weight.data.copy_(flat[f"params/{name}/scale"])
        module.bias.data.copy_(flat[f"params/{name}/bias"])
        module.running_mean.copy_(flat[f"batch_stats/{name}/mean"])
        module.running_var.copy_(flat[f"batch_stats/{name}/var"])
        modules[name] = module
        return module

    class Block(torch.nn.Module):
        def __init__(self, name, stride, project):
            super().__init__()
            self.conv1, self.norm1 = conv(f"{name}/conv1", stride), norm(f"{name}/norm1")
            self.conv2, self.norm2 = conv(f"{name}/conv2", 1), norm(f"{name}/norm2")
            self.shortcut = torch.nn.Identity()
            if project:
                self.shortcut = torch.nn.Sequential(
                    conv(f"{name}/shortcut_conv", stride), norm(f"{name}/shortcut_norm")
                )

        def forward(self, x):
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    layers = [conv("stem_conv", 1), norm("stem_norm"), torch.nn.ReLU()]
    for stage in (1, 2, 3, 4):
        layers.append(Block(f"stage{stage}_block1", 1 if stage == 1 else 2, stage > 1))
        layers.append(Block(f"stage{stage}_block2", 1, False))
    network = torch.nn.Sequential(*layers)

    def forward(x, train):
        x = torch.from_numpy(np.array(x)).permute(0, 3, 1, 2)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        return network.train(train)((x - mean) / std).mean((2, 3)).detach().numpy()

    return forward, modules


@pytest.mark.parametrize("train", [False, True])
def test_agrees_with_pytorch(train):
    torch = pytest.importorskip("torch")
    variables, x = tiny_variables(), images()
    features, stats = run(variables, x, train=train)
    forward, norms = torch_resnet18(torch, variables)
    np.testing.assert_allclose(features, forward(x, train), rtol=1e-3, atol=1e-4)
    stats = traverse_util.flatten_dict(stats, sep="/")
    for name, norm in norms.items():
        np.testing.assert_allclose(stats[f"{name}/mean"], norm.running_mean, rtol=1e-3, atol=1e-4)
        if not train:
            np.testing.assert_array_equal(stats[f"{name}/var"], norm.running_var)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("widths", [(), (16, 12)])
def test_projector(widths, dtype, norm):
    model = Projector(widths, 5, norm, dtype)
    x = jax.random.normal(jax.random.key(1), (6, 10))
    variables = jax.jit(functools.partial(model.init, train=False))(jax.random.key(0), x)
    embeddings, stats = run(variables, x, model=model, train=True)
    chex.assert_shape(embeddings, (6, 5))
    every = jax.tree.leaves((variables, embeddings, stats))
    assert {leaf.dtype for leaf in every} == {jnp.dtype("float32")}
    layers = variables["params"]
    hidden = [layers[f"Dense_{i}"] for i in range(len(widths))]
    assert all(("bias" in layer) != norm for layer in hidden)
    assert "bias" in layers[f"Dense_{len(widths)}"]
    assert bool(stats) == (norm and bool(widths))
    expected = np.array(x)
    for layer in hidden:
        expected = expected @ np.array(layer["kernel"])
        if norm:
            expected = (expected - expected.mean(0)) / np.sqrt(expected.var(0) + 1e-5)
        expected = np.maximum(expected, 0)
    expected = expected @ np.array(layers[f"Dense_{len(widths)}"]["kernel"])
    tolerance = 1e-4 if dtype == jnp.float32 else 0.05
    np.testing.assert_allclose(embeddings, expected, rtol=tolerance, atol=tolerance)


def test_a_projector_follows_the_backbone():
    encoder = ProjectedResNet(TINY, Projector((16,), 4, norm=True))
    x = images()
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), x)
    assert set(shapes["params"]) == set(shapes["batch_stats"]) == {"backbone", "projector"}
    of_backbone = tiny_variables()
    of_projector = encoder.projector.init(jax.random.key(0), jnp.zeros((1, 64)), train=False)
    variables = {
        kind: {"backbone": of_backbone[kind], "projector": of_projector[kind]} for kind in shapes
    }
    chex.assert_trees_all_equal_shapes_and_dtypes(variables, shapes)

    layers = jax.jit(encoder.apply)(variables, x)
    assert set(layers) == set(LAYERS)
    features, embeddings = (layers[name] for name in LAYERS)
    chex.assert_shape((features, embeddings), [(8, 64), (8, 4)])
    expected, _ = run(of_backbone, x)
    chex.assert_trees_all_close(features, expected, rtol=1e-4)
    projected = encoder.projector.apply(of_projector, features, train=False)
    chex.assert_trees_all_close(embeddings, projected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 101}, r"depth must be one of \[10, 18, 34, 50\], got 101"),
        ({"stem": "mnist"}, "stem must be 'imagenet' or 'cifar', got 'mnist'"),
        ({"width": 0.0}, "width must be a positive factor, got 0.0"),
        ({"width": float("nan")}, "width must be a positive factor, got nan"),
        ({"dtype": jnp.float16}, "dtype must be float32 or bfloat16, got .*float16"),
    ],
)
def test_bad_attributes(changes, message):
    with pytest.raises(ValueError, match=message):
        ResNet(**({"depth": 18, "stem": "cifar"} | changes))


def test_bad_images():
    with pytest.raises(ValueError, match=r"must be \[batch, height, width, 3\], got \(8, 8, 3\)"):
        abstract(TINY, (8, 8, 3))
    with pytest.raises(TypeError, match=r"must be floats in \[0, 1\], got uint8"):
        abstract(TINY, (1, 8, 8, 3), jnp.uint8)
