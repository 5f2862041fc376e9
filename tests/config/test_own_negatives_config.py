"""Negatives of an anchor's own: what goes together, and what leaves no minimum."""

import pytest

from aninfonce_jax.config.kinds import ConcentrationConfig
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.dgp.conditionals import concentration_values

HARD = {"source__kind": "process_with_negatives", "objective__kind": "hard_negatives"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source__own_concentration": (5.0,)},
            "source.own_concentration is 5.0 for factor 3, whose Λ is 5: the loss is smallest at "
            "their difference, Λ - Λ⁻ = 0, which must be positive; lower Λ⁻",
        ),
        (
            {"source__own_concentration": (3.0, 30.0, 1.0, 1.0)},
            "source.own_concentration is 30.0 for factor 2, whose Λ is 25: the loss is smallest at "
            "their difference, Λ - Λ⁻ = -5, which must be positive; lower Λ⁻",
        ),
        (
            {"source__own_concentration": (3.0, 3.0)},
            "source.own_concentration needs one Λ⁻ for all, or one for each of source.dim=4 "
            "factors, got 2",
        ),
        (
            {"objective__kind": "aninfonce"},
            "objective.kind='aninfonce' with source.kind='process_with_negatives': negatives of an "
            "anchor's own are drawn by source.kind='process_with_negatives' and used by "
            "objective.kind='hard_negatives'; set both or neither",
        ),
    ],
)
def test_what_has_no_minimum_is_refused(small_config, changes, message):
    with pytest.raises(ConfigError) as caught:
        small_config(**{**HARD, **changes})
    assert str(caught.value) == message


@pytest.mark.parametrize("layout", ["bimodal", "linear", "constant"])
@pytest.mark.parametrize("dim", [1, 4, 5])
def test_concentrations_are_laid_out_as_the_process_has_them(layout, dim):
    section = ConcentrationConfig(layout=layout, high=25.0, low=5.0)
    expected = concentration_values(layout, dim, 25.0, 5.0)
    assert section.of_factors(dim) == pytest.approx(expected.tolist())
