"""Every shipped config and variant is valid, and says what it is for."""

import ast
from pathlib import Path

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.file import load_config, load_sweep
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.sweep import make_sweep
from aninfonce_jax.sweeps.run import check_scores

ROOT = Path(__file__).resolve().parent.parent
NAMES = [
    "configs/quickstart.py",
    *(
        f"configs/synthetic.py:{variant}"
        for variant in ("bimodal", "linear", "infonce", "supervised", "exact", "paper", "recipe")
    ),
    *(
        f"configs/cifar10.py:{variant}"
        for variant in ("infonce", "aninfonce", "aninfonce_no_l2", "infonce_jitter_only")
    ),
    *(
        f"configs/cifar10_cpu.py:{variant}"
        for variant in (
            *("both", "infonce", "infonce_trained", "aninfonce", "aninfonce_no_l2", "map"),
        )
    ),
    *(f"configs/imagenet.py:{variant}" for variant in ("infonce", "aninfonce", "aninfonce_no_l2")),
    "configs/imagenette_cpu.py",
    *(
        f"configs/mnist_vae.py:{variant}"
        for variant in (
            *("linear50", "linear200", "bimodal", "infonce", "infonce_trained", "vae", "views"),
            *("augment", "augment_infonce", "augment_infonce_trained"),
        )
    ),
    *(
        f"configs/theory.py:{variant}{size}"
        for size in ("", "_small")
        for variant in (
            *("lambda", "batch_dim", "batch_lambda", "steps", "tricl"),
            *("overlap", "shift", "modes"),
        )
    ),
    *(
        f"configs/hard_negatives.py:{variant}"
        for variant in ("ordinary", "continued", "hard", "alone")
    ),
    *(
        f"configs/ensemble.py:{variant}"
        for variant in (
            *("ensemble", "aninfonce", "infonce", "infonce_trained"),
            *("cifar10", "cifar10_both"),
        )
    ),
    *(
        f"configs/causal3dident.py:{variant}"
        for variant in (
            *("aninfonce", "infonce", "infonce_trained"),
            *("jitter", "jitter_infonce", "jitter_infonce_trained"),
            *("process", "process_infonce", "process_infonce_trained"),
        )
    ),
]
SWEEPS = [
    name
    for name in NAMES
    if name.startswith("configs/theory.py") or name.endswith(("cpu.py:map", "vae.py:views"))
]


def load(name):
    return config_lib.from_dict(load_config(str(ROOT / name)))


@pytest.mark.parametrize("name", NAMES)
def test_config_is_valid(name):
    # As a command would have it: what no objective of the file uses is refused.
    runs = config_lib.resolve(load_config(str(ROOT / name)), {}).runs
    assert all(config_lib.from_dict(config_lib.to_dict(run)) == run for run in runs.values())


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_is_valid(name):
    path = str(ROOT / name)
    sweep = make_sweep(load_config(path), load_sweep(path), {})
    check_scores(sweep)
    assert len(sweep.points) > 3


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.py")), ids=lambda p: p.name)
def test_docstring_states_command_duration_and_result(path):
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert "python -m aninfonce_jax.main" in text
    assert "minutes" in text or "hours" in text
    assert "R²" in text or "classes" in text


@pytest.mark.parametrize("name", ["configs/synthetic.py", "synthetic.py", "synthetic"])
def test_a_shipped_config_is_found_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "synthetic").mkdir()
    config = config_lib.from_dict(load_config(f"{name}:linear"))
    assert config == load("configs/synthetic.py:linear")


def test_a_file_of_ones_own_goes_before_a_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart.py").write_text("def get_config(): return {'seed': 7}")
    assert load_config("quickstart.py") == {"seed": 7}


def test_every_config_file_is_tested():
    tested = {name.partition(":")[0] for name in NAMES}
    assert tested == {f"configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}


def test_the_papers_data_and_model_are_kept():
    config = load("configs/synthetic.py")
    assert config.source.dim == 10
    assert config.source.mixing.layers == 3
    assert config.train.batch_size == 1000
    assert config.encoder.widths == ()
    concentration = config.source.concentration
    assert (concentration.layout, concentration.high, concentration.low) == ("bimodal", 25.0, 5.0)
    assert load("configs/synthetic.py:linear").source.concentration.layout == "linear"


def test_variants_differ_where_they_say():
    assert load("configs/synthetic.py:infonce").objective.kind == "infonce"
    assert load("configs/synthetic.py:supervised").objective.kind == "supervised"
    assert load("configs/synthetic.py:paper").source.sampler == "paper"
    assert load("configs/synthetic.py:exact").source.sampler == "exact"
    assert load("configs/synthetic.py:recipe").optimizer.kind == "adam"


@pytest.mark.parametrize("name", ["synthetic", "cifar10", "cifar10_cpu", "imagenet", "mnist_vae"])
def test_unknown_variant(name):
    with pytest.raises(ConfigError, match="unknown variant 'cubic'; choose one of "):
        load(f"configs/{name}.py:cubic")


def test_the_papers_networks_are_kept():
    cifar, imagenet = load("configs/cifar10.py"), load("configs/imagenet.py")
    assert (cifar.encoder.kind, cifar.encoder.width) == ("resnet18", 1.0)
    assert (imagenet.encoder.kind, imagenet.encoder.width) == ("resnet50", 1.0)
    assert imagenet.encoder.dtype == "bfloat16"
    assert load("configs/imagenet.py:aninfonce").objective.kind == "aninfonce"
    assert load("configs/cifar10.py:infonce_jitter_only").source.augment == "jitter_only"


def test_mnist_is_decoded_by_the_vae_of_the_same_file():
    vae, run = load("configs/mnist_vae.py:vae"), load("configs/mnist_vae.py:linear50")
    # The paper's: three fully connected layers on each side, ten latents, fifty epochs.
    assert (len(vae.encoder.widths), len(vae.objective.widths)) == (2, 2)
    assert vae.encoder.dim == 2 * run.source.dim == 20
    assert 49.5 <= vae.train.steps * vae.train.batch_size / 60_000 <= 50
    assert load_config(run.source.decoder_config) == load_config("configs/mnist_vae.py:vae")
    concentration = run.source.concentration
    assert (concentration.layout, concentration.high, concentration.low) == ("linear", 50.0, 5.0)
    fixed, trained = (load(f"configs/mnist_vae.py:{x}") for x in ("infonce", "infonce_trained"))
    assert (fixed.objective.train_temperature, trained.objective.train_temperature) == (False, True)


def test_the_map_starts_all_objectives_alike():
    path = str(ROOT / "configs/cifar10_cpu.py:map")
    points = make_sweep(load_config(path), load_sweep(path), {}).points
    assert len(points) == 24
    objectives = [point.config.objective for point in points]
    trained = [own.train_temperature for own in objectives if own.kind == "infonce"]
    assert sorted(trained) == [False] * 8 + [True] * 8
    assert {own.temperature for own in objectives if own.kind == "infonce"} == {0.5}
    # 1 / temperature.
    assert {own.concentration_start for own in objectives if own.kind == "aninfonce"} == {2.0}
    assert {own.negatives for own in objectives} == {"both"}
    with pytest.raises(ConfigError, match="variant 'both' has no sweep; choose map"):
        load_sweep(str(ROOT / "configs/cifar10_cpu.py:both"))
