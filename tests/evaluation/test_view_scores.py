"""Views of one example: drawn as training draws them, encoded, and told how they are spread."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_runs import Chords

import aninfonce_jax as an
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.evaluation.views import Views
from aninfonce_jax.scores import registry

SCORES = {score.key for score in registry.scores_of("views")}


class Noisy(Chords):
    """Views with normal noise, of a size that is known."""

    @property
    def known(self):
        known = super().known
        examples = known.examples

        def views(key, batch):
            return batch.observation + 0.5 * jax.random.normal(key, batch.observation.shape)

        return an.Known(
            examples=an.Examples(examples.train, examples.test, examples.observe, 2, views=views)
        )


def scores_of(source, views=200, apply=lambda _, x: x):
    experiment = an.Experiment(
        source,
        (lambda key, x: {}, apply),
        an.objectives.AnInfoNCE(normalize=False),
        optax.sgd(0.1),
        evaluation=an.EvalConfig(views=views),
    )
    weights = jax.jit(experiment.init_state)().weights
    part = Views(experiment, an.Placement.local(1), experiment.source.known.examples)
    assert part(weights, full=False).scores == {}
    return part(weights, full=True)


def test_normal_views_of_a_known_width():
    found = scores_of(Noisy())
    assert found.scores.keys() == SCORES | {registry.VIEWS}
    assert found.intervals.keys() == SCORES - {registry.VIEWS_WIDTH_RATIO.key}
    assert found.scores["views_not_normal"] < 0.15
    assert found.scores["views_many_modes"] == 0
    assert found.scores["views_width_ratio"] < 1.3
    details = found.scores[registry.VIEWS]
    # All test examples are fewer than could be shown.
    assert (details["examples"], details["per_example"]) == (20, 200)
    assert np.shape(details["widths"]) == (8, 5)
    assert len(details["first"]) == len(details["not_normal"]) == len(details["many_modes"]) == 8
    one = details["first"][0]
    assert one["deviation"] == pytest.approx(0.5, rel=0.15)
    assert sum(one["shares"]) == pytest.approx(1)


def test_an_encoder_that_parts_views_has_several_modes():
    found = scores_of(Noisy(), apply=lambda _, x: x + 9 * jnp.sign(x[:, :1]))
    assert found.scores["views_many_modes"] > 0.5
    assert found.scores["views_not_normal"] > 0.9


def test_views_are_those_of_training(image_config):
    experiment = build_experiment(image_config(source__augment="crop_only", eval__views=20))
    found = Views(experiment, an.Placement.local(1), experiment.source.known.examples)(
        jax.jit(experiment.init_state)().weights, full=True
    )
    assert found.scores["views_width"] > 0.01


def test_a_source_that_makes_no_views_is_refused():
    class Silent(Chords):
        @property
        def known(self):
            known = super().known.examples
            return an.Known(examples=an.Examples(known.train, known.test, known.observe, 2))

    with pytest.raises(ConfigError, match=r"eval.views=200 has no use: Silent does not augment"):
        scores_of(Silent())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval__views": 19}, "eval.views=19 is too few to tell how views are spread; use at leas"),
        (
            {"eval__views": 20, "source__augment": "none"},
            "eval.views=20 has no use with source.augment='none', with which all views of an exam",
        ),
    ],
)
def test_views_that_tell_nothing(image_config, changes, message):
    with pytest.raises(ConfigError) as caught:
        image_config(**changes)
    assert str(caught.value).startswith(message)
