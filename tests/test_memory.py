"""Estimates of memory: never above what is really needed, and near enough to be of use."""

import jax
import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax import memory
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.step import trace_train_step

GIB = 2**30


def need(config, phase, devices=1):
    return sum(part.bytes for part in memory.estimate(config, devices)[phase])


def parameter_bytes(experiment):
    params = jax.eval_shape(experiment.init_state).params["encoder"]
    return sum(4 * x.size for x in jax.tree.leaves(params))


@pytest.mark.parametrize("changes", [{}, {"encoder__widths": ()}, {"optimizer__kind": "sgd"}])
def test_parameters_of_an_mlp(small_config, changes):
    config = small_config(train__ema_decay=0.0, **changes)
    copies = {"adam": 3, "sgd": 2}[config.optimizer.kind]
    state = memory.estimate(config, 1)["training"][0]
    assert state.bytes == copies * parameter_bytes(build_experiment(config))


def test_parameters_of_an_mlp_on_images(image_config):
    mlp = {"encoder__kind": "mlp", "encoder__widths": (16, 16), "optimizer__kind": "adam"}
    config = image_config(**mlp)
    assert config.encoder.dim == 8
    state = memory.estimate(config, 1)["training"][0]
    assert state.bytes == 3 * parameter_bytes(build_experiment(config))


def test_classes_of_diet(image_config):
    config = image_config(objective__kind="diet", objective__examples=60)
    params = jax.eval_shape(build_experiment(config).init_state).params["objective"]
    found = {part.what: part.bytes for part in memory.estimate(config, 2)["training"]}
    assert found["parameters of the objective"] == 3 * 4 * params["head"].size
    assert found["scores of all pairs"] == 4 * (8 // 2) * 60
    # Never more than what is really needed.
    assert need(config, "training") <= compiled_bytes(config)


def test_heads_of_augself(image_config):
    config = image_config(objective__kind="augself", objective__width=512)
    params = jax.eval_shape(build_experiment(config).init_state).params["objective"]
    counted = memory.estimate(config, 1)["training"][1].bytes / 3
    real = 4 * sum(x.size for x in jax.tree.leaves(params))
    assert 0.6 < counted / real <= 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "diet", "examples": 2**31 - 1}, "lower objective.examples"),
        ({"kind": "augself", "width": 2**20}, "lower objective.width"),
    ],
)
def test_heads_that_are_too_large(image_config, changes, words):
    config = image_config(**{f"objective__{name}": value for name, value in changes.items()})
    with pytest.raises(ConfigError, match=words):
        memory.refuse_beyond(64 * GIB, "this machine", memory.estimate(config, 1), 1)


@pytest.mark.parametrize("key", ["log.every", "train.steps_per_dispatch"])
def test_metrics_of_very_many_steps(small_config, key):
    config = small_config(train__steps=2**31 - 1, **{key.replace(".", "__"): 2**31 - 1})
    with pytest.raises(ConfigError, match=rf"\(metrics of every step: 64 GiB\).*lower {key}"):
        memory.refuse_beyond(GIB, "this machine", memory.estimate(config, 1), 1)


@pytest.mark.parametrize("kind", ["resnet10", "resnet18", "resnet50"])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_parameters_of_a_resnet(image_config, kind, stem):
    config = image_config(encoder__kind=kind, encoder__stem=stem, encoder__width=0.25)
    counted = memory.estimate(config, 1)["training"][0].bytes / 3
    # Shortcuts and norms are left out.
    assert 0.8 < counted / parameter_bytes(build_experiment(config)) <= 1


def compiled_bytes(config):
    experiment = build_experiment(config)
    plan = trace_train_step(experiment, Placement.local(1)).lower().compile().memory_analysis()
    return plan.argument_size_in_bytes + plan.temp_size_in_bytes


@pytest.mark.parametrize(
    "changes",
    [
        {"train__batch_size": 1024, "objective__strategy": "dense"},
        pytest.param(
            {"train__batch_size": 512, "encoder__widths": (256, 256)}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"train__batch_size": 512, "encoder__widths": (256, 256), "train__microbatches": 4},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["scores", "activations", "microbatches"],
)
def test_a_step_is_not_overestimated(small_config, changes):
    config = small_config(**changes)
    counted = need(config, "training")
    assert 0.15 < counted / compiled_bytes(config) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_on_images_is_not_overestimated(image_config, remat, dtype):
    config = image_config(
        train__batch_size=32, source__image_size=32, encoder__remat=remat, encoder__dtype=dtype
    )
    counted = need(config, "training")
    assert 0.1 < counted / compiled_bytes(config) <= 1


def test_what_just_fits_is_let_through(small_config):
    phases = memory.estimate(small_config(), 2)
    most = max(sum(part.bytes for part in parts) for parts in phases.values())
    memory.refuse_beyond(2 * most, "this machine", phases, 2)
    with pytest.raises(ConfigError, match=r"needs at least .* and this machine has .*; lower "):
        memory.refuse_beyond(2 * most - 1, "this machine", phases, 2)


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize(
    "name",
    [
        "configs/quickstart.py",
        "configs/synthetic.py:linear",
        "configs/synthetic.py:supervised",
        "configs/cifar10_cpu.py",
        "configs/imagenette_cpu.py",
    ],
)
def test_shipped_configs_for_a_cpu_fit_into_four_gigabytes(name, devices):
    for config in config_lib.runs_of(load_config(name)).values():
        memory.refuse_beyond(4 * GIB, "it", memory.estimate(config, devices), devices)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"encoder__widths": (10**6, 10**6)}, "(parameters and optimiser: 14.55 TiB)"),
        ({"train__batch_size": 2 * 10**9}, "(activations of a batch: 476.8 GiB)"),
        ({"eval__samples": 2 * 10**9}, "(samples to evaluate with: 208.6 GiB)"),
        ({"train__batch_size": 10**6, "objective__strategy": "dense"}, "(scores of all pairs: 3.6"),
        ({"source__dim": 10**6, "eval__samples": 8 * 10**6}, "(drawing the mixing: 21.83 TiB)"),
        ({"objective__kind": "lp", "objective__exponent": 3.0, "train__batch_size": 10**6}, "3.6"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_number(small_config, changes, expected):
    with pytest.raises(ConfigError) as caught:
        memory.refuse_beyond(64 * GIB, "it", memory.estimate(small_config(**changes), 1), 1)
    assert expected in str(caught.value)
    assert "it has 64 GiB; lower " in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"train__batch_size": 10**7}, {"eval__batch_size": 10**9}, {"encoder__width": 1000.0}],
)
def test_images_that_cannot_fit_are_refused(image_config, changes):
    phases = memory.estimate(image_config(**changes), 1)
    with pytest.raises(ConfigError, match="needs at least"):
        memory.refuse_beyond(64 * GIB, "it", phases, 1)


def test_the_limit_of_a_device_is_its_own(small_config, monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 1000}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    with pytest.raises(ConfigError, match="and each device has 1000 bytes; lower"):
        memory.check_fits(small_config(), 1)


def test_evaluation_does_not_need_what_training_does(small_config, monkeypatch):
    config = small_config(train__batch_size=10**9)
    monkeypatch.setattr(memory, "host_memory", lambda: GIB)
    memory.check_fits(config, 1, training=False)
    with pytest.raises(ConfigError, match="this machine has 1 GiB"):
        memory.check_fits(config, 1)
    monkeypatch.setattr(memory, "host_memory", lambda: None)
    memory.check_fits(config, 1)


def test_host_memory_is_known():
    assert memory.host_memory() > GIB / 2


def test_limits_of_containers(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_swap", lambda: 7)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("1000\n")
    (inner.parent / "memory.swap.max").write_text("50\n")
    (tmp_path / "memory.max").write_text("2000\n")
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a/b\n")
    assert memory._cgroup_limits(tmp_path, membership) == [None, 1050, 2007]
    old = tmp_path / "memory" / "c"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("3000")
    membership.write_text("3:cpu:/c\n2:memory:/c\n")
    assert memory._cgroup_limits(tmp_path, membership) == [3007, None]
    assert memory._cgroup_limits(tmp_path, tmp_path / "missing") == []
