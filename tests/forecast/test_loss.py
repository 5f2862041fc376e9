"""The loss by itself, as compilers at hand see it."""

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.build import build_shapes
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.compiler import compile_loss
from aninfonce_jax.forecast.loss import lower_loss
from aninfonce_jax.placement import Placement

(ANYWHERE,) = parse_topologies("v5e:2x2")


def loss_bytes(config, devices=4):
    return compile_loss(build_shapes(config), ANYWHERE, Placement.local(devices))


def test_scores_are_the_loss_s_and_the_network_is_not(small_config):
    changes = {"train__batch_size": 1024, "objective__negatives": "both"}
    dense = loss_bytes(small_config(**changes, objective__strategy="dense"))
    # Of its 512 anchors against 2,048 keys a device holds the scores, or more than once.
    scores = 4 * 512 * 2048
    assert dense >= scores
    chunked = small_config(**changes, objective__strategy="chunked", objective__chunk_size=64)
    assert loss_bytes(chunked) < scores / 4
    wide = small_config(**changes, objective__strategy="dense", encoder__widths=(512, 512))
    assert loss_bytes(wide) == dense
    alone = loss_bytes(small_config(**changes, objective__strategy="dense"), devices=1)
    assert alone >= 4 * scores


@pytest.mark.parametrize("objective", ["tricl", "augself", "diet"])
def test_whatever_an_objective_asks_of_the_encoder_it_gets(objective):
    """Layers before the embedding, and views more than once."""
    values = config_lib.default_config(
        source="images", encoder="resnet10", objective=objective, optimizer="sgd"
    )
    changes = {
        "source.dataset": "cifar10",
        "source.folder": "nowhere",
        "source.image_size": 16,
        "encoder.width": 0.125,
        "encoder.projector": (8,),
        "encoder.dim": 4,
        "train.batch_size": 16,
    }
    (config,) = config_lib.resolve(values, changes).runs.values()
    text = lower_loss(build_shapes(config), Placement.local(2)).as_text()
    # The loss, and no network.
    assert "stablehlo.convolution" not in text
    assert "stablehlo.reduce" in text
