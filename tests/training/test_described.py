"""What parts that were made in code tell of themselves."""

import dataclasses
import json

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax import nnx

import aninfonce_jax as an
from aninfonce_jax.training.described import describe_part


class Net(nn.Module):
    width: int = 5

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(self.width)(x)))


def test_objectives_tell_their_settings():
    told = describe_part(an.objectives.AnInfoNCE(hardness=2.0))
    assert told["kind"] == "AnInfoNCE"
    assert told["hardness"] == 2.0
    assert told != describe_part(an.objectives.AnInfoNCE())


def test_a_process_tells_its_concentration_and_no_weights():
    positives = an.conditionals.Anisotropic([25.0, 5.0])
    process = an.LatentProcess(an.Sphere(2), an.marginals.Uniform(), positives, jnp.tanh)
    told = describe_part(an.ProcessSource(process))["process"]
    assert told["conditional"]["concentration"] == [25.0, 5.0]
    assert told["mixing"] == "tanh"


def test_networks_tell_their_class_and_what_linen_knows_of_them():
    assert describe_part(an.as_encoder(Net(7)))["module"] == {"kind": "Net", "width": 7}
    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    assert describe_part(an.as_encoder(layer))["module"] == {"kind": "Linear"}


def test_data_are_not_written_down():
    @dataclasses.dataclass
    class Source:
        rows: np.ndarray
        names: list
        scale: np.float32

    told = describe_part(Source(np.zeros((4, 2)), ["a"] * 1000, np.float32(0.5)))
    assert told == {
        "kind": "Source",
        "rows": "float64[4, 2]",
        "names": "1000 items",
        "scale": 0.5,
    }
    json.dumps(told)


def test_a_class_of_ones_own_tells_its_name():
    class Anything:
        pass

    assert describe_part(Anything()) == {"kind": "Anything"}
