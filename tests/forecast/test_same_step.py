"""What a forecast compiles is the step that the loop runs: the same program, to the letter."""

import dataclasses
import re

import jax
import pytest
from image_files import write_folder

from aninfonce_jax import config as config_lib
from aninfonce_jax.build import build_experiment, build_shapes
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.step import make_train_step, trace_train_step


def program(lowered):
    """Returns the text of a program, its functions numbered in the order in which they appear.

    Before jax 0.8 their numbers depend on what was traced earlier.
    """
    numbers = {}

    def renumbered(name):
        return f"{name[1]}_{numbers.setdefault(name[0], len(numbers))}"

    return re.sub(r"(@\w+)_\d+\b", renumbered, lowered.as_text())


def lowered_by_the_loop(experiment, placement):
    """Lowers the step for what the loop hands to it: real arrays, laid out by the loop's parts."""
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    step = make_train_step(experiment, placement)
    size, seed = experiment.batch_size, experiment.seed
    with Feed(experiment.source, size, seed=seed, step=0, placement=placement) as feed:
        return program(step.lower(state, next(feed), 1))


@pytest.mark.parametrize("devices", [1, 8])
def test_of_a_process(small_config, devices):
    config, placement = small_config(train__steps_per_dispatch=3), Placement.local(devices)
    loop = lowered_by_the_loop(build_experiment(config), placement)
    assert program(trace_train_step(build_shapes(config), placement).lower()) == loop


def test_of_images_without_the_images(tmp_path):
    write_folder(tmp_path, {"train": {"a": 8, "b": 8}, "test": {"a": 2, "b": 2}})
    values = config_lib.default_config(source="images", encoder="resnet10", optimizer="sgd")
    changes = {
        "source.folder": str(tmp_path),
        "source.image_size": 16,
        "encoder.width": 0.125,
        "encoder.projector": (8,),
        "encoder.dim": 4,
        "train.batch_size": 16,
    }
    (config,) = config_lib.resolve(values, changes).runs.values()
    placement = Placement.local(8)
    loop = lowered_by_the_loop(build_experiment(config), placement)
    nowhere = dataclasses.replace(config.source, folder=str(tmp_path / "nowhere"))
    shapes = build_shapes(dataclasses.replace(config, source=nowhere))
    assert program(trace_train_step(shapes, placement).lower()) == loop
    # And it is no accident of what a text shows: another batch is another program.
    other = dataclasses.replace(config, train=dataclasses.replace(config.train, batch_size=8))
    assert program(trace_train_step(build_shapes(other), placement).lower()) != loop
